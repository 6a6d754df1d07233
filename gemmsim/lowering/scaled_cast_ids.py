"""Value sets and tie rules of scaled casts, as numbers of kernels."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["TIES", "GridNumbers"]

#: In the order of gemmsim::Ties.
TIES: Final = ("even", "away", "toward_zero")


class GridNumbers(NamedTuple):
    """A value set: the integers ``low`` to ``high``, or n * 2^(max(e, emin) - trailing) up to +-``high``."""

    integer: bool
    low: float
    high: float
    trailing: int = 0
    emin: int = 0
    ties: str = "even"
