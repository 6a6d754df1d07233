"""The functions of ``dmx.compressor.quant``: casts of a tensor, by the numbers of the formats. Results are float32."""

from __future__ import annotations

from torch import Tensor

from ...blocks import BlockFloatingPoint
from ...single import FixedPoint, FloatingPoint

__all__ = ["block_quantize", "fixed_point_quantize", "float_quantize"]


def fixed_point_quantize(
    x: Tensor, wl: int, fl: int, clamp: bool = True, symmetric: bool = False, rounding: str = "stochastic"
) -> Tensor:
    """``FixedPoint(wl, fl, clamp, symmetric, rounding).cast(x)``; wl = fl = -1 copies.

    Raises:
        ValueError: for wl = -1 alone, and for other numbers than ``FixedPoint`` takes (AssertionError too).
    """
    if wl == -1:
        if fl != -1:
            raise ValueError(f"fixed_point_quantize: wl=-1 with fl={fl}; allowed: fl=-1 there.\n  Give both, or none.")
        return x.detach().clone()
    return FixedPoint(wl, fl, clamp, symmetric, rounding).cast(x.detach())


def block_quantize(x: Tensor, wl: int, dim: int = -1, symmetric: bool = True, rounding: str = "stochastic") -> Tensor:
    """Integers of ``wl`` bits with an exponent for each index of ``dim``; -1: one for the tensor.

    Each is a block of ``BlockFloatingPoint(wl, .., symmetric, rounding)``, whose errors these are.
    """
    rows = x.detach().unsqueeze(0) if dim == -1 else x.detach().movedim(dim, 0)
    flat = rows.reshape(rows.shape[0], -1)
    blocks = BlockFloatingPoint(wl, max(flat.shape[1], 1), symmetric, rounding)
    found = (blocks.cast(flat, -1) if flat.numel() else flat.float()).reshape(rows.shape)
    return found[0] if dim == -1 else found.movedim(0, dim)


def float_quantize(
    x: Tensor, exp: int, man: int, bias: int | None = None, flush_subnormal: bool = True, rounding: str = "stochastic"
) -> Tensor:
    """``FloatingPoint(man, exp, bias, flush_subnormal, rounding=rounding).cast(x)``, and its errors."""
    return FloatingPoint(man, exp, bias, flush_subnormal, rounding=rounding).cast(x.detach())
