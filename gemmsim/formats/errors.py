"""The error of this package, and the wording its messages share."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FormatError", "format_error", "suggestion"]


class FormatError(ValueError):
    """A number format, rounding or overflow policy that does not exist, or a value it does not hold."""


def format_error(asked: str, allowed: str, do: str) -> FormatError:
    """``FormatError`` that says what was asked, what is allowed and what to do."""
    return FormatError(f"{asked}; allowed: {allowed}.\n  {do}")


def suggestion(text: str, known: Iterable[str], limit: int = 3) -> str:
    """Sentence naming the ``limit`` entries of ``known`` nearest to ``text``, or an empty string if none is near."""
    import difflib  # here: only messages need it, and it is slow to import

    near = difflib.get_close_matches(text, sorted(set(known)), n=limit, cutoff=0.5)
    return f"Did you mean {' or '.join(repr(name) for name in near)}? " if near else ""
