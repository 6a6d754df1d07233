"""Canonical names of float formats and what shorthand names have in common; ``text`` reads them back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .rounding import Rounding
from .specials import Specials

if TYPE_CHECKING:
    from .float_format import FloatFormat

__all__ = [
    "MAX_EXPONENT_BITS",
    "MAX_TRAILING_BITS",
    "PLAIN_SPECIALS",
    "ROUNDING_LETTERS",
    "default_bias",
    "float_name",
    "is_shorthand",
    "plain_specials",
    "rounding_letter",
]

_SHORTHAND = re.compile(r"\s*(XP\[|FP\[|BFP\[|SBFP<|MXFP[0-9]+\[|MXINT[0-9]+\{)", re.IGNORECASE)

#: Letters of roundings in d-Matrix's shorthand.
ROUNDING_LETTERS = {"U": Rounding.RU, "D": Rounding.RD, "N": Rounding.RNE, "S": Rounding.SR}

#: Bounds of X and Y in eXmY: e11m52 is float64.
MAX_EXPONENT_BITS, MAX_TRAILING_BITS = 11, 52

#: (X, Y) of the eXmY names that are not IEEE-like (OCP OFP8 rev. 1.0, OCP MX rev. 1.0); the e5m2 of OCP is.
PLAIN_SPECIALS = {
    (4, 3): Specials.NAN_ONLY,
    (3, 2): Specials.NONE,
    (2, 3): Specials.NONE,
    (2, 1): Specials.NONE,
    (8, 0): Specials.SCALE,
}


def plain_specials(exponent_bits: int, trailing_bits: int) -> Specials:
    """Specials that the name eXmY implies."""
    return PLAIN_SPECIALS.get((exponent_bits, trailing_bits), Specials.IEEE)


def default_bias(exponent_bits: int, specials: Specials) -> int:
    """Bias of a format whose name does not give one: 2^(w-1), minus 1 except for fnuz and P3109."""
    middle = 1 << (exponent_bits - 1)
    return middle if specials is Specials.FNUZ or specials.is_p3109 else middle - 1


def float_name(fmt: FloatFormat) -> str:
    """Shortest name that ``parse`` turns back into ``fmt``."""
    name = _short_name(fmt)
    return (_long_name(fmt) if name is None else name) + ("" if fmt.subnormals else "/ftz")


def _short_name(fmt: FloatFormat) -> str | None:
    """eXmY or binaryKpP name without "/ftz", or None if there is none."""
    width, trailing = fmt.exponent_bits, fmt.trailing_bits
    bias = default_bias(width, fmt.specials) if width else 0
    if fmt.specials.is_p3109:
        if fmt.bias != bias:
            return None
        domain = "e" if fmt.specials is Specials.P3109_EXTENDED else "f"
        return f"binary{fmt.bits}p{fmt.p}{'s' if fmt.signed else 'u'}{domain}"
    plain = plain_specials(width, trailing)
    named = fmt.fills_exponent_field and 1 <= width <= MAX_EXPONENT_BITS and trailing <= MAX_TRAILING_BITS
    if not named or fmt.signed is (fmt.specials is Specials.SCALE):
        return None
    widths = f"e{width}m{trailing}" + ("" if fmt.bias == bias else f"b{fmt.bias}")
    if fmt.specials is Specials.FNUZ:
        return f"{widths}fnuz"
    if fmt.specials is plain:
        return widths
    return f"ieee_{widths}" if fmt.specials is Specials.IEEE else None


def _long_name(fmt: FloatFormat) -> str:
    """The fields themselves."""
    fields = [f"p={fmt.p}", f"emin={fmt.emin}", f"emax={fmt.emax}"]
    fields += [] if fmt.specials is Specials.IEEE else [f"specials={fmt.specials.value}"]
    fields += [] if fmt.signed else ["unsigned"]
    return f"float({','.join(fields)})"


def is_shorthand(text: str) -> bool:
    """Whether ``text`` starts as d-Matrix's shorthand names do."""
    return _SHORTHAND.match(text) is not None


def rounding_letter(rounding: Rounding) -> tuple[str, str]:
    """Letter of a rounding in the shorthand, and what follows a slash where it has none."""
    found = next((letter for letter, known in ROUNDING_LETTERS.items() if known == rounding), None)
    return ("N", f"/{rounding}") if found is None else (found, "")
