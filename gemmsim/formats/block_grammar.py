"""Names of block formats: mxfp8_e4m3, mxint8, nvfp4, mx(element,scale), each with options after slashes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from .any_format import Format
from .block import BLOCK_NAMES, BlockFormat, BlockMode, ScaleRule, block_of
from .errors import AsWritten, format_error, shown, suggestion, unknown
from .float_format import FloatFormat
from .json_fields import read_name
from .named import E8M0
from .rounding import Rounding, is_rounding_name, parse_rounding

__all__ = ["is_block_name", "parse_block"]


_CALL = re.compile(r"mx\((.*)\)")
_MODES = {"torchao": BlockMode.OCP, **{str(mode): mode for mode in BlockMode}}
_RULES = {str(rule): rule for rule in ScaleRule if rule is not ScaleRule.NEAREST}
_OPTIONS = "bN (block size), floor ceil even rceil, rne rna rtz, tensor, flush, or a mode: " + ", ".join(_MODES)


def is_block_name(text: str) -> bool:
    """Whether ``text`` starts as names of block formats do, so that ``parse_block`` has the best message for it."""
    return re.match(r"\s*(mx|nvfp)", text, re.IGNORECASE) is not None


def parse_block(text: str | BlockFormat) -> BlockFormat:
    """The block format named by ``text``. ``parse_block(str(f)) == f``, and a block format is returned as it is.

    Raises:
        FormatError: for an unknown name or option (the message suggests the nearest ones), a repeated option, and
            options that do not go together.

    Example:
        >>> gs.formats.parse_block("mx(e3m2)/b16").block_size
        16
    """
    if isinstance(text, BlockFormat):
        return text
    if not isinstance(text, str):
        raise format_error(f"block format {shown(text)}", "a name or a BlockFormat", "Try 'mxfp8_e4m3'.")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> BlockFormat:
    base, *options = map(AsWritten, text.split("/"))
    fields: dict[str, Any] = {}
    for option in options:
        field, value = _option(text, option)
        if field in fields:
            raise format_error(f"block format {shown(text)}: {shown(option)}", f"one {field}", "Drop one of them.")
        fields[field] = value
    return replace(_parse_base(text, base), **fields)


def _parse_base(text: str, base: AsWritten) -> BlockFormat:
    if base in BLOCK_NAMES:
        return BLOCK_NAMES[base]
    if _CALL.fullmatch(base):
        written = base.written
        element, scale = _split(written[written.index("(") + 1 : -1])
        fmt = _scalar(element)
        scaling = _scalar(scale) if scale.strip() else E8M0
        if not isinstance(scaling, FloatFormat):
            raise format_error(f"block format {shown(text)}: scale {shown(scale)}", "a float format", "Try 'e8m0'.")
        return block_of(fmt, scaling)
    allowed = "names such as mxfp8_e4m3, mxfp4 and nvfp4, or mx(element,scale); `gemmsim formats` lists them"
    asked = f"unknown block format {shown(text)}"
    raise unknown(asked, suggestion(base, BLOCK_NAMES), "Block formats", allowed, "Try 'mxfp8_e4m3'.")


def _split(text: str) -> tuple[str, str]:
    """Element and scale at the comma outside all parentheses."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            return text[:at], text[at + 1 :]
    return text, ""


def _scalar(name: str) -> Format:
    found: Format = read_name("scalar", name)
    return found


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
