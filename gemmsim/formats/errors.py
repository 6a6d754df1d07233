"""The error of this package, and the wording its messages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = [
    "LONGEST",
    "MEANINGS",
    "AsWritten",
    "FormatError",
    "format_error",
    "meaning",
    "message",
    "shortened",
    "shown",
    "suggestion",
    "unknown",
    "unknown_format",
]

#: Characters of a text of the user's that a message repeats; of a longer one it shows both ends.
LONGEST = 200
#: What higher layers say of a word that is no format but means something there, or is near to one that does.
MEANINGS: list[Callable[[str, bool], str]] = []


class FormatError(ValueError):
    """A number format, rounding or overflow policy that does not exist, or a value that a format does not hold.

    Example:
        >>> gs.formats.parse("e4m")
        Traceback (most recent call last):
            ...
        gemmsim.formats.errors.FormatError: unknown format 'e4m'. Did you mean 'e4m3' or 'ue4m3'?
          Formats allowed: names such as e4m3, bf16, e5m10 and fixed(8,4); `gemmsim formats` lists them.
    """


class AsWritten(str):
    """A word without blanks and in lower case, as names are read, which messages show as its user wrote it."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, written: str) -> AsWritten:
        word = super().__new__(cls, "".join(written.split()).lower())
        word.written = written.strip()
        return word

    def __repr__(self) -> str:
        return repr(self.written)


def format_error(asked: str, allowed: str, do: str) -> FormatError:
    """``FormatError`` that says what was asked, what is allowed and what to do."""
    return FormatError(message(asked, allowed, shortened(do, 2 * LONGEST)))


def message(asked: str, allowed: str, do: str) -> str:
    """The text of an error from the three parts that every error of this package has."""
    return f"{shortened(asked, 2 * LONGEST)}; allowed: {allowed}.\n  {do}"


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


def suggestion(text: str, known: Iterable[str], limit: int = 3, cutoff: float = 0.5) -> str:
    """Sentence naming the ``limit`` entries of ``known`` nearest to ``text``, or an empty string if none is near.

    Near is a similarity, as ``difflib`` has it, of at least ``cutoff``. ``text`` itself is never suggested.
    """
    import difflib  # here: only messages need it, and it is slow to import

    if len(text) > LONGEST:
        return ""  # near to nothing, and slow to compare

    near = difflib.get_close_matches(text, sorted({*known} - {text}), n=limit, cutoff=cutoff)
    return f"Did you mean {' or '.join(repr(name) for name in near)}? " if near else ""


def unknown(asked: str, hint: str, what: str, allowed: str, do: str) -> FormatError:
    """``FormatError`` for a name that is none: what may have been meant comes first, where ``hint`` says so.

    ``what``: what is allowed, as a plural; ``do``: what to do where there is no hint.
    """
    asked = shortened(asked, 2 * LONGEST)
    if hint:
        return FormatError(f"{asked}. {hint.strip()}\n  {what} allowed: {allowed}.")
    return FormatError(f"{asked}; allowed: {allowed}.\n  {do}")


def unknown_format(text: str, hint: str) -> FormatError:
    """``unknown`` for a format, whose names `gemmsim formats` lists."""
    allowed = "names such as e4m3, bf16, e5m10 and fixed(8,4)"
    where = "`gemmsim formats` lists them"
    known = f"{allowed}; {where}" if hint else allowed
    do = f"{where}, and so does gemmsim.formats.names()."
    return unknown(f"unknown format {shown(text)}", hint, "Formats", known, do)
