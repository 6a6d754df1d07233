"""Names of formats that follow a pattern: eXmY, binaryKpP, fixed(), intN, float(), and what kinds of formats register.

Everything here is lower case and without spaces; ``registry`` normalises what a user types and knows the aliases.
"""

from __future__ import annotations

import re

from .any_format import Format
from .canonical_names import MAX_EXPONENT_BITS, MAX_TRAILING_BITS, plain_specials
from .constructor_syntax import CALLS, call, integer
from .errors import AsWritten, format_error, shown, suggestion
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .p3109 import binary_format
from .posit import posit  # noqa: F401  # its file registers its names, as the kinds of Format do
from .specials import Specials, parse_specials

__all__ = ["parse_pattern"]

# Six digits are more than any field may have, and keep int() away from its own limit.
_NUMBER = "([0-9]{1,6})"
_WIDTHS = re.compile(rf"(ieee_)?e{_NUMBER}m{_NUMBER}(?:b(-?[0-9]{{1,6}}))?(fnuz)?")
_BINARY = re.compile(rf"binary{_NUMBER}p{_NUMBER}([su]?)([ef]?)")
_INTEGER = re.compile(rf"(u?)int{_NUMBER}")
_CALL = re.compile(r"([a-z][a-z0-9_]*)\((.*)\)")


def parse_pattern(written: str) -> Format | None:
    """Format of a name with one of the shapes above, or None if ``written`` has none of them.

    Blanks and case do not matter; messages show the name as it is written.

    Raises:
        FormatError: for a name of a known shape whose numbers describe no format.
    """
    name = AsWritten(written)
    if match := _WIDTHS.fullmatch(name):
        return _parse_widths(name, match)
    if match := _BINARY.fullmatch(name):
        return binary_format(int(match[1]), int(match[2]), signed=match[3] != "u", extended=match[4] != "f")
    if match := _INTEGER.fullmatch(name):
        return FixedFormat(int(match[2]), 0, signed=not match[1])
    if match := _CALL.fullmatch(name):
        fields: list[str] = [AsWritten(field) for field in _inside(written).split(",") if field.strip()]
        if match[1] in ("fixed", "ufixed"):
            return _parse_fixed(name, match[1], fields)
        if match[1] in CALLS:
            found: Format = CALLS[match[1]](name, fields)
            return found
    return None


def _inside(written: str) -> str:
    """What a call has in its brackets, as it is written."""
    return written[written.index("(") + 1 : written.rindex(")")]


def _parse_widths(name: str, match: re.Match[str]) -> FloatFormat:
    """eXmY with its prefix, bias and suffix."""
    width, trailing = int(match[2]), int(match[3])
    if not (1 <= width <= MAX_EXPONENT_BITS and trailing <= MAX_TRAILING_BITS):
        raise format_error(
            f"format {shown(name)}",
            f"eXmY with X from 1 to {MAX_EXPONENT_BITS} and Y from 0 to {MAX_TRAILING_BITS}",
            "float64 is e11m52; wider formats have no carrier.",
        )
    if match[1] and match[5]:
        raise format_error(f"format {shown(name)}", "either the prefix ieee_ or the suffix fnuz", "Drop one of them.")
    specials = plain_specials(width, trailing)
    specials = Specials.IEEE if match[1] else Specials.FNUZ if match[5] else specials
    bias = int(match[4]) if match[4] is not None else None
    return FloatFormat.from_widths(width, trailing, specials, bias=bias, signed=specials is not Specials.SCALE)


def _parse_fixed(name: str, function: str, fields: list[str]) -> FixedFormat:
    """fixed(bits,frac[,flag...]) and ufixed()."""
    usage = f"{function}(bits,frac[,symmetric|,unbounded])"
    numbers, flags = fields[:2], fields[2:]
    if len(numbers) != 2:
        raise format_error(f"format {shown(name)}", usage, "Give the width and the fraction bits, as in 'fixed(8,4)'.")
    bits, frac = (integer(name, usage, field) for field in numbers)
    for flag in flags:
        if flag not in ("symmetric", "unbounded") or flags.count(flag) > 1:
            raise format_error(
                f"format {shown(name)}: {shown(flag)}", usage, suggestion(flag, ("symmetric", "unbounded"))
            )
    return FixedFormat(bits, frac, function == "fixed", "symmetric" in flags, "unbounded" not in flags)


@call("float(p=..,emin=..,emax=..[,specials=..][,unsigned])")
def _parse_float(name: str, fields: list[str]) -> FloatFormat:
    """float(p=..,emin=..,emax=..[,specials=..][,unsigned])."""
    usage = "float(p=..,emin=..,emax=..[,specials=..][,unsigned])"
    given: dict[str, str] = {}
    for field in fields:
        key, _, value = field.partition("=")
        if (
            key not in ("p", "emin", "emax", "specials", "unsigned")
            or key in given
            or (key == "unsigned") == bool(value)
        ):
            hint = suggestion(key, ("p", "emin", "emax", "specials", "unsigned"))
            raise format_error(f"format {shown(name)}: field {shown(field)}", usage, f"{hint}Give each field once.")
        given[key] = value
    missing = [key for key in ("p", "emin", "emax") if key not in given]
    if missing:
        raise format_error(f"format {shown(name)}: missing {', '.join(missing)}", usage, "Give p, emin and emax.")
    p, emin, emax = (integer(name, usage, given[key]) for key in ("p", "emin", "emax"))
    specials = parse_specials(given.get("specials", "ieee"))
    return FloatFormat(p, emin, emax, specials, signed="unsigned" not in given)
