"""d-Matrix's shorthand names: XP[8,+4](CSN), FP[1|4|3,7](_N), BFP[8|8]{64}(SN), SBFP<..><..>{16}, MXFP8[E4M3]{32}."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeAlias

from .block_float import BlockFloatFormat, Sharing, is_block_float_name, parse_block_float
from .canonical_names import ROUNDING_LETTERS, is_shorthand
from .cast import Cast
from .errors import FormatError, format_error, shown
from .finite_float import FiniteFloatFormat
from .fixed_format import FixedFormat
from .rounding import Rounding, parse_rounding
from .scaled_block import ScaledBlockFormat
from .scaled_cast import ScaledCast, is_scaled_cast_name, parse_scaled_cast

__all__ = [
    "TENSOR_FORMATS",
    "TensorFormat",
    "is_tensor_format_name",
    "parse_shorthand",
    "parse_tensor_format",
    "patterns",
]

#: Formats of whole tensors: blocks share something, or rounding is no ``Cast``. New kinds join here, in both lines.
TensorFormat: TypeAlias = BlockFloatFormat | FiniteFloatFormat | ScaledBlockFormat | ScaledCast
TENSOR_FORMATS = (BlockFloatFormat, FiniteFloatFormat, ScaledBlockFormat, ScaledCast)

_USAGE = (
    "XP[bits,frac](CSN), FP[sign|exponent|fraction,bias](FN), BFP[bits|8]{block}(SN), SBFP<XP..><FP..>{block}, "
    "MXFPbits[ExMy]{block}, MXINTbits{block}; blocks also {block,dim}; roundings U D N S"
)
_INT = "([+-]?[0-9]{1,9})"
_BLOCK = r"\{([+-]?[0-9]{1,9})(?:,([+-]?[0-9]{1,3}))?\}"


def patterns(
    sign: str = "[01]", flag: str = "[A-Z_]", rounding: str = "[UDNS]", mxfp_end: str = ""
) -> dict[str, re.Pattern[str]]:
    """Names by the letters they start with, in the order that these are tried.

    Args:
        sign, flag, rounding: what may stand for the sign bits of FP, for clamping and its like, and for a rounding.
        mxfp_end: what may follow an MXFP name.
    """
    fixed = rf"XP\[{_INT},{_INT}\]\(({flag})({flag})({rounding})\)"
    floating = rf"FP\[({sign})\|{_INT}\|{_INT},{_INT}\]\(({flag})({rounding})\)"
    texts = {
        "XP": fixed,
        "FP": floating,
        "BFP": rf"BFP\[{_INT}\|8\]{_BLOCK}\(({flag})({rounding})\)",
        "SBFP": rf"SBFP<({fixed})><({floating})>{_BLOCK}",
        "MXFP": rf"MXFP([0-9]{{1,3}})\[E([0-9]{{1,3}})M([0-9]{{1,3}})\]{_BLOCK}{mxfp_end}",
        "MXINT": rf"MXINT([0-9]{{1,3}}){_BLOCK}",
    }
    return {kind: re.compile(text) for kind, text in texts.items()}


_PATTERNS = patterns()


def is_tensor_format_name(text: str) -> bool:
    """Whether ``text`` starts as the names of ``TENSOR_FORMATS`` do. XP does not: it is a cast of single numbers.

    Example:
        >>> gs.formats.is_tensor_format_name("BFP[8|8]{64}(SN)"), gs.formats.is_tensor_format_name("e4m3")
        (True, False)
    """
    if is_scaled_cast_name(text) or (is_block_float_name(text) and not is_shorthand(text)):
        return True
    return is_shorthand(text) and not text.lstrip()[:2].upper() == "XP"


def parse_tensor_format(text: str | TensorFormat) -> TensorFormat:
    """The format of tensors named by ``text``; a format is returned as it is.

    Raises:
        FormatError: for other text.

    Example:
        >>> gs.formats.parse_tensor_format("BFP[8|8]{64}(SN)").bits_per_value
        8.125
    """
    if isinstance(text, TENSOR_FORMATS):
        return text
    if isinstance(text, str) and is_scaled_cast_name(text):
        return parse_scaled_cast(text)
    if not isinstance(text, str) or not is_shorthand(text):
        return parse_block_float(text)
    found = parse_shorthand(text)
    if isinstance(found, Cast):
        raise format_error(f"format {shown(text)}", "formats of tensors", "Use parse_cast.")
    return found


@lru_cache(maxsize=4096)
def parse_shorthand(text: str) -> TensorFormat | Cast:
    """What a shorthand name means; XP is a ``Cast`` to fixed point. Case and spaces do not matter.

    A block of one BFP element is a float of eight exponent bits. "/rounding" after a name replaces its letter.

    Raises:
        FormatError: for text outside the grammar, and numbers that describe no format.
    """
    base, *options = re.sub(r"\s+", "", text).split("/")
    base = base.upper()
    kind = next(key for key in _PATTERNS if base.startswith(key))
    match = _PATTERNS[kind].fullmatch(base)
    if match is None or len(options) > 1:
        raise FormatError(f"format {shown(text)}; allowed: {_USAGE}.\n  Check brackets and letters.")
    groups = match.groups()
    rounding = parse_rounding(options[0]) if options else None
    if kind == "XP":
        return _fixed(groups, rounding)
    if kind == "FP":
        return _float(groups, rounding)
    if kind == "BFP":
        return _block_float(
            int(groups[0]), groups[1], groups[2], groups[3] == "S", rounding or ROUNDING_LETTERS[groups[4]]
        )
    if kind == "MXINT":
        return _block_float(int(groups[0]), groups[1], groups[2], True, rounding or Rounding.RNE)
    dim = -1 if groups[-1] is None else int(groups[-1])
    if kind == "SBFP":
        scaler = _float(groups[7:13], None)
        return ScaledBlockFormat(_fixed(groups[1:6], rounding), scaler, int(groups[-2]), dim)
    bits, exponent, trailing = map(int, groups[:3])
    if bits != 1 + exponent + trailing:
        raise format_error(
            f"format {shown(text)}", f"MXFP{1 + exponent + trailing} for E{exponent}M{trailing}", "Fix one."
        )
    element = FiniteFloatFormat(exponent, trailing, rounding=rounding or Rounding.RNE)
    return ScaledBlockFormat(element, None, int(groups[3]), dim)


def _fixed(groups: tuple[Any, ...], rounding: Rounding | None) -> Cast:
    bits, frac, clamp, symmetric, letter = groups
    clamps = clamp == "C"
    fmt = FixedFormat(int(bits), int(frac), symmetric=clamps and symmetric == "S", clamp=clamps)
    return Cast(fmt, rounding or ROUNDING_LETTERS[letter])


def _float(groups: tuple[Any, ...], rounding: Rounding | None) -> FiniteFloatFormat:
    sign, exponent, trailing, bias, flush, letter = groups
    fields = int(exponent), int(trailing), int(bias), flush == "F", sign == "0"
    return FiniteFloatFormat(*fields, rounding=rounding or ROUNDING_LETTERS[letter])


def _block_float(bits: int, block: str, dim: str | None, symmetric: bool, rounding: Rounding) -> TensorFormat:
    if not 2 <= bits <= 25:
        raise format_error(f"BFP of {bits} bits", "2 to 25 bits", "Use bfp(bits,block_size) for others.")
    if int(block) == 1:
        return FiniteFloatFormat(8, bits - 2, 127, rounding=rounding)
    along = -1 if dim is None else int(dim)
    return BlockFloatFormat(
        bits, int(block), along, Sharing.BLOCK, symmetric=symmetric, keep_infinity=True, rounding=rounding
    )
