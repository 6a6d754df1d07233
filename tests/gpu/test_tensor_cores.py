"""Matrix instructions of the GPU. Products of block formats, near the exact ones, and equal to them where no sum is cut:
terms whose position, scale or format was mistaken would be far away. Products of hw(...), whose bits are those of the model whatever the comparison with it says.
Each in a process of its own, since a kernel that reads where it must not leaves its process without a GPU."""

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
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import parse_block

names, dtypes = sys.argv[1:3], [getattr(torch, name) for name in sys.argv[3:]]
packing = "lo_first" if all(parse_block(name).element.bits == 4 for name in names) else "bytes"


def product(a, b, dtype):
    left, right = (gs.mx.encode(x, name, packing=packing) for x, name in zip((a, b), names))
    one, two = (Coded(x.codes, x.scales, parse_block(name), -1, a.shape[1], packing) for x, name in zip((left, right), names))
    out = torch.full((len(a), len(b)), 7.0, dtype=dtype, device="cuda")
    run = cuda.gemm_tensor_cores(one, two.transposed, out)
    values = (gs.mx.decode(t, name, size=a.shape[1], packing=packing).double() for t, name in zip((left, right), names))
    return run, out.double(), *values


for m, k, n in ((128, 64, 128), (200, 320, 136), (5, 96, 7), (513, 1024, 300)):
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    spread = torch.exp2(torch.randint(-6, 6, (1, k // 16), device="cuda").float()).repeat_interleave(16, 1)
    whole = torch.tensor([0.0, 1, 2, 3, 4, 6], device="cuda")
    for dtype in dtypes:
        run, out, x, y = product(a * spread, b / spread, dtype)
        error, size = (out - x @ y.t()).abs(), x.abs() @ y.abs().t()
        limit = size * 2.0**-12 + (out.abs() * 2.0**-8 if dtype == torch.bfloat16 else 1e-30)
        assert bool((error <= limit).all()), (str(run), (m, k, n), float((error / size).max()))
        # Whole numbers that every format holds, the largest in each block: no sum is cut, so that all bits are known
        x, y = (whole[torch.randint(6, s, device="cuda")] * (2 * torch.randint(2, s, device="cuda") - 1) for s in ((m, k), (n, k)))
        x[:, ::16], y[:, 5::16] = 6, -6
        run, out, one, two = product(x, y, dtype)
        assert torch.equal(one, x.double()) and torch.equal(two, y.double())
        assert torch.equal(out, (one @ two.t()).to(dtype).double()), (str(run), (m, k, n), "whole numbers")
"""


@pytest.mark.parametrize(
    ("pair", "dtypes"),
    [
        ("mxfp8_e4m3 mxfp8_e4m3", "float32 bfloat16"),  # with bfloat16 as they are timed
        ("mxfp8_e4m3 mxfp6_e3m2", "float32"),
        ("mxfp8_e4m3 mxfp4", "float32"),
        ("mxfp4 mxfp4", "float32 bfloat16"),
        ("nvfp4 nvfp4", "float32 bfloat16"),
        ("mxint8 mxfp8_e5m2", "float32"),
    ],
)
def test_tensor_cores(pair, dtypes):
    command = [sys.executable, "-c", _CODE, *pair.split(), *dtypes.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


_HARDWARE = """
import sys
import torch
import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cuda
from gemmsim.hardware.devices import architecture_of

own = architecture_of(torch.cuda.get_device_capability())
for text in sys.argv[1:]:
    spec = GemmSpec.of(text)
    inner = getattr(spec.accumulator, "inner", spec.accumulator)
    for m, k, n in ((128, 128, 128), (200, 333, 136), (5, 96, 7), (300, 1024, 257)):
        g = torch.Generator().manual_seed(m)
        a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
        a *= torch.exp2(torch.randint(-9, 9, (k,), generator=g).float())
        a[0, 3], b[5, 2] = float("nan"), float("inf")
        want = gs.qmatmul(a, b, spec, seed=1)
        got = gs.qmatmul(a.cuda(), b.cuda(), spec, seed=1)
        plan = gs.last_backend().plan
        assert torch.equal(want.view(torch.int32), got.cpu().view(torch.int32)), (text, plan, (m, k, n))
        if own != inner.arch:
            assert "instruction not used: cuda:0 is" in plan, plan
    print(text, plan)
"""


@pytest.mark.parametrize(
    "specs",
    [
        [":hw(hopper, wgmma, bf16)", ":hw(hopper, wgmma, fp16)", ":hw(hopper, wgmma, tf32)"],
        [":hw(hopper, wgmma, fp16, out=fp16)", ":hw(hopper, wgmma, e4m3)", ":hw(hopper, wgmma, e5m2, e4m3) -> bf16"],
        [":promote(hw(hopper, wgmma, e4m3), 128)", ":chunked(64, hw(hopper, wgmma, bf16), fp32)"],
        [":hw(hopper, mma, bf16)", ":hw(hopper, mma, tf32)", ":hw(hopper, mma, fp16, out=fp16)"],
        [":hw(ampere, mma, bf16)", ":hw(ampere, mma, tf32)"],
        [":hw(ada, mma, e4m3)", ":hw(rtx_blackwell, mma, e4m3)"],
        ["mxfp8_e4m3 : hw(rtx_blackwell, mxf8f6f4, e4m3)", "nvfp4/tensor : hw(rtx_blackwell, mxf4nvf4, e2m1)"],
        [
            ":hw(blackwell, tcgen05, bf16)",
            ":hw(blackwell, tcgen05, tf32)",
            ":promote(hw(blackwell, tcgen05, e4m3), 128)",
        ],
        ["mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "mxfp4 : hw(blackwell, mxf4, e2m1)"],
        ["nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)"],
    ],
    ids=lambda specs: specs[0],
)
def test_instructions_have_the_bits_of_the_model_or_are_not_used(specs):
    done = subprocess.run([sys.executable, "-c", _HARDWARE, *specs], capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]


_EXACT = """
import torch
import gemmsim as gs

g = torch.Generator().manual_seed(3)
for spec, k in (("int8 : exact(fp32)", 512), ("int4 : exact(fp32) -> bf16", 3000), ("e2m1 : exact(e5m10)", 777)):
    a, b = (torch.randint(-140, 140, s, generator=g).float() for s in ((200, k), (k, 136)))
    want, got = gs.qmatmul(a, b, spec), gs.qmatmul(a.cuda(), b.cuda(), spec)
    plan = gs.last_backend().plan
    assert torch.equal(want.view(torch.int32), got.cpu().view(torch.int32)), (spec, plan)
    print(spec, plan)
"""


def test_exact_sums_have_the_bits_of_the_cpu():
    done = subprocess.run([sys.executable, "-c", _EXACT], capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
