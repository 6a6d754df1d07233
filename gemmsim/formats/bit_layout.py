"""How the codes of a float format are laid out: from (p, emin, emax, specials, signed) to widths and largest code.

The non-negative codes of every format count its values upward: code = E * 2^t + T with t = p - 1 trailing bits, and
E = 0 is the subnormal binade. The exponent field has the fewest bits that hold emax and the special codes; codes
between the largest finite one and the special ones, if any, are unused.
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import format_error
from .specials import Specials

__all__ = ["Layout", "layout_of", "top_exponent"]

#: P3109 v4.0 defines formats for K > 2; its published tables stop at 16.
P3109_MIN_K, P3109_MAX_K = 3, 16


class Layout(NamedTuple):
    """Widths and the largest finite code of a float format."""

    exponent_bits: int
    max_code: int
    #: Whether every exponent field is used, so that the widths alone determine emax.
    full: bool


def top_exponent(exponent_bits: int, p: int, emin: int, specials: Specials, signed: bool) -> int:
    """emax of the format whose exponent field of ``exponent_bits`` bits is fully used."""
    field = (1 << exponent_bits) - 1
    if specials is Specials.SCALE:
        return emin + field - 1
    if specials.is_p3109:
        field = _p3109_max_code(exponent_bits, p, specials, signed) >> (p - 1)
    elif specials is Specials.IEEE or (specials is Specials.NAN_ONLY and p == 1):
        field -= 1
    return emin + field - 1


def layout_of(p: int, emin: int, emax: int, specials: Specials, signed: bool) -> Layout:
    """Layout with the narrowest exponent field; ``FormatError`` if the specials leave no room for these exponents."""
    if specials.is_p3109:
        return _p3109_layout(p, emin, emax, specials, signed)
    if specials is Specials.SCALE:
        max_code = emax - emin
        width = (max_code + 1).bit_length()
        return Layout(width, max_code, max_code + 2 == 1 << width)
    top_field = emax - emin + 1
    width = top_field.bit_length()
    while emin + top_field - 1 > top_exponent(width, p, emin, specials, signed):
        width += 1
    full = emax == top_exponent(width, p, emin, specials, signed)
    max_code = ((top_field + 1) << (p - 1)) - 1
    if specials is Specials.NAN_ONLY and max_code == (1 << (width + p - 1)) - 1:
        max_code -= 1
    return Layout(width, max_code, full)


def _p3109_max_code(exponent_bits: int, p: int, specials: Specials, signed: bool) -> int:
    return (1 << (exponent_bits + p - 1)) - 1 - specials.p3109_reserved(signed)


def _p3109_layout(p: int, emin: int, emax: int, specials: Specials, signed: bool) -> Layout:
    """A P3109 format is a whole K-bit code space, so emax must be the one of some K."""
    tops = {}
    for k in range(P3109_MIN_K, P3109_MAX_K + 1):
        width = k - p if signed else k - p + 1
        if width >= 1:
            tops[width] = top_exponent(width, p, emin, specials, signed)
    for width, top in tops.items():
        if top == emax:
            return Layout(width, _p3109_max_code(width, p, specials, signed), True)
    allowed = f"emax in {sorted(tops.values())}" if tops else f"p up to {P3109_MAX_K - int(signed)}"
    raise format_error(
        f"FloatFormat: emax={emax} with p={p}, emin={emin} and specials {specials}",
        f"{allowed}, since P3109 formats use all their K = {P3109_MIN_K} to {P3109_MAX_K} bits",
        "Use binary_format(k, p, ...) or a name such as 'binary8p3'.",
    )
