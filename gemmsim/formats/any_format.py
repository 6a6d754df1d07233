"""A format of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from .binary8 import Binary8Format
from .codebook import CodebookFormat
from .errors import format_error
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .json_fields import read_name
from .own_exponent import OwnExponentFormat
from .supernormal import SupernormalFormat

__all__ = ["FORMATS", "Format", "format_from_json"]

#: Every kind of format of single numbers; new kinds join here, in both lines.
Format: TypeAlias = FloatFormat | FixedFormat | SupernormalFormat | Binary8Format | OwnExponentFormat | CodebookFormat
FORMATS = (FloatFormat, FixedFormat, SupernormalFormat, Binary8Format, OwnExponentFormat, CodebookFormat)
_NAMES = ("float", "fixed", "supernormal", "binary8", "own_exponent", "codebook")
_KINDS: dict[object, type[Format]] = dict(zip(_NAMES, FORMATS, strict=True))


def format_from_json(data: object) -> Format:
    """The format described by the dictionary that its ``to_json`` wrote, or by a name.

    Raises:
        FormatError: if ``data`` describes no format.

    Example:
        >>> fmt = gs.formats.parse("e4m3")
        >>> gs.formats.format_from_json(fmt.to_json()) == fmt
        True
    """
    if isinstance(data, str):
        found: Format = read_name("scalar", data)
        return found
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if isinstance(data, Mapping) and isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind].from_json(data)
    raise format_error(
        f"format_from_json({data!r})",
        f"a name, or a mapping with kind {', '.join(map(repr, _NAMES))}",
        "Pass what to_json() returned.",
    )
