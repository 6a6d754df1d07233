"""Codes of float formats to values and back, exactly.

A magnitude is a code without its sign bit. Magnitudes of finite values count upward from zero (from 2**emin in scale
formats): value = T * 2**(emin-t) if E = 0, else (2^t + T) * 2**(emin-t+E-1), for magnitude = E * 2^t + T, t = p - 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from .checks import as_fraction, check_int, exact_float, number_text
from .errors import FormatError, format_error
from .specials import Specials

if TYPE_CHECKING:
    from .float_format import FloatFormat

__all__ = [
    "codes",
    "decode",
    "decode_exact",
    "encode_or_none",
    "finite_float",
    "finite_fraction",
    "nan_codes",
    "neighbour_text",
    "values",
]


def finite_significand(fmt: FloatFormat, magnitude: int) -> tuple[int, int]:
    """Integers (s, q) with value s * 2**q of a finite magnitude."""
    if fmt.specials is Specials.SCALE:
        return 1, fmt.emin + magnitude
    implicit = 1 << fmt.trailing_bits
    field, trailing = magnitude >> fmt.trailing_bits, magnitude & (implicit - 1)
    if field == 0:
        return trailing, fmt.quantum_exponent
    return implicit + trailing, fmt.quantum_exponent + field - 1


def finite_fraction(fmt: FloatFormat, magnitude: int) -> Fraction:
    """Exact value of a finite magnitude."""
    significand, exponent = finite_significand(fmt, magnitude)
    return Fraction(significand) * Fraction(2) ** exponent


def finite_float(fmt: FloatFormat, magnitude: int) -> float:
    """Value of a finite magnitude; ``FormatError`` if float64 does not hold it."""
    return exact_float(fmt, *finite_significand(fmt, magnitude))


def decode(fmt: FloatFormat, code: int) -> float:
    """Value of ``code``; see ``FloatFormat.decode``."""
    negative, magnitude = _split(fmt, code)
    value = finite_float(fmt, magnitude) if _is_finite(fmt, code, magnitude) else _special(fmt, code, magnitude)
    return -value if negative else value


def decode_exact(fmt: FloatFormat, code: int) -> Fraction | None:
    """Finite value of ``code`` or None; see ``FloatFormat.decode_exact``."""
    negative, magnitude = _split(fmt, code)
    if not _is_finite(fmt, code, magnitude):
        _special(fmt, code, magnitude)
        return None
    value = finite_fraction(fmt, magnitude)
    return -value if negative else value


def encode_or_none(fmt: FloatFormat, value: float | Fraction) -> int | None:
    """Code of ``value``, or None if the format does not hold it; see ``FloatFormat.encode``."""
    negative_allowed = fmt.signed
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return _canonical_nan(fmt) if fmt.has_nan else None
        magnitude, negative = infinity_magnitude(fmt), value < 0
    else:
        exact = as_fraction(fmt, value)
        magnitude, negative = _finite_magnitude(fmt, abs(exact)), exact < 0
    if magnitude is None or (negative and not negative_allowed):
        return None
    minus_zero = fmt.has_negative_zero and isinstance(value, float) and math.copysign(1.0, value) < 0
    return magnitude | _sign_bit(fmt) if negative or minus_zero else magnitude


def codes(fmt: FloatFormat) -> list[int]:
    """All codes in use, ascending."""
    infinity = infinity_magnitude(fmt)
    upward = [*_finite_magnitudes(fmt), *([] if infinity is None else [infinity]), *_nan_magnitudes(fmt)]
    if not fmt.signed:
        return upward
    sign = _sign_bit(fmt)
    # Where there is no -0 its code is NaN, so it is in use all the same.
    return upward + [sign | magnitude for magnitude in upward]


def values(fmt: FloatFormat) -> list[float]:
    """All finite values, ascending, zero once."""
    upward = [finite_float(fmt, magnitude) for magnitude in _finite_magnitudes(fmt)]
    if not fmt.signed:
        return upward
    return [-value for value in reversed(upward) if value] + upward


def nan_codes(fmt: FloatFormat) -> list[int]:
    """All codes of NaN, ascending."""
    magnitudes = list(_nan_magnitudes(fmt))
    if not fmt.signed:
        return magnitudes
    sign = _sign_bit(fmt)
    at_minus_zero = [] if fmt.has_negative_zero else [sign]
    return magnitudes + at_minus_zero + [sign | magnitude for magnitude in magnitudes]


def infinity_magnitude(fmt: FloatFormat) -> int | None:
    """Magnitude of the codes of the infinities, or None."""
    if fmt.specials is Specials.IEEE:
        return ((1 << fmt.exponent_bits) - 1) << fmt.trailing_bits
    return fmt.max_code + 1 if fmt.specials is Specials.P3109_EXTENDED else None


def neighbour_text(fmt: FloatFormat, value: float | Fraction) -> str:
    """What an exact encoding of ``value`` could have been: the range, or the values next to it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "finite values" if not fmt.has_inf else "finite values and infinities of its sign"
    exact = as_fraction(fmt, value)
    if not fmt.min_fraction <= exact <= fmt.max_fraction or (exact == 0 and not fmt.has_zero):
        low = fmt.min_fraction
        return f"{number_text(low)} to {number_text(fmt.max_fraction)}"
    below, above = _around(fmt, abs(exact))
    near = [-above, -below] if exact < 0 else [below, above]
    return f"its neighbours {number_text(near[0])} and {number_text(near[1])}"


