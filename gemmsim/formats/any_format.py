"""A format of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from .errors import format_error
from .fixed_format import FixedFormat
from .float_format import FloatFormat

__all__ = ["Format", "format_from_json"]

#: Every kind of number format; new kinds join here.
Format: TypeAlias = FloatFormat | FixedFormat


def format_from_json(data: object) -> Format:
    """Format from the dictionary that its ``to_json`` wrote, or from a name.

    Raises:
        FormatError: if ``data`` describes no format.
    """
    if isinstance(data, str):
        from .registry import parse_scalar

        return parse_scalar(data)
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if isinstance(data, Mapping) and kind == "float":
        return FloatFormat.from_json(data)
    if isinstance(data, Mapping) and kind == "fixed":
        return FixedFormat.from_json(data)
    raise format_error(
        f"format_from_json({data!r})",
        "a name, or a mapping with kind 'float' or 'fixed'",
        "Pass what to_json() returned.",
    )
