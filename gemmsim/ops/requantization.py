"""Sums in a wide integer register as integers of a narrow format: multiply, shift, round, add a zero point, clamp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import FixedFormat, Format, FormatError, parse_scalar

from .arrays import takes_arrays
from .checks import check_tensor
from .errors import DTypeError, ShapeError, message
from .zero_points import integers_of

__all__ = ["fixed_point_multiplier", "requantize"]

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_METHODS = ("shift", "gemmlowp")


def _floor(x: Tensor, shift: Tensor) -> Tensor:
    return x >> shift


def _half_up(x: Tensor, shift: Tensor) -> Tensor:
    return (x + _half(shift)) >> shift


def _half_away(x: Tensor, shift: Tensor) -> Tensor:
    return x.sign() * _half_up(x.abs(), shift)


def _half_even(x: Tensor, shift: Tensor) -> Tensor:
    up = _half_up(x, shift)
    tie = (shift > 0) & ((x - ((x >> shift) << shift)) == _half(shift))
    return torch.where(tie & (up % 2 != 0), up - 1, up)


def _half(shift: Tensor) -> Tensor:
    """2^(shift - 1), 0 for no shift."""
    return (torch.ones_like(shift) << shift) >> 1


#: Name of a rounding -> x / 2^shift rounded so.
_ROUNDINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "half_up": _half_up,
    "rne": _half_even,
    "rna": _half_away,
    "rd": _floor,
    "ru": lambda x, shift: -((-x) >> shift),
    "rtz": lambda x, shift: x.sign() * (x.abs() >> shift),
}


@takes_arrays
def requantize(
    sums: Tensor,
    multiplier: int | Tensor,
    shift: int | Tensor,
    *,
    zero_point: int | Tensor = 0,
    out: str | Format | None = "int8",
    method: str = "shift",
    rounding: str | None = None,
) -> Tensor:
    """Sums times a fixed-point number, plus a zero point, clamped to a format: int64 of the shape of ``sums``.

    ``method="shift"``: ``R(sums * multiplier / 2^shift) + zero_point``, with one rounding R of the exact product.
    ``method="gemmlowp"``: ``D(H(sums * 2^left, multiplier), right) + zero_point``, as in TFLite's reference kernels,
    with ``left = max(-shift, 0)`` and ``right = max(shift, 0)``. H(x, m) is the high half of 2xm: ``x m / 2^31``
    rounded to nearest with halves upward, and 2^31 - 1 for ``x = m = -2^31``. D(x, s) is ``x / 2^s`` rounded to nearest
    with halves away from zero. Two roundings differ from one.

    Args:
        sums: integers, in a tensor of any dtype, channels last.
        multiplier, shift, zero_point: integers, or tensors that broadcast to ``sums``: (N,) is one for each output
            channel. Shifts are 0 to 62 ("shift") and -31 to 31 ("gemmlowp").
        out: integer format to which the result is clamped; None: not clamped.
        method: "shift" or "gemmlowp".
        rounding: of "shift": "half_up" (the default: half of the last place is added, and bits are dropped), "rne",
            "rna", "rd", "ru", "rtz" as in formats. "gemmlowp" takes none.

    Everything is computed in int64 without overflow. There are no NaN and no infinities; gradients do not pass.

    Raises:
        DTypeError: for what is not integers, products beyond 2^62, and with "gemmlowp" sums (shifted left) or
            multipliers beyond 32 bits.
        ShapeError: for tensors that do not broadcast to ``sums``.
        FormatError: for an ``out`` that is not an integer format.
        ValueError: for shifts out of range, another ``method`` or ``rounding``.

    Source: Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
    inference", CVPR 2018, section 2.2; gemmlowp, fixedpoint/fixedpoint.h (SaturatingRoundingDoublingHighMul,
    RoundingDivideByPOT).

    Example:
        >>> gs.requantize(torch.tensor([1000, -1000, 50000]), 77, 11, zero_point=-3)
        tensor([ 35, -41, 127])
        >>> gs.requantize(torch.tensor([1000, -1000]), *gs.fixed_point_multiplier(0.0375), method="gemmlowp")
        tensor([ 38, -38])
    """
    check_tensor("requantize", "sums", sums)
    x = integers_of("requantize", "sums", sums)
    m, s, z = (
        _of_channels(name, value, x)
        for name, value in (("multiplier", multiplier), ("shift", shift), ("zero_point", zero_point))
    )
    if method not in _METHODS:
        raise _refused(f"method={method!r}", " or ".join(map(repr, _METHODS)))
    if method == "gemmlowp":
        if rounding is not None:
            raise _refused(f"rounding={rounding!r} with method='gemmlowp'", "none, since its roundings are its own")
        scaled = _gemmlowp(x, m, s)
    else:
        scaled = _shifted(x, m, s, rounding or "half_up")
    result = scaled + z
    if out is None:
        return result
    fmt = _integer_format(out)
    return result.clamp(int(fmt.min), int(fmt.max))


def _shifted(x: Tensor, m: Tensor, s: Tensor, rounding: str) -> Tensor:
    if rounding not in _ROUNDINGS:
        raise _refused(f"rounding={rounding!r}", ", ".join(map(repr, _ROUNDINGS)))
    _check_range("shift", s, 0, 62)
    if x.numel() and m.numel():
        most = int(x.abs().max()) * int(m.abs().max())
        if most + (1 << max(int(s.max()) - 1, 0)) > 1 << 62:
            asked = f"requantize: products up to {most:,} with shifts up to {int(s.max())}"
            raise DTypeError(message(asked, "products and halves below 2^62", "Use a smaller multiplier and shift."))
    return _ROUNDINGS[rounding](x * m, s)


def _gemmlowp(x: Tensor, m: Tensor, s: Tensor) -> Tensor:
    _check_range("shift", s, -31, 31)
    left, right = (-s).clamp(min=0), s.clamp(min=0)
    for name, t in (("sums", x), ("multiplier", m)):
        _check_32("gemmlowp", name, t)
    x = x << left
    _check_32("gemmlowp", "sums shifted left", x)
    product = x * m  # below 2^62 in magnitude, or 2^62
    nudge = torch.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = torch.div(product + nudge, 1 << 31, rounding_mode="trunc")
    high = torch.where((x == _INT32_MIN) & (m == _INT32_MIN), _INT32_MAX, high)
    return _half_away(high, right)


def _check_32(method: str, name: str, x: Tensor) -> None:
    """``DTypeError`` for integers outside of 32 bits."""
    if x.numel() and not _INT32_MIN <= int(x.min()) <= int(x.max()) <= _INT32_MAX:
        asked = f"requantize: {name} from {int(x.min()):,} to {int(x.max()):,} with method={method!r}"
        raise DTypeError(
            message(asked, "32 bits, which are what it computes in", "Use method='shift', or scale first.")
        )


def _check_range(name: str, x: Tensor, low: int, high: int) -> None:
    """``ValueError`` for integers outside of a range."""
    if x.numel() and not low <= int(x.min()) <= int(x.max()) <= high:
        raise _refused(f"{name} from {int(x.min())} to {int(x.max())}", f"{low} to {high}")


def _refused(asked: str, allowed: str) -> ValueError:
    return ValueError(message(f"requantize: {asked}", allowed, "Use one of these."))


def _of_channels(name: str, value: int | Tensor, sums: Tensor) -> Tensor:
    """An integer, or a tensor of them that broadcasts to ``sums``, as int64."""
    if isinstance(value, bool) or not isinstance(value, (int, Tensor)):
        asked = f"requantize: {name}={value!r}"
        raise DTypeError(message(asked, "an integer or a tensor of them", f"See fixed_point_multiplier for {name}."))
    found = integers_of("requantize", name, torch.as_tensor(value, device=sums.device))
    try:
        fits = torch.broadcast_shapes(found.shape, sums.shape) == sums.shape
    except RuntimeError:
        fits = False
    if not fits:
        asked = f"requantize: {name} of shape {tuple(found.shape)} with sums {tuple(sums.shape)}"
        raise ShapeError(message(asked, "one integer, or one for each channel, channels last", "Reshape it."))
    return found


def _integer_format(out: str | Format) -> Any:
    """The integer format that ``out`` names; ``FormatError`` for another one."""
    fmt = parse_scalar(out) if isinstance(out, str) else out
    if not isinstance(fmt, FixedFormat) or fmt.frac or not fmt.clamp:
        raise FormatError(message(f"requantize: out={out}", "int8, uint8, int4, ...: integers of N bits", "Name one."))
    return fmt


def fixed_point_multiplier(scale: float | Tensor) -> Any:
    """``multiplier`` and ``shift`` for ``requantize(..., method="gemmlowp")``, as TFLite computes them.

    The function is TFLite's QuantizeMultiplier. ``scale`` is near ``multiplier / 2^31 / 2^shift`` with a multiplier
    from 2^30 to 2^31 - 1: 31 bits, rounded to nearest, halves away from zero. For a tensor both are int64 tensors of
    its shape, otherwise integers. A scale of 0, and one below 2^-32, give (0, 0).

    Raises:
        ValueError: for scales that are negative, NaN, infinite or beyond 2^31.

    Example:
        >>> gs.fixed_point_multiplier(0.0375)
        (1288490189, 4)
    """
    if isinstance(scale, Tensor):
        pairs = [_multiplier(float(one)) for one in scale.detach().double().flatten().tolist()]
        return tuple(torch.tensor([pair[i] for pair in pairs], dtype=torch.int64).reshape(scale.shape) for i in (0, 1))
    return _multiplier(float(scale))


def _multiplier(scale: float) -> tuple[int, int]:
    if not 0 <= scale < 2.0**31:
        asked = f"fixed_point_multiplier: scale {scale!r}"
        raise ValueError(message(asked, "0 to 2^31", "Take the sign, or the power of two, out of the scale."))
    fraction, exponent = math.frexp(scale)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = 1 << 30, exponent + 1
    return (multiplier, -exponent) if multiplier and exponent >= -31 else (0, 0)
