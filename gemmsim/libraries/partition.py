"""How K is cut into contiguous slices, and what a rounding down in it loses."""

from __future__ import annotations

__all__ = ["floored_length", "slice_count", "slice_length"]


def slice_length(K: int, slices: int, grain: int) -> int:
    """Terms of each slice but the last: ``grain * ceil(ceil(K / grain) / slices)``.

    Example:
        >>> from gemmsim.libraries.partition import slice_length
        >>> slice_length(1000, 3, 64)
        384
    """
    blocks = (K + grain - 1) // grain
    return grain * ((blocks + slices - 1) // slices)


def floored_length(K: int, slices: int, grain: int) -> int:
    """The same with K / slices rounded down first: ``grain * max(1, ceil(floor(K / slices) / grain))``.

    What lies behind the last slice belongs to none.

    Example:
        >>> from gemmsim.libraries.partition import floored_length
        >>> 8648 - 9 * floored_length(8648, 9, 64)
        8
    """
    return grain * max(1, -(-(K // slices) // grain))


def slice_count(K: int, slices: int, length: int) -> int:
    """How many of the slices have terms."""
    return min(slices, -(-K // length))
