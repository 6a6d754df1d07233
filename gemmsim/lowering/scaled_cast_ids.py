"""Grids of scaled casts."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["TIES", "GridNumbers"]

#: Order of gemmsim::Ties.
TIES: Final = ("even", "away", "toward_zero")


class GridNumbers(NamedTuple):
    """Integers low..high, or n * 2^(max(e, emin) - trailing) up to +-high."""

    integer: bool
    low: float
    high: float
    trailing: int = 0
    emin: int = 0
    ties: str = "even"
