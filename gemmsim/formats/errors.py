"""The error of this package, and the wording its messages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["LONGEST", "MEANINGS", "FormatError", "format_error", "meaning", "shortened", "shown", "suggestion"]

#: Characters of a text of the user's that a message repeats; of a longer one it shows both ends.
LONGEST = 200
#: What higher layers say of a word that is no format but means something there, or is near to one that does.
MEANINGS: list[Callable[[str, bool], str]] = []


class FormatError(ValueError):
    """A number format, rounding or overflow policy that does not exist, or a value it does not hold."""


def format_error(asked: str, allowed: str, do: str) -> FormatError:
    """``FormatError`` that says what was asked, what is allowed and what to do."""
    return FormatError(f"{shortened(asked, 2 * LONGEST)}; allowed: {allowed}.\n  {shortened(do, 2 * LONGEST)}")


def shortened(text: str, limit: int = LONGEST) -> str:
    """``text``, of which only the ends are kept where it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    left, right = limit // 2, limit // 4
    return f"{text[:left]}... ({len(text)} characters) ...{text[-right:]}"


def shown(value: object) -> str:
    """``repr(value)`` for a message, shortened."""
    return shortened(repr(shortened(value) if type(value) is str else value))


def meaning(word: str, near: bool = False) -> str:
    """Sentence that says what ``word`` is where it is no format, ``near``: what it resembles; empty for nothing."""
    return next((said for tell in MEANINGS if (said := tell(word, near))), "") if len(word) <= LONGEST else ""


def suggestion(text: str, known: Iterable[str], limit: int = 3) -> str:
    """Sentence naming the ``limit`` entries of ``known`` nearest to ``text``, or an empty string if none is near."""
    import difflib  # here: only messages need it, and it is slow to import

    if len(text) > LONGEST:
        return ""  # near to nothing, and slow to compare

    near = difflib.get_close_matches(text, sorted(set(known)), n=limit, cutoff=0.5)
    return f"Did you mean {' or '.join(repr(name) for name in near)}? " if near else ""
