"""Names that formats have read without knowing who reads them: ``text`` knows every class, and puts itself here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["install", "read_name"]

_READERS: dict[str, Callable[[str], Any]] = {}


def install(**readers: Callable[[str], Any]) -> None:
    """Says who reads names: ``scalar``, ``block``, ``tensor`` and ``cast``, by what they give."""
    _READERS.update(readers)


def read_name(kind: str, text: str) -> Any:
    """What the reader of this kind makes of ``text``; its errors."""
    return _READERS[kind](text)
