"""CUTLASS' mainloop on a Hopper: the bits of the chains that specs name. Each in a process of its own, since a kernel that
waits for what never comes leaves its process without a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.gpu

_CODE = """
import sys
import torch
import gemmsim as gs

asked, chain = sys.argv[1:]
for m, k, n, batch in ((300, 917, 520, ()), (1, 64, 1, ()), (129, 130, 257, (3,)), (256, 4096, 256, ())):
    g = torch.Generator().manual_seed(k)
    a, b = torch.randn(*batch, m, k, generator=g), torch.randn(*batch, k, n, generator=g)
    with gs.cutlass_acceleration():
        got = gs.qmatmul(a.cuda(), b.cuda(), asked).cpu()
        record = gs.last_backend()
    assert record.backend == "cutlass", record
    different = got.view(torch.int32) != gs.qmatmul(a, b, chain).view(torch.int32)
    assert not bool(different.any()), (asked, (m, k, n, batch), int(different.sum()), str(record))
"""


@pytest.mark.parametrize(("asked", "chain"), [
    ("bf16 : fp32", "bf16 : hw(hopper, wgmma, bf16)"),
    ("fp16 : fp32", "fp16 : hw(hopper, wgmma, fp16)"),
    ("e4m3 : fp32", "e4m3 : promote(hw(hopper, wgmma, e4m3), 128)"),
    ("e4m3 : hw(hopper, wgmma, e4m3)", "e4m3 : hw(hopper, wgmma, e4m3)"),
])  # fmt: skip
def test_bits_of_the_chain(asked, chain):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("CUTLASS' mainloops are built for Hopper")
    done = subprocess.run([sys.executable, "-c", _CODE, asked, chain], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
