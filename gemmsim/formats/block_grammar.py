"""Names of block formats: mxfp8_e4m3, mxint8, nvfp4, mx(element,scale), each with options after slashes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from .any_format import Format
from .block import BlockFormat, BlockMode, ScaleRule
from .errors import FormatError, format_error, shown, suggestion
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .named import E2M1, E2M3, E3M2, E4M3, E5M2, E8M0
from .rounding import Rounding, is_rounding_name, parse_rounding

__all__ = ["BLOCK_NAMES", "block_name", "is_block_name", "parse_block"]


def _integer(bits: int) -> FixedFormat:
    return FixedFormat(bits, bits - 2, symmetric=True)


#: Block formats with a short name; the first name of a format is the canonical one.
BLOCK_NAMES: dict[str, BlockFormat] = {
    "mxfp8_e4m3": BlockFormat(E4M3),
    "mxfp8_e5m2": BlockFormat(E5M2),
    "mxfp6_e3m2": BlockFormat(E3M2),
    "mxfp6_e2m3": BlockFormat(E2M3),
    "mxfp4": BlockFormat(E2M1),
    "mxint8": BlockFormat(_integer(8)),
    "mxint4": BlockFormat(_integer(4)),
    "mxint2": BlockFormat(_integer(2)),
    "nvfp4": BlockFormat(E2M1, 16, E4M3, ScaleRule.NEAREST),
    "mxfp8": BlockFormat(E4M3),
    "mxfp4_e2m1": BlockFormat(E2M1),
}
_BASES: list[tuple[str, BlockFormat]] = []
for _key, _format in BLOCK_NAMES.items():
    if all(_format != known for _, known in _BASES):
        _BASES.append((_key, _format))

_CALL = re.compile(r"mx\((.*)\)")
_MODES = {"torchao": BlockMode.OCP, **{str(mode): mode for mode in BlockMode}}
_RULES = {str(rule): rule for rule in ScaleRule if rule is not ScaleRule.NEAREST}
_OPTIONS = "bN (block size), floor ceil even rceil, rne rna rtz, tensor, flush, or a mode: " + ", ".join(_MODES)


def is_block_name(text: str) -> bool:
    """Whether ``text`` starts as names of block formats do, so that ``parse_block`` has the best message for it."""
    return re.match(r"\s*(mx|nvfp)", text, re.IGNORECASE) is not None


def block_name(fmt: BlockFormat) -> str:
    """Shortest name that ``parse_block`` turns back into ``fmt``."""
    scale = "" if fmt.scale == E8M0 else f",{fmt.scale}"
    general = (f"mx({fmt.element}{scale})", _general(fmt.element, fmt.scale))
    same = (entry for entry in _BASES if (fmt.element, fmt.scale) == (entry[1].element, entry[1].scale))
    name, base = next(same, general)
    options = [
        f"b{fmt.block_size}" if fmt.block_size != base.block_size else "",
        str(fmt.rule) if fmt.rule is not base.rule else "",
        str(fmt.rounding) if fmt.rounding != base.rounding else "",
        "tensor" if fmt.tensor_scale else "",
        str(fmt.mode) if fmt.mode is not base.mode else "",
        "flush" if fmt.flush else "",
    ]
    return "/".join([name, *(option for option in options if option)])


def parse_block(text: str | BlockFormat) -> BlockFormat:
    """Block format named by ``text``; ``parse_block(str(f)) == f``, and a block format is returned as it is.

    Raises:
        FormatError: for an unknown name or option (the nearest ones are suggested), a repeated option, or options that
            do not go together.
    """
    if isinstance(text, BlockFormat):
        return text
    if not isinstance(text, str):
        raise format_error(f"block format {shown(text)}", "a name or a BlockFormat", "Try 'mxfp8_e4m3'.")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> BlockFormat:
    base, *options = re.sub(r"\s+", "", text).lower().split("/")
    fields: dict[str, Any] = {}
    for option in options:
        field, value = _option(text, option)
        if field in fields:
            raise format_error(f"block format {shown(text)}: {shown(option)}", f"one {field}", "Drop one of them.")
        fields[field] = value
    return replace(_parse_base(text, base), **fields)


def _parse_base(text: str, base: str) -> BlockFormat:
    if base in BLOCK_NAMES:
        return BLOCK_NAMES[base]
    if match := _CALL.fullmatch(base):
        element, scale = _split(match[1])
        fmt = _scalar(element)
        scaling = _scalar(scale) if scale else E8M0
        if not isinstance(scaling, FloatFormat):
            raise format_error(f"block format {shown(text)}: scale {shown(scale)}", "a float format", "Try 'e8m0'.")
        return _general(fmt, scaling)
    known = ", ".join(BLOCK_NAMES)
    hint = suggestion(base, BLOCK_NAMES)
    raise FormatError(
        f"unknown block format {shown(text)}; allowed: {known}, mx(element[,scale]), then options after '/'.\n"
        f"  {hint}Options: {_OPTIONS}."
    )


def _general(element: Format, scale: FloatFormat) -> BlockFormat:
    rule = ScaleRule.FLOOR if scale == E8M0 else ScaleRule.NEAREST
    # other kinds of elements are refused where the block format is built
    return BlockFormat(cast("FloatFormat | FixedFormat", element), scale=scale, rule=rule)


def _split(text: str) -> tuple[str, str]:
    """Element and scale at the comma outside all parentheses."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            return text[:at], text[at + 1 :]
    return text, ""


def _scalar(name: str) -> Format:
    from .registry import parse_scalar

    return parse_scalar(name)


def _option(text: str, option: str) -> tuple[str, Any]:
    """Field and value that an option gives."""
    if match := re.fullmatch(r"b([0-9]{1,9})", option):
        return "block_size", int(match[1])
    if option in _RULES:
        return "rule", _RULES[option]
    if option in _MODES:
        return "mode", _MODES[option]
    if option == "tensor":
        return "tensor_scale", True
    if option == "flush":
        return "flush", True
    if is_rounding_name(option):
        rounding = parse_rounding(option)
        if rounding in (Rounding.RNE, Rounding.RNA, Rounding.RTZ):
            return "rounding", rounding
    hint = suggestion(option, [*_RULES, *_MODES, "rne", "rna", "rtz", "tensor", "flush", "b16"])
    raise format_error(f"block format {shown(text)}: option {shown(option)}", _OPTIONS, hint or "Drop it.")
