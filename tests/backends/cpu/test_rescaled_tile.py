"""Rounding in two instructions and rescaled panels (cutlass_kernels/cpu/tiles: checks.h, rescaled_tile.h) where they are most easily wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import assert_equals_reference, isas

from gemmsim import quantize
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

ROWS = 8  # of a whole tile


def near_powers_of_two(p: int) -> torch.Tensor:
    """Floats within 64 places of each power of two, and of each midpoint of ``p`` bits beside one, of both signs."""
    places = np.arange(-64, 65)
    one = np.float32(1).view(np.int32).item()
    step = 1 << (24 - p)
    starts = [one, one + step // 2, one + step + step // 2, one - step // 4, one + (1 << 23) - step // 2]
    bits = np.concatenate([start + places for start in starts]).astype(np.int32)
    x = torch.from_numpy(bits.view(np.float32).copy())
    x = torch.cat([x * 2.0**e for e in (-9, 0, 5)])
    return torch.cat([x, -x])


@pytest.mark.parametrize("arithmetic", ["", ", arithmetic=fp32"])
@pytest.mark.parametrize("register", ["e6m1", "e5m4", "e8m7", "e5m9", "e5m10", "e6m10", "e5m11", "e8m11"])
def test_registers_beside_powers_of_two_and_midpoints(register, arithmetic):
    """One term: a register is its operand, rounded as a cast rounds it."""
    x = near_powers_of_two(int(register.split("m")[1]) + 1)
    want = quantize(x, register).double()
    spec = GemmSpec.of(f":{register}{arithmetic}")
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(ROWS, len(x), dtype=torch.float64)
        cpu.gemm(torch.ones(ROWS, 1), x[None], spec, out, 0)
        assert_bitwise_equal(out, want.expand(ROWS, -1).contiguous(), context=f"{spec}, {name}")


@pytest.mark.parametrize("spec", [":e5m10", ":e5m10, arithmetic=fp32", ":mul=e5m10, add=e5m10", ":mul=e5m9, add=e5m10", ":e6m9",
                                  ":mul=e6m9, add=e6m5, arithmetic=fp32", ":sequential(e5m10, init=c_first)",
                                  ":chunked(40, e5m10), arithmetic=fp32"])  # fmt: skip
@pytest.mark.parametrize("scale", [0, 100, -100])
def test_lifted_panels(spec, scale):
    """Sums of all sizes down to the format's smallest, with operands at either end of float32's range."""
    g = torch.Generator().manual_seed(scale + 200)
    a, b = torch.randn(ROWS, 70, generator=g), torch.randn(70, 17, generator=g)
    a *= 2.0 ** torch.arange(-14, 2).repeat_interleave(5)[:70]
    c = torch.randn(ROWS, 17, generator=g) if "c_first" in spec else None
    assert_equals_reference(GemmSpec.of(spec), a * 2.0**scale, b * 2.0**-scale, c=c)
