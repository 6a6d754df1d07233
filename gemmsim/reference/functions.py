"""Elementary functions rounded correctly: enclosed between two fractions until both round to the same number.

The enclosures come from series in Python's integers, at twice the precision each time (Ziv's strategy). The functions
are transcendental: at numbers other than those treated as exact they never are a number of the format or a midpoint
(Hermite, Lindemann), so that the loop ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from ..formats import Cast
from .dyadic import NAN
from .rounding import round_value

__all__ = ["apply_function"]

#: Lower and upper end.
Interval = tuple[Fraction, Fraction]


def _cut(x: Fraction, bits: int) -> Fraction:
    """``x`` cut to about ``bits`` significant bits, toward minus infinity."""
    if not x:
        return x
    shift = bits - (abs(x.numerator).bit_length() - x.denominator.bit_length())
    scale = Fraction(2) ** shift
    return Fraction(math.floor(x * scale)) / scale


def _widen(value: Fraction, error: Fraction) -> Interval:
    return value - error, value + error


def _below_one(side: int, bits: int) -> Interval:
    """Around a number of magnitude just below one, by 2**-bits to 2**-bits / 2."""
    ends = [side * (1 - Fraction(1, 1 << n)) for n in (bits, bits + 1)]
    return min(ends), max(ends)


def _exp_small(x: Fraction, bits: int) -> Fraction:
    """e**x for |x| <= 1/2, within 2**-bits: Taylor's series in units of 2**-(bits + 20)."""
    unit = bits + 20
    argument = math.floor(x * (1 << unit))
    total = term = 1 << unit
    n = 1
    while term:
        term = (term * argument >> unit) // n
        if term == -1:
            break
        total += term
        n += 1
    return Fraction(total, 1 << unit)


def _exp(x: Fraction, bits: int) -> Interval:
    """e**x by halving the argument and squaring the result."""
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 8)
    work = bits + 2 * halvings + 30 + int(abs(x))
    value = _exp_small(x / 2**halvings, work)
    for _ in range(halvings):
        value = _cut(value * value, work + 10)
    return _widen(value, value / (1 << bits))


def _log(x: Fraction, bits: int) -> Interval:
    """ln x by the series of atanh; x is brought near one by powers of two."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    if k:
        low, high = _log(x / Fraction(2) ** k, bits + 12)
        two = _log_near_one(Fraction(2), bits + 20)
        value = (low + high) / 2 + k * two
        return _widen(value, Fraction(1, 1 << (bits - 2)))
    return _widen(_log_near_one(x, bits), Fraction(1, 1 << bits))


def _log_near_one(x: Fraction, bits: int) -> Fraction:
    z = (x - 1) / (x + 1)
    unit = bits + 30
    argument = math.floor(z * (1 << unit))
    square = argument * argument >> unit
    total, power, n = argument, argument, 1
    while power not in (0, -1):
        power = power * square >> unit
        n += 2
        total += power // n
    return Fraction(2 * total, 1 << unit)


def _pi(bits: int) -> Fraction:
    """Machin's formula."""

    def arctan_inverse(n: int) -> int:
        power = total = (1 << (bits + 20)) // n
        k = 1
        while power:
            power //= -n * n
            k += 2
            total += power // k
            if power == -1:
                break
        return total

    return Fraction(4 * (4 * arctan_inverse(5) - arctan_inverse(239)), 1 << (bits + 20))


def _root(x: Fraction, bits: int) -> Fraction:
    scaled = math.floor(x * (1 << 2 * bits))
    return Fraction(isqrt(scaled), 1 << bits)


def _erf(x: Fraction, bits: int) -> Interval:
    """erf(x / sqrt 2): Maclaurin's alternating series, with as many more bits as its largest term has."""
    if abs(x) > 60:
        side = 1 if x > 0 else -1
        return _below_one(side, 800)
    work = bits + int(x * x) + 60
    total, power, n = Fraction(0), x, 0
    limit = abs(x) / (1 << work)
    while n < x * x or abs(power) > limit:
        total += _cut(power / (2 * n + 1), work + 40)
        n += 1
        power = _cut(-power * x * x / (2 * n), work + 40)
    value = total * _root(2 / _pi(work), work)
    return _widen(value, abs(x) / (1 << (bits + 4)))


def _density(x: Fraction, bits: int) -> Interval:
    if abs(x) > 200:  # below 2**-20000: as this number to every rounding
        tiny = Fraction(1 if x > 0 else -1, 1 << 9000)
        return tiny, tiny
    low, high = _exp(-x * x / 2, bits + 10)
    factor = _root(1 / (2 * _pi(bits + 20)), bits + 20)
    value = x * (low + high) / 2 * factor
    return _widen(value, abs(value) / (1 << bits))


