"""The error of what cannot be exported. Every message says what was asked, what is allowed and what to do."""

from __future__ import annotations

__all__ = ["VectorsError", "vectors_error"]


class VectorsError(ValueError):
    """Vectors that cannot be made or written: no code for a number, too many words, a file."""


def vectors_error(asked: str, allowed: str, do: str) -> VectorsError:
    """The error with its three parts."""
    return VectorsError(f"{asked}; allowed: {allowed}.\n  {do}")
