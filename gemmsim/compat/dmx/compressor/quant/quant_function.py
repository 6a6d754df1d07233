"""The functions of ``dmx.compressor.quant``: casts of a tensor, by the numbers of the formats. Results are float32."""

from __future__ import annotations

from torch import Tensor

from ...blocks import BlockFloatingPoint
from ...single import FixedPoint, FloatingPoint

__all__ = ["block_quantize", "fixed_point_quantize", "float_quantize"]


def fixed_point_quantize(
    x: Tensor, wl: int, fl: int, clamp: bool = True, symmetric: bool = False, rounding: str = "stochastic"
) -> Tensor:
    """The cast ``FixedPoint(wl, fl, clamp, symmetric, rounding).cast(x)``; wl = fl = -1 copies.

    Raises:
        ValueError: for wl = -1 alone, and for numbers that ``FixedPoint`` refuses (AssertionError too).

    Example:
        >>> from gemmsim.compat.dmx.compressor import quant
        >>> quant.fixed_point_quantize(torch.tensor([0.3, 100.0]), wl=8, fl=4, rounding="nearest")
        tensor([0.3125, 7.9375])
    """
    if wl == -1:
        if fl != -1:
            raise ValueError(f"fixed_point_quantize: wl=-1 with fl={fl}; allowed: fl=-1 there.\n  Give both, or none.")
        return x.detach().clone()
    return FixedPoint(wl, fl, clamp, symmetric, rounding).cast(x.detach())


def block_quantize(x: Tensor, wl: int, dim: int = -1, symmetric: bool = True, rounding: str = "stochastic") -> Tensor:
    """Integers of ``wl`` bits with an exponent for each index of ``dim``; -1: one for the tensor.

    Each is a block of ``BlockFloatingPoint(wl, .., symmetric, rounding)``, with its errors.

    Example:
        >>> from gemmsim.compat.dmx.compressor import quant
        >>> quant.block_quantize(torch.tensor([[1.0, 0.3], [8.0, 0.3]]), wl=4, dim=0, rounding="nearest")
        tensor([[1.0000, 0.2500],
                [8.0000, 0.0000]])
    """
    rows = x.detach().unsqueeze(0) if dim == -1 else x.detach().movedim(dim, 0)
    flat = rows.reshape(rows.shape[0], -1)
    blocks = BlockFloatingPoint(wl, max(flat.shape[1], 1), symmetric, rounding)
    found = (blocks.cast(flat, -1) if flat.numel() else flat.float()).reshape(rows.shape)
    return found[0] if dim == -1 else found.movedim(0, dim)


def float_quantize(
    x: Tensor, exp: int, man: int, bias: int | None = None, flush_subnormal: bool = True, rounding: str = "stochastic"
) -> Tensor:
    """The cast ``FloatingPoint(man, exp, bias, flush_subnormal, rounding=rounding).cast(x)``, with its errors.

    Example:
        >>> from gemmsim.compat.dmx.compressor import quant
        >>> quant.float_quantize(torch.tensor([0.7, 1000.0]), exp=4, man=3, rounding="nearest")
        tensor([  0.6875, 480.0000])
    """
    return FloatingPoint(man, exp, bias, flush_subnormal, rounding=rounding).cast(x.detach())
