"""Argument checks and exact text shared by the format classes."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

from .errors import FormatError, format_error

__all__ = [
    "ENUMERABLE_BITS",
    "as_fraction",
    "check_bool",
    "check_enumerable",
    "check_int",
    "exact_float",
    "number_text",
]

#: Largest code width that ``values()`` and ``codes()`` list: 2**24 Python floats are about half a gigabyte.
ENUMERABLE_BITS = 24


def check_int(owner: object, name: str, value: object, low: int, high: int) -> int:
    """``value`` as ``int``; ``FormatError`` unless it is an integer (not a bool) with ``low <= value <= high``."""
    allowed = f"an integer from {low} to {high}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise format_error(f"{owner}: {name}={value!r}", allowed, f"Give {name} as {allowed}.")
    return number


def check_bool(owner: object, name: str, value: object) -> bool:
    """``value``; ``FormatError`` unless it is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise format_error(f"{owner}: {name}={value!r}", "True or False", f"Give {name} as a bool.")
    return value


def check_enumerable(owner: object, bits: int) -> None:
    """``FormatError`` if a list of all codes of ``bits`` bits would not fit in ordinary memory."""
    if bits > ENUMERABLE_BITS:
        raise format_error(
            f"{owner}: listing all values of a {bits}-bit format",
            f"formats of up to {ENUMERABLE_BITS} bits",
            "Call decode(code) on the codes of interest.",
        )


def as_fraction(owner: object, value: float | Fraction) -> Fraction:
    """Exact value of a finite ``value``; ``FormatError`` for what is not a real number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise format_error(
                f"{owner}: value {value!r} of type {type(value).__name__}",
                "a real number",
                "Give a float, int or Fraction.",
            ) from None
    return Fraction(value)


def exact_float(owner: object, significand: int, exponent: int) -> float:
    """``significand * 2**exponent`` as a float; ``FormatError`` if float64 does not hold it exactly."""
    try:
        value = math.ldexp(significand, exponent)
        # ldexp overflows loudly but underflows silently.
        exact = exponent >= -1074 or Fraction(value) == Fraction(significand, 1 << -exponent)
    except OverflowError:
        exact = False
    if not exact:
        raise FormatError(
            f"{owner}: the value {significand} * 2**{exponent} is outside the range of float64; "
            "allowed: values that float64 holds exactly.\n"
            "  Use decode_exact(code) or max_fraction, which give Fractions."
        )
    return value


def number_text(value: Fraction) -> str:
    """``value`` for people: a decimal when short, with the power of two beside it when it is one."""
    if value == 0:
        return "0"
    numerator, denominator = abs(value.numerator), value.denominator
    decimal = _decimal(value)
    is_power = numerator & (numerator - 1) == 0 and denominator & (denominator - 1) == 0
    if is_power and (not decimal or not 1 <= abs(value) < 1024):
        power = f"{'-' if value < 0 else ''}2^{numerator.bit_length() - denominator.bit_length()}"
        return f"{power} = {decimal}" if decimal else power
    if decimal:
        return decimal
    # Dyadic, beyond float64: odd significand times a power of two.
    trailing = (numerator & -numerator).bit_length() - 1
    odd = value.numerator >> trailing
    return f"{odd} * 2^{trailing - (denominator.bit_length() - 1)}"


def _decimal(value: Fraction) -> str:
    """Shortest decimal that float64 reads back as ``value``, or an empty string if float64 does not hold it."""
    try:
        nearest = float(value)
    except OverflowError:
        return ""
    return repr(nearest).removesuffix(".0") if Fraction(nearest) == value else ""
