"""Products of block formats on tensor cores, near the exact ones: terms whose position, scale or format was mistaken would be
far away. In a process of its own, since a kernel that reads where it must not leaves its process without a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

_CODE = """
import sys
import torch
import gemmsim as gs
from gemmsim.backends import cuda
from gemmsim.formats import parse_block

names = sys.argv[1:3]
packing = "lo_first" if all(parse_block(name).element.bits == 4 for name in names) else "bytes"
for m, k, n in ((128, 64, 128), (200, 320, 136), (5, 96, 7), (513, 1024, 300)):
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    spread = torch.exp2(torch.randint(-6, 6, (1, k // 16), device="cuda").float()).repeat_interleave(16, 1)
    left, right = (gs.mx.encode(x, name, packing=packing) for x, name in zip((a * spread, b / spread), names))
    one = cuda.Blocks(left.codes, left.scales, parse_block(names[0]), k, packing)
    two = cuda.Blocks(right.codes.t(), right.scales.t(), parse_block(names[1]), k, packing)
    out = torch.empty(m, n, device="cuda")
    run = cuda.gemm_tensor_cores(one, two, out)
    x, y = (gs.mx.decode(t, name, size=k, packing=packing).double() for t, name in zip((left, right), names))
    error, size = (out.double() - x @ y.t()).abs(), x.abs() @ y.abs().t()
    assert bool((error <= size * 2.0**-12 + 1e-30).all()), (str(run), (m, k, n), float((error / size).max()))
"""


@pytest.mark.parametrize(
    "pair",
    [
        "mxfp8_e4m3 mxfp8_e4m3",
        "mxfp8_e4m3 mxfp6_e3m2",
        "mxfp8_e4m3 mxfp4",
        "mxfp4 mxfp4",
        "nvfp4 nvfp4",
        "mxint8 mxfp8_e5m2",
    ],
)
def test_tensor_cores(pair):
    done = subprocess.run([sys.executable, "-c", _CODE, *pair.split()], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