def _tanh(x: Fraction, bits: int) -> Interval:
    more = bits + max(0, x.denominator.bit_length() - x.numerator.bit_length()) + 20
    if abs(x) > 1000:
        side = 1 if x > 0 else -1
        return _below_one(side, 2000)
    low, high = _exp(2 * x, more)
    e = (low + high) / 2
    value = (e - 1) / (e + 1)
    return _widen(value, abs(value) / (1 << bits))


def _tanh_cubic(x: Fraction, bits: int) -> Interval:
    more = bits + 40
    inner = (x + Fraction(44715, 10**6) * x**3) * _root(2 / _pi(more), more)
    low, high = _tanh(inner, more)
    value = (low + high) / 2
    return _widen(value, abs(value) / (1 << bits)) if abs(x) < 1000 else (low, high)


def _sigmoid(x: Fraction, bits: int) -> Interval:
    if abs(x) > 5000:
        tiny = Fraction(1, 1 << 5000)
        return (1 - tiny, 1 - tiny / 2) if x > 0 else (tiny / 2, tiny)
    low, high = _exp(-x, bits + 10)
    value = 1 / (1 + (low + high) / 2)
    return _widen(value, min(value, 1 - value) / (1 << bits))


def _clipped_exp(x: Fraction, bits: int) -> Interval:
    if abs(x) > 5000:
        huge = Fraction(1 << 5000)
        return (huge, 2 * huge) if x > 0 else (1 / huge / 2, 1 / huge)
    return _exp(x, bits)


_FUNCTIONS: dict[str, Callable[[Fraction, int], Interval]] = {
    "exp": _clipped_exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "density": _density,
    "tanh_cubic": _tanh_cubic,
    "sigmoid": _sigmoid,
}

_INF = math.inf
#: Values at -inf, -0, +0, +inf.
_AT_EDGES: dict[str, tuple[float, float, float, float]] = {
    "exp": (0.0, 1.0, 1.0, _INF),
    "log": (NAN, -_INF, -_INF, _INF),
    "tanh": (-1.0, -0.0, 0.0, 1.0),
    "erf": (-1.0, -0.0, 0.0, 1.0),
    "density": (-0.0, -0.0, 0.0, 0.0),
    "tanh_cubic": (-1.0, -0.0, 0.0, 1.0),
    "sigmoid": (0.0, 0.5, 0.5, 1.0),
}


def _rounded(enclose: Callable[[int], Interval], cast: Cast, R: int | None) -> float:
    bits = 100
    while True:
        low, high = (round_value(end, cast, R) for end in enclose(bits))
        if low == high and math.copysign(1.0, low) == math.copysign(1.0, high):
            return low
        if low != low and high != high:
            return low
        bits *= 2
        assert bits < 1 << 16, "an exact case that is not treated as one"


def _log_add(a: float, b: float, cast: Cast, R: int | None) -> float:
    if math.isinf(a) or math.isinf(b):
        return round_value(max(a, b), cast, R)
    high, low = Fraction(max(a, b)), Fraction(min(a, b))

    def enclose(bits: int) -> Interval:
        if high - low > 3000:
            return high + Fraction(1, 1 << 5000), high + Fraction(1, 1 << 4000)
        ends = _exp(low - high, bits)
        logs = [_log(1 + end, bits + int(high - low) * 2 + 10) for end in ends]
        return high + logs[0][0], high + logs[1][1]

    return _rounded(enclose, cast, R)


def apply_function(function: str, a: float, b: float, cast: Cast, R: int | None = None) -> float:
    """``function`` of ``a`` (or of ``a`` and ``b``: log_add), rounded once.

    Functions: exp, log, log_add, tanh, erf, density, sigmoid, tanh_cubic.

    erf means erf(a / sqrt 2), density means a exp(-a^2 / 2) / sqrt(2 pi), tanh_cubic means tanh(sqrt(2 / pi) (a +
    0.044715 a^3)), log_add means ln(e^a + e^b). NaN gives NaN; infinities and zeros give the limits.

    Example:
        >>> gs.reference.apply_function("exp", 1.0, 0.0, gs.formats.parse_cast("bf16"))
        2.71875
    """
    if math.isnan(a) or (function == "log_add" and math.isnan(b)):
        return NAN
    if function == "log_add":
        return _log_add(a, b, cast, R)
    edges = _AT_EDGES[function]
    if math.isinf(a):
        return round_value(edges[3 if a > 0 else 0], cast, R)
    if a == 0:
        return round_value(edges[1 if math.copysign(1.0, a) < 0 else 2], cast, R)
    if function == "log" and a < 0:
        return NAN
    if function == "log" and a == 1:
        return round_value(0.0, cast, R)
    x = Fraction(a)
    return _rounded(lambda bits: _FUNCTIONS[function](x, bits), cast, R)
