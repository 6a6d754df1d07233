"""Names of formats that follow a pattern: eXmY, binaryKpP, fixed(), intN, float().

Everything here is lower case and without spaces; ``registry`` normalises what a user types and knows the aliases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from .any_format import Format
from .binary8 import Binary8Format, Binary8Policy
from .codebook import TIES, CodebookFormat, codebook
from .errors import FormatError, format_error, shown, suggestion
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .naming import MAX_EXPONENT_BITS, MAX_TRAILING_BITS, plain_specials
from .p3109 import binary_format
from .posit import posit
from .specials import Specials, parse_specials
from .supernormal import PowerTie, SupernormalFormat

__all__ = ["PATTERNS", "parse_pattern"]

#: The shapes of names, for messages.
PATTERNS = (
    "eXmY, ieee_eXmY, eXmYbB, eXmYfnuz (X 1..11, Y 0..52), binaryKpP[s|u][e|f] (K 3..16), "
    "fixed(bits,frac[,symmetric|,unbounded]), ufixed(bits,frac), intN, uintN, "
    "float(p=..,emin=..,emax=..[,specials=..][,unsigned]), supernormal(X,Y[,lower,upper][,saturate]), "
    "binary8(P[,unsigned][,policy]), bfp(bits,block_size), posit(n[,es]), codebook(values[|boundaries][|tie][|nan])"
)

# Six digits are more than any field may have, and keep int() away from its own limit.
_NUMBER = "([0-9]{1,6})"
_WIDTHS = re.compile(rf"(ieee_)?e{_NUMBER}m{_NUMBER}(?:b(-?[0-9]{{1,6}}))?(fnuz)?")
_BINARY = re.compile(rf"binary{_NUMBER}p{_NUMBER}([su]?)([ef]?)")
_INTEGER = re.compile(rf"(u?)int{_NUMBER}")
_CALL = re.compile(r"(float|u?fixed|supernormal|binary8|posit|codebook)\((.*)\)")


def parse_pattern(name: str) -> Format | None:
    """Format of a name with one of the shapes above, or None if ``name`` has none of them.

    Raises:
        FormatError: for a name of a known shape whose numbers describe no format.
    """
    if match := _WIDTHS.fullmatch(name):
        return _parse_widths(name, match)
    if match := _BINARY.fullmatch(name):
        return binary_format(int(match[1]), int(match[2]), signed=match[3] != "u", extended=match[4] != "f")
    if match := _INTEGER.fullmatch(name):
        return FixedFormat(int(match[2]), 0, signed=not match[1])
    if match := _CALL.fullmatch(name):
        fields = [field for field in match[2].split(",") if field]
        if match[1] in _CALLS:
            return _CALLS[match[1]](name, fields)
        return _parse_fixed(name, match[1], fields)
    return None


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
    bits, frac = (_integer(name, usage, field) for field in numbers)
    for flag in flags:
        if flag not in ("symmetric", "unbounded") or flags.count(flag) > 1:
            raise format_error(
                f"format {shown(name)}: {shown(flag)}", usage, suggestion(flag, ("symmetric", "unbounded"))
            )
    return FixedFormat(bits, frac, function == "fixed", "symmetric" in flags, "unbounded" not in flags)


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
    p, emin, emax = (_integer(name, usage, given[key]) for key in ("p", "emin", "emax"))
    specials = parse_specials(given.get("specials", "ieee"))
    return FloatFormat(p, emin, emax, specials, signed="unsigned" not in given)


def _parse_supernormal(name: str, fields: list[str]) -> SupernormalFormat:
    """supernormal(X,Y[,lower[,upper]][,flag...]); one number of exponent codes serves both ends."""
    usage = "supernormal(X,Y[,lower[,upper]][,saturate][,even_exponent][,within_float32])"
    numbers = [field for field in fields if field[:1].isdigit()]
    flags = fields[len(numbers) :]
    if not 2 <= len(numbers) <= 4:
        raise format_error(f"format {shown(name)}", usage, "Give exponent and trailing bits, as in 'supernormal(4,3)'.")
    known = ("saturate", str(PowerTie.EVEN_EXPONENT), "within_float32")
    _check_flags(name, usage, flags, known)
    widths = [_integer(name, usage, field) for field in numbers]
    lower, upper = (1, 1) if len(widths) == 2 else (widths[2], widths[-1])
    tie = PowerTie.EVEN_EXPONENT if known[1] in flags else PowerTie.AWAY
    return SupernormalFormat(widths[0], widths[1], lower, upper, known[0] in flags, tie, known[2] in flags)


def _parse_binary8(name: str, fields: list[str]) -> Binary8Format:
    """binary8(P[,unsigned][,policy])."""
    usage = "binary8(P[,unsigned][,saturate_infty|,saturate_maxfloat|,saturate_maxfloat2])"
    if not fields:
        raise format_error(f"format {shown(name)}", usage, "Give the precision, as in 'binary8(3)'.")
    flags = fields[1:]
    policies = [str(policy) for policy in Binary8Policy]
    _check_flags(name, usage, flags, ("unsigned", *policies))
    chosen = [flag for flag in flags if flag in policies] or [str(Binary8Policy.SATURATE_MAXFLOAT2)]
    if len(chosen) > 1:
        raise format_error(f"format {shown(name)}", "one overflow policy", "Drop the others.")
    return Binary8Format(_integer(name, usage, fields[0]), "unsigned" not in flags, policy=Binary8Policy(chosen[0]))


def _parse_posit(name: str, fields: list[str]) -> CodebookFormat:
    """posit(n[,es])."""
    usage = "posit(n[,es])"
    if not 1 <= len(fields) <= 2:
        raise format_error(f"format {name!r}", usage, "Give the width, as in 'posit(8,2)'.")
    return posit(*(_integer(name, usage, field) for field in fields))


def _parse_codebook(name: str, fields: list[str]) -> CodebookFormat:
    """codebook(values[|boundaries][|tie][|nan][|code=n]), lists separated by commas."""
    usage = "codebook(value,value,...[|boundary,...][|even|odd|low|high][|nan][|code=n])"
    numbers, *parts = ",".join(fields).split("|")
    given: dict[str, object] = {}
    for part in parts:
        key: str
        value: object
        if part in TIES:
            key, value = "tie", part
        elif part == "nan":
            key, value = "nan", True
        elif part.startswith("code="):
            key, value = "first_code", _integer(name, usage, part.removeprefix("code="))
        else:
            key, value = "boundaries", _reals(name, usage, part)
        if key in given:
            raise format_error(f"format {name!r}: {part!r}", usage, "Give each part once.")
        given[key] = value
    first_code = given.pop("first_code", 0)
    points = _reals(name, usage, numbers)
    found = codebook(points, **given)  # type: ignore[arg-type]
    if list(points) != sorted(points):
        raise format_error(f"format {name!r}", "values in ascending order", "Sort them.")
    return replace(found, first_code=first_code)  # type: ignore[arg-type]


def _reals(name: str, usage: str, text: str) -> tuple[float, ...]:
    found = []
    for part in text.split(","):
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", part) is None:
            raise format_error(f"format {name!r}: {part!r} is no number", usage, "Write decimal numbers.")
        found.append(float(part))
    return tuple(found)


_CALLS: dict[str, Callable[[str, list[str]], Format]] = {
    "float": _parse_float,
    "supernormal": _parse_supernormal,
    "binary8": _parse_binary8,
    "posit": _parse_posit,
    "codebook": _parse_codebook,
}


def _check_flags(name: str, usage: str, flags: list[str], known: tuple[str, ...]) -> None:
    for flag in flags:
        if flag not in known or flags.count(flag) > 1:
            raise format_error(
                f"format {shown(name)}: {shown(flag)}", usage, suggestion(flag, known) or "Give each flag once."
            )


def _integer(name: str, usage: str, text: str) -> int:
    # int() also takes "1_0" and non-ASCII digits, which would not print back.
    if re.fullmatch(r"[+-]?[0-9]{1,6}", text) is None:
        raise FormatError(
            f"format {shown(name)}: {shown(text)} is not an integer of up to six digits; allowed: {usage}.\n"
            "  Write it in decimal digits."
        )
    return int(text)
