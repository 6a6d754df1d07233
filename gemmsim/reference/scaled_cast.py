"""Scaled casts by definition: one float32 rounding for each step, in Fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..formats import E2M1, E2M3, E3M2, E4M3, E5M2, FP32, Cast, FixedFormat, FloatFormat, Overflow, Rounding, Specials
from .rounding import round_value

__all__ = ["scaled_affine", "scaled_block", "scaled_element", "scaled_integer"]

_F32 = Cast(FP32)
_TINY = 2.0**-24

#: Elements by (exponent bits, fraction bits); 8 stands for integers up to +-127.
_ELEMENTS: dict[object, FloatFormat | FixedFormat] = {
    (4, 3): E4M3,
    (5, 2): E5M2,
    (3, 2): E3M2,
    (2, 3): E2M3,
    (2, 1): E2M1,
    (3, 0): FloatFormat(p=1, emin=-2, emax=4, specials=Specials.NONE),
    (1, 2): FixedFormat(4, 1, symmetric=True),
    (0, 3): FixedFormat(4, 0, symmetric=True),
    8: FixedFormat(8, 0, symmetric=True),
}


def _f32(x: float | Fraction, negative: bool) -> float:
    """``x`` in float32; a zero has the sign given."""
    return math.copysign(abs(round_value(x, _F32)), -1.0 if negative else 1.0)


def _finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


def _times(a: float, b: float) -> float:
    if not _finite(a, b):
        return a * b
    return _f32(Fraction(a) * Fraction(b), math.copysign(1, a) * math.copysign(1, b) < 0)


def _over(a: float, b: float) -> float:
    negative = math.copysign(1, a) * math.copysign(1, b) < 0
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, -1.0 if negative else 1.0)
    if not _finite(a, b):
        return a / b
    return _f32(Fraction(a) / Fraction(b), negative)


def _plus(a: float, b: float) -> float:
    if not _finite(a, b):
        return a + b
    total = Fraction(a) + Fraction(b)
    return _f32(total, total < 0) if total else a + b


def _whole(x: float) -> float:
    """Nearest whole number, ties to even."""
    return math.copysign(float(round(x)), x) if math.isfinite(x) else x


def _between(x: float, low: float, high: float) -> float:
    return x if math.isnan(x) else low if x < low else high if x > high else x


def scaled_integer(
    x: float, amax: float, num_bits: int = 8, unsigned: bool = False, narrow_range: bool = True
) -> tuple[float, float, float]:
    """``x`` quantised and scaled back, its integer, and the scale; ``x`` and ``amax`` are float32 numbers.

    NaN stays NaN, infinities clamp, the sign of zero is kept.

    Example:
        >>> gs.reference.scaled_integer(0.5, amax=1.0)
        (0.5039370059967041, 64.0, 127.0)
    """
    high = float(2 ** (num_bits - 1 + int(unsigned)) - 1)
    low = 0.0 if unsigned else -high if narrow_range else -high - 1
    scale = 1.0 if amax <= _TINY else _over(high, amax)
    q = _between(_whole(_times(x, 0.0 if amax <= _TINY else scale)), low, high)
    return _over(q, scale), q, scale


def _element(x: float, bits: object, ties: str = "even") -> float:
    """``x`` rounded to an element format; saturates."""
    if math.isnan(x):
        return x
    away = ties == "away" or bits == (3, 0)
    fmt = _ELEMENTS[bits]
    y = abs(round_value(abs(x), Cast(fmt, Rounding.RNA if away else Rounding.RNE, Overflow.CLAMP)))
    if ties == "toward_zero":
        below = abs(round_value(abs(x), Cast(fmt, Rounding.RTZ, Overflow.CLAMP)))
        above = abs(round_value(abs(x), Cast(fmt, Rounding.RU, Overflow.CLAMP)))
        y = below if _finite(x) and Fraction(abs(x)) * 2 == Fraction(below) + Fraction(above) else y
    return math.copysign(y, x)


def scaled_element(x: float, amax: float | None, bits: tuple[int, int] = (4, 3), ties: str = "even") -> float:
    """``x`` as a small float under the scale max * (1 / amax), scaled back; without amax there is no scale.

    Example:
        >>> gs.reference.scaled_element(0.3, None), gs.reference.scaled_element(0.3, amax=1.0)
        (0.3125, 0.2857142984867096)
    """
    if amax is None:
        return _element(x, bits, ties)
    scale = _times(_over(1.0, 1.0 if amax <= _TINY else amax), _ELEMENTS[bits].max)
    return _times(_element(_times(x, scale), bits, ties), _over(1.0, scale))


def scaled_affine(x: float, low: float, high: float, num_bits: int = 8) -> float:
    """``x`` on the grid of 2^num_bits steps from ``low`` to ``high``, with zero on it.

    Example:
        >>> gs.reference.scaled_affine(0.3, -1.0, 2.0, num_bits=4)
        0.4000000059604645
    """
    step = _over(_plus(high, -low), 2.0**num_bits - 1)
    least, most = -(2.0 ** (num_bits - 1)), 2.0 ** (num_bits - 1) - 1
    zero = _plus(_whole(_over(low, step)), -least)
    q = _between(_plus(_whole(_over(x, step)), -zero), least, most)
    return _times(_plus(q, zero), step)


def _power_above(d: float) -> int:
    """Least k with 2^k >= d, put into -127..127."""
    k = -127
    while k < 127 and Fraction(2) ** k < Fraction(d):
        k += 1
    return k


def scaled_block(
    values: Sequence[float], bits: object, scale: str, amax: float | None = None, ties: str = "even"
) -> list[float]:
    """One block of float32 numbers under its own scale: "amax", "e8m0" (rounded up) or "e4m3" (under ``amax``).

    ``bits``: those of an integer with its unsigned and narrow_range, as a tuple of three, or a key of an element
    format.

    Example:
        >>> gs.reference.scaled_block([0.1, 0.2, -0.4], (4, False, True), "amax")
        [0.11428571492433548, 0.22857142984867096, -0.4000000059604645]
    """
    largest = math.nan if any(map(math.isnan, values)) else max(map(abs, values))
    if isinstance(bits, tuple) and len(bits) == 3:
        return [scaled_integer(x, largest, *bits)[0] for x in values]
    fmt = _ELEMENTS[bits]
    if scale == "amax":
        assert isinstance(bits, tuple)
        return [scaled_element(x, largest, bits, ties) for x in values]
    if scale == "e8m0":
        k = _power_above(_over(largest, fmt.max)) if _finite(largest) and largest > 0 else 0
        return [_times(_element(_times(x, 2.0**-k), bits, ties), 2.0**k) for x in values]
    assert amax is not None
    second = _over(amax, fmt.max * E4M3.max)
    if second == 0:
        return [x if math.isnan(x) else math.copysign(0.0, x) for x in values]
    first = _element(_over(largest, _times(second, fmt.max)), (4, 3))
    whole = _times(1.0 if first == 0 else first, second)
    return [_times(_element(_over(x, whole), bits, ties), whole) for x in values]
