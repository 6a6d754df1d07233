"""Lowers accumulators that combine partial sums of an inner accumulator: each becomes a wrapper with an order.

This file has everything that Python knows of an order. The kernels' number of each order is also in
cutlass_kernels/include/gemmsim/program.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.formats import Cast

from .type_registry import Function, enter, registered

__all__ = ["Order", "Wrapped", "lengths", "wrapper_of", "wraps"]


class Order(IntEnum):
    """gemmsim::Order: the order in which a wrapper combines partial sums."""

    CHUNKED = 1
    PAIRWISE = 2
    INTERLEAVED = 3
    SPLITK = 4
    SHUFFLED = 5
    SCALED = 6
    #: A rounding of the schedule that combines the results of runs (schedule.py).
    SCHEDULED = 7

    @property
    def permutes(self) -> bool:
        """Whether the order reads terms in another sequence than that of k."""
        return self in (Order.INTERLEAVED, Order.SHUFFLED)


@dataclass(frozen=True)
class Wrapped:
    """A wrapper: its order, its size, and the cast of each combination (none for a permutation).

    ``pairs``: lanes are combined in pairs. Of a SCHEDULED rounding: it is one of a compensated sum.
    """

    order: Order
    n: int
    cast: Cast | None
    pairs: bool = False


#: Arguments: the accumulator, and the number of terms that share a pair of scales, if it separates scales.
_Wrapping = Callable[[Any, "int | None"], Wrapped]
_WRAPPERS: dict[type[Accumulator], _Wrapping] = {}


def wraps(*kinds: type[Accumulator]) -> Callable[[Function], Function]:
    """Decorator: register the function ``(accumulator, group) -> Wrapped`` that lowers accumulators of ``kinds``."""
    return enter(_WRAPPERS, kinds)


def wrapper_of(accumulator: Accumulator, group: int | None) -> Wrapped | None:
    """Return the wrapper that ``accumulator`` becomes, or None if it becomes none."""
    found: _Wrapping | None = registered(_WRAPPERS, accumulator)
    return None if found is None else found(accumulator, group)


def lengths(order: Order, n: int, k: int) -> list[tuple[int, int]]:
    """Return the segments into which a wrapper of size ``n`` divides ``k`` > 0 terms, as pairs (count, length) in
    sequence.

    For INTERLEAVED the segments are lanes: of ``lanes`` segments, segment l has the terms l, l + lanes, ...
    """
    if order == Order.SHUFFLED:
        return [(1, k)]
    if order == Order.INTERLEAVED:
        lanes = min(n, k)
        size, longer = divmod(k, lanes)
        return [(longer, size + 1), (lanes - longer, size)]
    size = -(-k // n) if order == Order.SPLITK else n
    return [(k // size, size), (1, k % size)]


@wraps(Chunked, Promote)
def _chunked(one: Chunked | Promote, group: int | None) -> Wrapped:
    return Wrapped(Order.CHUNKED, one.n, one.add_cast)


@wraps(Scaled)
def _scaled(one: Scaled, group: int | None) -> Wrapped:
    assert group is not None
    return Wrapped(Order.SCALED, group, one.outer)


@wraps(Pairwise)
def _pairwise(one: Pairwise, group: int | None) -> Wrapped:
    return Wrapped(Order.PAIRWISE, one.leaf, one.add_cast)


@wraps(Interleaved)
def _interleaved(one: Interleaved, group: int | None) -> Wrapped:
    return Wrapped(Order.INTERLEAVED, one.lanes, one.add_cast, one.combine == "pairwise")


@wraps(SplitK)
def _splitk(one: SplitK, group: int | None) -> Wrapped:
    assert isinstance(one.slices, int) and isinstance(one.reduce, Cast)
    return Wrapped(Order.SPLITK, one.slices, one.reduce)


@wraps(Shuffled)
def _shuffled(one: Shuffled, group: int | None) -> Wrapped:
    return Wrapped(Order.SHUFFLED, 0, None)
