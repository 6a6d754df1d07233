"""QPyTorch's functions: one rounding of a tensor, without a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.compat.dmx import departures
from gemmsim.formats import BlockFloatFormat, Cast, FiniteFloatFormat, FixedFormat, Rounding, Sharing, TensorFormat

from .number import BlockFloatingPoint, FixedPoint, FloatingPoint, Number

__all__ = ["block_quantize", "fixed_point_quantize", "float_quantize", "round_to", "target_of"]


def float_quantize(
    x: Tensor,
    exp: int,
    man: int,
    rounding: str = "stochastic",
    *,
    bug_compatible: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """``x`` in floats of ``exp`` exponent and ``man`` trailing bits, in its dtype; ties away from zero.

    Every code is a number: values beyond the largest, including infinities, become the largest (infinity with eight
    exponent bits). NaN stays; zero is +0. ``rounding``: "nearest", or "stochastic" with random bits from ``generator``
    or torch's own. ``bug_compatible``: as QPyTorch, with its defects, in float32: docs/reference/compat/qtorch.md.

    Raises:
        AssertionError: for other roundings.
        ValueError: for numbers out of range, and stochastic rounding with ``bug_compatible``.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.float_quantize(torch.tensor([0.7, 1000.0]), exp=4, man=3, rounding="nearest")
        tensor([  0.6875, 480.0000])
    """
    _check(x, rounding, bug_compatible)
    fmt = FiniteFloatFormat(exp, man, rounding=_rounding(rounding, Rounding.RNA))
    if not bug_compatible:
        return _rounded(x, fmt, generator)
    if man == 23:
        raise ValueError(
            "float_quantize: man=23 with bug_compatible; allowed: 22 or fewer.\n  Leave bug_compatible out."
        )
    y = departures.floating_point(x.detach().float(), man, exp, (1 << (exp - 1)) - 1, False, departures.AWAY)
    return y.to(x.dtype)


def fixed_point_quantize(
    x: Tensor,
    wl: int,
    fl: int,
    clamp: bool = True,
    symmetric: bool = False,
    rounding: str = "stochastic",
    *,
    bug_compatible: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """``x`` in fixed point of ``wl`` bits, ``fl`` of them binary places, in its dtype; ties to even.

    ``clamp``: values beyond the range, including infinities, become the nearest bound; ``symmetric`` leaves out the
    lowest integer. NaN stays; zero is +0. wl = fl = -1 copies ``x``. Rounding, random bits and ``bug_compatible`` are
    as in ``float_quantize``.

    Raises:
        ValueError: for ``wl=-1`` with another ``fl``; otherwise as ``float_quantize``.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.fixed_point_quantize(torch.tensor([0.3, 100.0]), wl=8, fl=4, rounding="nearest")
        tensor([0.3125, 7.9375])
    """
    _check(x, rounding, bug_compatible)
    if wl == -1:
        if fl != -1:
            raise ValueError(f"fixed_point_quantize: wl=-1 with fl={fl}; allowed: fl=-1 there.\n  Give both, or none.")
        return x.detach().clone()
    fmt = FixedFormat(wl, fl, symmetric=clamp and symmetric, clamp=clamp)
    if not bug_compatible:
        return _rounded(x, Cast(fmt, _rounding(rounding, Rounding.RNE)), generator)
    return departures.fixed_point(x.detach().float(), wl, fl, clamp, symmetric, rounding).to(x.dtype)


def block_quantize(
    x: Tensor,
    wl: int,
    dim: int = -1,
    rounding: str = "stochastic",
    *,
    bug_compatible: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """``x`` in integers of ``wl`` bits with an exponent for each index of ``dim``, in its dtype; ties to +infinity.

    ``dim`` -1: one exponent for the tensor. It is that of the largest finite magnitude, which may be clamped itself.
    NaN and infinities stay; zero is +0. Rounding, random bits and ``bug_compatible`` are as in ``float_quantize``.

    Raises:
        ValueError: for ``wl`` outside 2 to 22 with ``bug_compatible``; otherwise as ``float_quantize``.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.block_quantize(torch.tensor([[1.0, 0.3], [8.0, 0.3]]), wl=4, dim=0, rounding="nearest")
        tensor([[1.0000, 0.2500],
                [8.0000, 0.0000]])
    """
    _check(x, rounding, bug_compatible)
    fmt = target_of(BlockFloatingPoint(wl, dim), rounding)
    if not bug_compatible or not x.numel():
        return _rounded(x, fmt, generator)
    if not 2 <= wl <= 22:
        raise ValueError(f"block_quantize: wl={wl} with bug_compatible; allowed: 2 to 22.\n  Leave bug_compatible out.")
    front = x.detach().float().unsqueeze(0) if dim == -1 else x.detach().float().movedim(dim, 0)
    rows = departures.shared_exponent(front.reshape(front.shape[0], -1), wl, departures.AWAY).reshape(front.shape)
    return (rows[0] if dim == -1 else rows.movedim(0, dim)).to(x.dtype)


def round_to(x: Tensor, number: Number, rounding: str, bug_compatible: bool = False) -> Tensor:
    """``x`` in ``number``."""
    if isinstance(number, FloatingPoint):
        return float_quantize(x, number.exp, number.man, rounding, bug_compatible=bug_compatible)
    if isinstance(number, BlockFloatingPoint):
        return block_quantize(x, number.wl, number.dim, rounding, bug_compatible=bug_compatible)
    fields = number.wl, number.fl, number.clamp, number.symmetric
    return fixed_point_quantize(x, *fields, rounding=rounding, bug_compatible=bug_compatible)


def target_of(number: Number, rounding: str) -> Cast | TensorFormat:
    """What ``round_to`` rounds to, as a value of ``gemmsim.formats``.

    Raises:
        AssertionError: for other roundings.
        TypeError: for what is no number format.
    """
    _check_rounding(rounding)
    if not isinstance(number, (FixedPoint, FloatingPoint, BlockFloatingPoint)):
        raise TypeError(
            f"number is a {type(number).__name__}; allowed: FixedPoint, FloatingPoint, BlockFloatingPoint, or None.\n"
            "  Try FloatingPoint(5, 2)."
        )
    if isinstance(number, FloatingPoint):
        return FiniteFloatFormat(number.exp, number.man, rounding=_rounding(rounding, Rounding.RNA))
    if isinstance(number, FixedPoint):
        fmt = FixedFormat(number.wl, number.fl, symmetric=number.clamp and number.symmetric, clamp=number.clamp)
        return Cast(fmt, _rounding(rounding, Rounding.RNE))
    sharing, dim = (Sharing.TENSOR, 0) if number.dim == -1 else (Sharing.INDEX, number.dim)
    nearest = _rounding(rounding, Rounding.RNU)
    return BlockFloatFormat(number.wl, dim=dim, sharing=sharing, keep_infinity=True, rounding=nearest)


def _rounding(rounding: str, nearest: Rounding) -> Rounding:
    return nearest if rounding == "nearest" else Rounding.SR


def _check_rounding(rounding: str) -> None:
    if rounding not in ("nearest", "stochastic"):
        raise AssertionError(f"rounding={rounding!r}; allowed: 'nearest', 'stochastic'.\n  Try 'nearest'.")


def _check(x: Tensor, rounding: str, bug_compatible: bool) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x is {kind}; allowed: float tensors.\n  Use x.float().")
    _check_rounding(rounding)
    if bug_compatible and rounding == "stochastic":
        raise ValueError(
            "bug_compatible=True with rounding='stochastic'; allowed: 'nearest': QPyTorch's draws cannot be repeated.\n"
            "  Leave bug_compatible out."
        )


def _rounded(x: Tensor, target: Cast | TensorFormat, generator: torch.Generator | None) -> Tensor:
    seed = None
    if generator is not None and target.is_stochastic:
        seed = int(torch.randint(0, 2**63 - 1, (), generator=generator))
    return gs.quantize(x.detach(), target, seed=seed)
