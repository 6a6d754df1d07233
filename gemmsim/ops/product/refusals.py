"""Products that are refused where they would be computed, and not before: in a backward pass that may never run.

A plan carries text alone, so that compiled code can hold it. The error that a text stands for is kept here.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["refuse", "refused_later"]

#: Message -> what makes the error. A message for each call site and shape: as many as the program has plans.
_ERRORS: dict[str, Callable[[], Exception]] = {}


def refused_later(make: Callable[[], Exception]) -> str:
    """The text by which ``refuse`` knows the error that ``make`` gives: its message."""
    text = str(make())
    _ERRORS[text] = make
    return text


def refuse(text: str) -> None:
    """Raises the error of this text.

    Raises:
        Exception: the one that ``refused_later`` was given.
    """
    raise _ERRORS[text]()
