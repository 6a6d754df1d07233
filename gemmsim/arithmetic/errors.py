"""The errors of this package, and the wording its messages share."""

from __future__ import annotations

from collections.abc import Mapping

from ..formats import FormatError
from ..formats.errors import LONGEST, message, shortened, shown

__all__ = [
    "MAX_DEPTH",
    "SelectError",
    "SpecError",
    "SpecFormatError",
    "UnsupportedSpec",
    "check_json_depth",
    "check_text_depth",
    "spec_error",
    "too_deep",
]

#: Brackets or accumulators in one another; no meaning needs more, and reading them calls itself.
MAX_DEPTH = 64


class SpecError(ValueError):
    """A GEMM specification or accumulator that has no meaning: bad string, bad argument, or a contradiction."""


class SpecFormatError(SpecError, FormatError):
    """A format, rounding or overflow policy inside a specification that does not exist; caught by either name."""


class UnsupportedSpec(ValueError):
    """A specification that has a meaning but that the asked backend cannot compute."""


class SelectError(ValueError, IndexError):
    """A palette whose ``select`` is missing or holds an index of no member."""


def spec_error(asked: str, allowed: str, do: str) -> SpecError:
    """``SpecError`` that says what was asked, what is allowed and what to do."""
    return SpecError(message(asked, allowed, shortened(do, 2 * LONGEST)))


def too_deep(asked: str) -> SpecError:
    """``SpecError`` for what is nested deeper than ``MAX_DEPTH``."""
    return spec_error(asked, f"at most {MAX_DEPTH}", "Nest fewer.")


def check_text_depth(text: str) -> None:
    """``SpecError`` for brackets nested deeper than ``MAX_DEPTH``."""
    if text.count("(") <= MAX_DEPTH:
        return
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth > MAX_DEPTH:
            raise too_deep(f"{shown(text)}: brackets nested deeper than {MAX_DEPTH}")


def check_json_depth(data: object) -> None:
    """``SpecError`` for lists and mappings nested deeper than any accumulator's."""
    level: list[object] = [data]
    for _ in range(MAX_DEPTH + 8):  # an argument such as a cast is a few mappings more
        inside: list[object] = []
        for one in level:
            inside += one.values() if isinstance(one, Mapping) else one if isinstance(one, (list, tuple)) else ()
        if not inside:
            return
        level = inside
    raise too_deep(f"JSON nested deeper than {MAX_DEPTH}")
