"""The arithmetic of scaled casts written out in tensor operations: one float32 rounding each.

It defines what every backend computes, gives the kernels their second scales, and checks them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gemmsim.ops.torch_versions import viewed

from .grids import ELEMENTS, ElementGrid, Grid, IntegerGrid

__all__ = [
    "TINY_AMAX",
    "affine",
    "blocks",
    "fake_quantize",
    "quantize_integers",
    "round_to",
    "scales",
    "second_scale",
    "two_levels",
]

#: An amax up to here has no usable scale (2^-24, inclusive).
TINY_AMAX = 2.0**-24
_SCALE_MAX = 448.0  # of e4m3, the scales' own format


def _bits(x: Tensor) -> Tensor:
    return viewed(x, torch.int32)


def round_to(t: Tensor, grid: Grid) -> Tensor:
    """float32 ``t`` clamped to ``grid`` and rounded to it; NaN stays, the sign of zero stays."""
    if isinstance(grid, IntegerGrid):
        return t.clamp(grid.low, grid.high).round()
    a = t.abs().clamp(max=grid.maximum).contiguous()
    exponent = (_bits(a) & 0x7F800000).clamp(min=(grid.emin + 127) << 23)
    magic = (exponent + ((23 - grid.trailing) << 23)).view(torch.float32)
    r = (a + magic) - magic
    if grid.ties != "even":
        quantum, left = magic * 2.0**-23, a - r
        if grid.ties == "away":
            r = torch.where(left * 2 == quantum, r + quantum, r)
        else:
            r = torch.where(left * -2 == quantum, r - quantum, r)
    return torch.where(t.isnan(), t, torch.copysign(r, t))


def scales(amax: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """What float32 inputs are multiplied by, and results divided by (integers) or multiplied by (elements)."""
    tiny = amax <= TINY_AMAX
    if isinstance(grid, IntegerGrid):
        scale = torch.full_like(amax, grid.high) / amax
        return torch.where(tiny, 0.0, scale), torch.where(tiny, 1.0, scale)
    scale = torch.where(tiny, 1.0, amax).reciprocal() * grid.maximum
    return scale, scale.reciprocal()


def fake_quantize(
    x: Tensor,
    amax: Tensor | None,
    grid: Grid,
    bias: Tensor | None = None,
    rounded: Callable[[Tensor, Grid], Tensor] = round_to,
) -> Tensor:
    """``x`` scaled by amax, ``rounded`` and scaled back, in ``x``'s dtype. Shapes broadcast."""
    v = x.to(torch.float32)
    if bias is not None:
        v = v - bias.to(torch.float32)
    if amax is None:
        y = rounded(v, grid)
    else:
        before, after = scales(amax.to(torch.float32), grid)
        y = rounded(v * before, grid)
        y = y / after if isinstance(grid, IntegerGrid) else y * after
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y.to(x.dtype)


def quantize_integers(x: Tensor, amax: Tensor, grid: IntegerGrid) -> Tensor:
    """The integers of ``fake_quantize``, in ``x``'s dtype."""
    before, _ = scales(amax.to(torch.float32), grid)
    return round_to(x.to(torch.float32) * before, grid).to(x.dtype)


def affine(x: Tensor, low: Tensor, high: Tensor, num_bits: int) -> Tensor:
    """``x`` on the grid of 2^num_bits steps from ``low`` to ``high``, shifted so that zero is on it."""
    low, high = low.to(torch.float32), high.to(torch.float32)
    step = (high - low) / torch.full_like(low, 2.0**num_bits - 1)
    least, most = -(2.0 ** (num_bits - 1)), 2.0 ** (num_bits - 1) - 1
    zero = (low / step).round() - least
    q = ((x.to(torch.float32) / step).round() - zero).clamp(least, most)
    return ((q + zero) * step).to(x.dtype)


def _power_above(d: Tensor) -> Tensor:
    """Exponent of the least power of two that is at least ``d``, put into -127..127."""
    significand, exponent = torch.frexp(d.to(torch.float64))
    exponent = exponent - (significand == 0.5).to(exponent.dtype)
    return torch.where(d > 0, exponent, -127).clamp(-127, 127)


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent in float32, written as the bits of a double because exp2 may be off by an ulp on other devices."""
    return viewed((exponent.long() + 1023) << 52, torch.float64).to(torch.float32)


def blocks(x: Tensor, grid: Grid, size: int, scale: str, amax: Tensor | None) -> Tensor:
    """``x`` in blocks of ``size`` along its last dimension, each under its own scale: amax, e8m0 or e4m3."""
    rows = x.to(torch.float32)
    length = x.shape[-1]
    padded = torch.nn.functional.pad(rows, (0, -length % size))
    cut = padded.unflatten(-1, (-1, size))
    largest = cut.abs().amax(-1, keepdim=True)
    if scale == "amax":
        y = fake_quantize(cut, largest, grid)
    elif scale == "e8m0":
        assert isinstance(grid, ElementGrid)
        usable = (largest > 0) & largest.isfinite()
        d = torch.where(usable, largest, 1.0) / torch.full_like(largest, grid.maximum)
        k = torch.where(usable, _power_above(d), torch.zeros((), dtype=torch.int32, device=x.device))
        y = round_to(cut * _power_of_two(-k), grid) * _power_of_two(k)
    else:
        assert isinstance(grid, ElementGrid) and amax is not None
        y = two_levels(cut, largest, grid, amax.to(torch.float32))
    return y.flatten(-2)[..., :length].to(x.dtype)


def second_scale(amax: Tensor, grid: Grid) -> float:
    """The tensor's scale over e4m3 block scales: amax over the largest element times the largest scale."""
    assert isinstance(grid, ElementGrid)
    return float(amax.to(torch.float32) / torch.full_like(amax, grid.maximum * _SCALE_MAX, dtype=torch.float32))


def two_levels(cut: Tensor, largest: Tensor, grid: ElementGrid, amax: Tensor) -> Tensor:
    """Block scales in e4m3 under one float32 scale for the tensor (NVFP4)."""
    second = amax / torch.full_like(amax, grid.maximum * _SCALE_MAX)
    first = round_to(largest / (second * grid.maximum), ELEMENTS[4, 3])
    effective = torch.where(first == 0, 1.0, first) * second
    y = round_to(cut / effective, grid) * effective
    nothing = (second == 0) & ~cut.isnan()
    return torch.where(nothing, torch.copysign(torch.zeros((), device=cut.device), cut), y)
