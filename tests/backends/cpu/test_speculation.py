"""Kernels that wager on no overflow: sums that stay, that pass the end and come back, and that never return.

A lost wager is computed again with clamps, so that data on both sides of the bound must give the reference's bits.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

SPECS = [
    ":e5m10", ":e5m10/sat", ":e4m3", ":bf16", ":chunked(16, e5m10)", ":chunked(100, e5m10, fp32)", ":pairwise(e5m10)",
    ":pairwise(e5m10, 20)", ":interleaved(7, e5m10)", ":interleaved(3, e5m10, combine=pairwise)", ":kahan(e5m10)",
    ":neumaier(e5m10)", ":two_sum(e4m3)", ":kahan(e5m10, mul=e5m10)", ":sequential(e5m10, init=c_first)",
    ":palette(e5m10, e5m7, e4m3)",
]  # fmt: skip
K = 230


def data(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of binary16's size: far below its end, just across it, across it and back, or infinite halfway."""
    g = torch.Generator().manual_seed(1)
    a, b = torch.rand(5, K, generator=g) + 0.5, torch.rand(K, 3, generator=g) + 0.5
    if kind == "across":
        a *= 300
    elif kind == "edge":  # wagers are lost from about 4000 on
        a *= 18
    elif kind == "back":
        a *= 500
        a[:, K // 2 :] *= -1
    elif kind == "infinite":
        a[2, 100] = float("inf")
    elif kind == "large terms":
        a[1, 50], a[1, 51] = 60000.0, -60000.0
    return a, b


@pytest.mark.parametrize("kind", ["below", "edge", "across", "back", "infinite", "large terms"])
@pytest.mark.parametrize("text", SPECS)
def test_both_sides_of_the_bound(text, kind):
    a, b = data(kind)
    spec = GemmSpec.of(text)
    c = torch.tensor([[3.0], [-70000.0], [4000.0], [1e-9], [0.1]]).expand(5, 3) if "init" in text else None
    select = (torch.arange(15) % 3).reshape(5, 3).to(torch.uint8) if "palette" in text else None
    want = reference.gemm(a, b, spec, c=c, select=select)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(5, 3, dtype=torch.float64)
        cpu.gemm(a, b, spec, out, 0, c, select)
        assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64), context=f"{spec} {kind} on {name}")
