"""Accumulators that say which totals of other accumulators meet in which order, as wrappers: all that Python knows of
an order that kernels have (cutlass_kernels/include/gemmsim/program.h has its number, too)."""

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
    """gemmsim::Order: which totals of a wrapper meet in which order."""

    CHUNKED = 1
    PAIRWISE = 2
    INTERLEAVED = 3
    SPLITK = 4
    SHUFFLED = 5
    SCALED = 6

    @property
    def permutes(self) -> bool:
        """Whether terms are read in another order than that of k."""
        return self in (Order.INTERLEAVED, Order.SHUFFLED)


@dataclass(frozen=True)
class Wrapped:
    """One wrapper: which order, its size, the rounding of each combination (none for a permutation)."""

    order: Order
    n: int
    cast: Cast | None
    pairs: bool = False


#: (accumulator, terms that share a pair of scales, if the accumulator takes scales apart).
_Wrapping = Callable[[Any, "int | None"], Wrapped]
_WRAPPERS: dict[type[Accumulator], _Wrapping] = {}


def wraps(*kinds: type[Accumulator]) -> Callable[[Function], Function]:
    """Decorator: the function ``(accumulator, group) -> Wrapped`` says which wrapper accumulators of ``kinds`` are."""
    return enter(_WRAPPERS, kinds)


def wrapper_of(accumulator: Accumulator, group: int | None) -> Wrapped | None:
    """The wrapper that ``accumulator`` is, None if it is none."""
    found: _Wrapping | None = registered(_WRAPPERS, accumulator)
    return None if found is None else found(accumulator, group)


def lengths(order: Order, n: int, k: int) -> list[tuple[int, int]]:
    """The runs that a wrapper of size ``n`` makes of ``k`` > 0 terms, one after another: so many of so many terms each.

    Those of INTERLEAVED are lanes: of ``lanes`` runs, run l has the terms l, l + lanes, ...
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
    return Wrapped(Order.SPLITK, one.slices, one.reduce)


@wraps(Shuffled)
def _shuffled(one: Shuffled, group: int | None) -> Wrapped:
    return Wrapped(Order.SHUFFLED, 0, None)
