"""The error of what cannot be exported. Every message says what was asked, what is allowed and what to do."""

from __future__ import annotations

__all__ = ["VectorsError", "vectors_error"]


class VectorsError(ValueError):
    """Vectors that cannot be made or written: a number without a code, too many words, a file.

    Example:
        >>> gs.vectors.directed_cases("mxfp8_e4m3 : fp32", 8)
        Traceback (most recent call last):
            ...
        gemmsim.vectors.errors.VectorsError: operands in mxfp8_e4m3, which share scales; allowed: ...
    """


def vectors_error(asked: str, allowed: str, do: str) -> VectorsError:
    """The error with its three parts."""
    return VectorsError(f"{asked}; allowed: {allowed}.\n  {do}")
