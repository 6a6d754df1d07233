"""Who is told before a spec or an accumulator is made: code that traces Python cannot follow how they are."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["told", "when_made"]

_listeners: list[Callable[[str], None]] = []


def when_made(listener: Callable[[str], None]) -> None:
    """From now on ``listener`` is called with the name of the class."""
    _listeners.append(listener)


def told(name: str) -> None:
    """A value of this class is about to be made."""
    for listener in _listeners:
        listener(name)
