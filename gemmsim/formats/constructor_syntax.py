"""Names of formats that look like a call, "posit(8,2)": which words there are, and who reads what is in the brackets.

A kind of format registers the reader of its own name in its own file; ``grammar`` finds it here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import FormatError, format_error, shown, suggestion

__all__ = ["CALLS", "call", "check_flags", "integer"]

#: A function of the name, for messages, and of the fields between its brackets (``AsWritten``).
_Reader = TypeVar("_Reader", bound=Callable[[str, list[str]], Any])

#: By the word before the bracket: what makes a format of the name and its fields.
CALLS: dict[str, Callable[[str, list[str]], Any]] = {}


def call(shape: str) -> Callable[[_Reader], _Reader]:
    """Registers the reader of names of this ``shape``, "posit(n[,es])". It raises ``FormatError`` for others."""

    def register(reader: _Reader) -> _Reader:
        CALLS[shape.partition("(")[0]] = reader
        return reader

    return register


def check_flags(name: str, usage: str, flags: list[str], known: tuple[str, ...]) -> None:
    """``FormatError`` for a flag that is none of ``known`` or is there twice; ``usage``: what is allowed."""
    for flag in flags:
        if flag not in known or flags.count(flag) > 1:
            raise format_error(
                f"format {shown(name)}: {shown(flag)}", usage, suggestion(flag, known) or "Give each flag once."
            )


def integer(name: str, usage: str, text: str) -> int:
    """The number of a field in decimal digits; ``FormatError`` for anything else, ``usage``: what is allowed."""
    # int() also takes "1_0" and non-ASCII digits, which would not print back; and six digits are more than any field
    # may have.
    if re.fullmatch(r"[+-]?[0-9]{1,6}", text) is None:
        raise FormatError(
            f"format {shown(name)}: {shown(text)} is not an integer of up to six digits; allowed: {usage}.\n"
            "  Write it in decimal digits."
        )
    return int(text)
