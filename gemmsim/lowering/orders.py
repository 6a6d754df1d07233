"""Accumulators that say which totals of other accumulators meet in which order, as wrappers."""

from __future__ import annotations

from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK

from .numbers import Order
from .program import Wrapped, wraps

__all__: list[str] = []


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
    return Wrapped(Order.SPLITK, one.slices, one.reduce)


@wraps(Shuffled)
def _shuffled(one: Shuffled, group: int | None) -> Wrapped:
    return Wrapped(Order.SHUFFLED, 0, None)
