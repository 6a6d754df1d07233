"""Exact numbers for one computation: integers that count a common power of two, and four specials.

A *unit exponent* u is chosen once for a computation so that every number in it is a multiple of 2**u. A ``Value`` is
then an ``int`` n, meaning n * 2**u (0 is +0), or one of the floats -0.0, inf, -inf and NaN, which have no integer.
Sums and products of integers are exact in Python, so nothing here rounds, except ``to_float`` where it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

__all__ = ["NAN", "Value", "add", "lowest_exponent", "multiply", "to_float", "to_units", "with_sticky_bit"]

Value = int | float

#: The one NaN that results are: quiet, positive, no payload.
NAN = math.nan


def lowest_exponent(numbers: Iterable[float], default: int = 0) -> int:
    """Largest u with every finite one of ``numbers`` a multiple of 2**u; ``default`` if all are zero or not finite."""
    exponents = [-_denominator_bits(x) + _trailing_zeros(x) for x in numbers if x and math.isfinite(x)]
    return min(exponents, default=default)


def to_units(x: float, unit: int) -> Value:
    """``x`` as a ``Value`` in units of 2**unit, of which it must be a multiple."""
    if not math.isfinite(x):
        return NAN if math.isnan(x) else x
    if x == 0:
        return -0.0 if math.copysign(1.0, x) < 0 else 0
    numerator, denominator = x.as_integer_ratio()
    shift = -unit - (denominator.bit_length() - 1)
    return numerator << shift if shift >= 0 else numerator >> -shift


def to_float(x: Value, unit: int) -> float:
    """``x`` as a float: exact where float64 holds it, else to nearest even, infinity beyond its range."""
    if type(x) is not int:
        return float(x)
    try:
        # Both operations of Python's integers are correctly rounded.
        return float(x << unit) if unit >= 0 else x / (1 << -unit)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def with_sticky_bit(x: Fraction, unit: int) -> int:
    """``x`` cut toward zero to a multiple of 2**(unit+1), its last bit then set if anything was cut.

    In units of 2**unit. Any rounding that looks only at whole multiples of 2**(unit+2) below ``x`` and at whether
    something lies below them takes the result as it would take ``x``.
    """
    scaled = abs(x) / Fraction(2) ** (unit + 1)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    magnitude = 2 * whole + (rest != 0)
    return -magnitude if x < 0 else magnitude


def add(x: Value, y: Value) -> Value:
    """Exact sum. Zero sums are -0 only if both addends are -0; inf + -inf is NaN."""
    if type(x) is int and type(y) is int:
        return x + y
    if x != x or y != y:
        return NAN
    if x in _INFINITIES:
        return NAN if y in _INFINITIES and y != x else x
    if y in _INFINITIES:
        return y
    # One of them is -0.0, which changes nothing; both: y is -0.0.
    return y if type(x) is float else x


def multiply(x: Value, y: Value) -> Value:
    """Exact product, in units that are the product of the operands' units. 0 * inf is NaN; zeros carry the sign."""
    if type(x) is int and type(y) is int:
        return x * y or (-0.0 if (x < 0) != (y < 0) else 0)
    if x != x or y != y:
        return NAN
    negative = _is_negative(x) != _is_negative(y)
    if x in _INFINITIES or y in _INFINITIES:
        return NAN if x == 0 or y == 0 else (-math.inf if negative else math.inf)
    return -0.0 if negative else 0


_INFINITIES = (math.inf, -math.inf)


def _is_negative(x: Value) -> bool:
    return x < 0 if type(x) is int else math.copysign(1.0, x) < 0


def _denominator_bits(x: float) -> int:
    return x.as_integer_ratio()[1].bit_length() - 1


def _trailing_zeros(x: float) -> int:
    numerator = x.as_integer_ratio()[0]
    return (numerator & -numerator).bit_length() - 1