def _around(fmt: FloatFormat, value: Fraction) -> tuple[Fraction, Fraction]:
    """Finite magnitudes next to ``value``, which lies strictly between two of them."""
    low, high = 0, fmt.max_code
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if finite_fraction(fmt, middle) <= value else (low, middle)
    first_normal = 1 << fmt.trailing_bits
    if not fmt.subnormals and low < first_normal:
        low, high = 0, first_normal
    return finite_fraction(fmt, low), finite_fraction(fmt, high)


def _sign_bit(fmt: FloatFormat) -> int:
    return 1 << (fmt.bits - 1)


def _split(fmt: FloatFormat, code: int) -> tuple[bool, int]:
    """Sign and magnitude of a code."""
    code = check_int(fmt, "code", code, 0, (1 << fmt.bits) - 1)
    if not fmt.signed:
        return False, code
    sign = _sign_bit(fmt)
    return code >= sign, code & (sign - 1)


def _is_finite(fmt: FloatFormat, code: int, magnitude: int) -> bool:
    """Whether a code is a finite value; ``FormatError`` for the subnormals of a format without them."""
    if not fmt.subnormals and 0 < magnitude < 1 << fmt.trailing_bits:
        raise _unused(fmt, code)
    nan_at_minus_zero = magnitude == 0 and code != 0 and not fmt.has_negative_zero
    return magnitude <= fmt.max_code and not nan_at_minus_zero


def _special(fmt: FloatFormat, code: int, magnitude: int) -> float:
    """Infinity or NaN of a magnitude that is not finite; ``FormatError`` if it is unused."""
    if magnitude == 0 or magnitude in _nan_magnitudes(fmt):
        return math.nan
    if magnitude == infinity_magnitude(fmt):
        return math.inf
    raise _unused(fmt, code)


def _unused(fmt: FloatFormat, code: int) -> FormatError:
    return format_error(
        f"{fmt}: code {code:#x} is not used",
        f"the codes that codes() lists, finite ones up to {fmt.max_code:#x} beside the sign bit",
        "Check that the codes were written in this format and not in a wider one, or one with subnormals.",
    )


def _finite_magnitudes(fmt: FloatFormat) -> list[int]:
    if fmt.subnormals:
        return list(range(fmt.max_code + 1))
    return [0, *range(1 << fmt.trailing_bits, fmt.max_code + 1)]


def _nan_magnitudes(fmt: FloatFormat) -> range:
    """Magnitudes that are NaN for either sign."""
    last = (1 << (fmt.bits - int(fmt.signed))) - 1
    if fmt.specials is Specials.IEEE:
        infinity = ((1 << fmt.exponent_bits) - 1) << fmt.trailing_bits
        return range(infinity + 1, last + 1)
    top = fmt.specials in (Specials.NAN_ONLY, Specials.SCALE) or (fmt.specials.is_p3109 and not fmt.signed)
    return range(last, last + 1) if top else range(0)


def _canonical_nan(fmt: FloatFormat) -> int:
    """Positive quiet NaN of IEEE-like formats (IEEE 754-2019, 6.2.1), else the first NaN."""
    if fmt.specials is Specials.IEEE:
        return (((1 << fmt.exponent_bits) - 1) << fmt.trailing_bits) | 1 << (fmt.trailing_bits - 1)
    magnitudes = _nan_magnitudes(fmt)
    return magnitudes[0] if magnitudes else _sign_bit(fmt)


def _finite_magnitude(fmt: FloatFormat, value: Fraction) -> int | None:
    """Magnitude of a non-negative ``value``, or None if it is not a value of the format."""
    if value == 0:
        return 0 if fmt.has_zero else None
    numerator, denominator = value.numerator, value.denominator
    if denominator & (denominator - 1):
        return None
    scale = denominator.bit_length() - 1
    exponent = numerator.bit_length() - 1 - scale
    if exponent > fmt.emax or (exponent < fmt.emin and not fmt.has_subnormals):
        return None
    binade = max(exponent, fmt.emin)
    shift = binade - fmt.trailing_bits + scale
    if shift > 0 and numerator & ((1 << shift) - 1):
        return None
    significand = numerator >> shift if shift > 0 else numerator << -shift
    # The implicit bit of a normal number carries into the exponent field.
    magnitude = significand + ((binade - fmt.emin) << fmt.trailing_bits)
    magnitude -= 0 if fmt.has_zero else 1
    return magnitude if magnitude <= fmt.max_code else None
