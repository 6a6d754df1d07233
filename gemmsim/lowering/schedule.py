"""Lowers the orders of totals that no single wrapper says to a schedule: operations on a stack of partial sums.

A schedule is made for one number of terms. Its operations compute runs of terms in sequence and combine their results;
``terms`` has the terms in the sequence in which the runs read them. cutlass_kernels/include/gemmsim/schedule.h defines
the operations for kernels.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Any

from gemmsim.arithmetic import Accumulator, Chunked, Interleaved, Pairwise, Promote, Scaled, Sequential, SplitK, Tree
from gemmsim.arithmetic.compensated import Compensated
from gemmsim.arithmetic.totals import How, levels_of
from gemmsim.arithmetic.tree import Node
from gemmsim.arithmetic.wrappers import Blocks
from gemmsim.formats import Cast

from .abi_constants import Method
from .innermost_sums import method_of_compensated

__all__ = [
    "Operation",
    "Schedule",
    "compensated_casts",
    "has_schedule",
    "innermost",
    "is_scheduled",
    "keeps_order",
    "levels",
    "schedule",
    "schedule_casts",
    "stack_bound",
]

#: Streams of random bits of combinations, and of rounding a total alone (docs/reference/random_bits.md).
_COMBINE, _WORKSPACE, _LEVEL = 5, 6, 32
_Items = Sequence[Any]


class Operation(IntEnum):
    """gemmsim::ScheduleCode: what an operation does with the stack of partial sums."""

    RUN = 0  #: push the sum of the next n terms
    ZERO = 1  #: push +0; -0 if n is 1
    ADD = 2  #: pop x; the top becomes R(top + x)
    ROUND = 3  #: the top becomes R(top)
    COMPENSATE = 4  #: pop x; add it to the compensated sum of the top two, by method n
    CORRECT = 5  #: pop the correction C; for every method but Kahan's the top becomes R(top + C)


@dataclass(frozen=True)
class Schedule:
    """Operations of four numbers each: code, place of the cast, n (terms, method or stream) and index of the draw."""

    operations: array[int]
    #: The term at each place, or None where that is the place.
    terms: array[int] | None
    #: The largest number of partial sums on the stack, and the terms of the longest and the shortest run.
    depth: int
    longest: int
    shortest: int
    #: How many additions of partial sums there are.
    additions: int
    #: The number of terms of each run, in sequence.
    runs: tuple[int, ...]


def is_scheduled(one: Accumulator) -> bool:
    """Whether this order has segments, or sums of its totals, that no wrapper says by itself."""
    if isinstance(one, Interleaved) and (one.width != 1 or one.combine not in ("sequential", "pairwise")):
        return True
    if isinstance(one, SplitK) and (one.grain != 1 or one.share != "ceil" or isinstance(one.slices, tuple)):
        return True
    if isinstance(one, SplitK) and one.partial is not None:
        return True
    how = one.how if isinstance(one, Blocks) else None
    return how == "halves" or isinstance(how, Accumulator) or (isinstance(how, Cast) and how.via is not None)


def has_schedule(accumulator: Accumulator) -> bool:
    """Whether ``accumulator`` or an order inside it is scheduled; groups of block formats are not looked into."""
    if not isinstance(accumulator, Blocks) or isinstance(accumulator, Scaled):
        return False
    return is_scheduled(accumulator) or has_schedule(accumulator.inner)


def innermost(accumulator: Accumulator) -> Accumulator:
    """Return the accumulator of the runs of a schedule: what is inside the innermost order that is scheduled or reads
    terms out of order, of an ``accumulator`` that ``has_schedule``.
    """
    found = one = accumulator
    while isinstance(one, Blocks):
        if is_scheduled(one) or isinstance(one, Interleaved):
            found = one.inner
        one = one.inner
    return found


def levels(accumulator: Accumulator, inner: Accumulator) -> int:
    """Return how many levels of random bits lie between ``accumulator`` and ``inner``."""
    return accumulator.levels - inner.levels


def schedule_casts(accumulator: Accumulator, inner: Accumulator) -> tuple[Cast, ...]:
    """Return the roundings of partial sums that the schedule makes, each once, that of the result first."""
    found: dict[Cast, None] = {}
    one = accumulator
    while one is not inner:
        assert isinstance(one, Blocks)
        own = [one.add_cast]
        if isinstance(one, SplitK) and one.partial is not None:
            own.append(one.partial)
        own += _casts(one.how)
        found.update((step, None) for cast in own for step in reversed(cast.steps))
        one = one.inner
    return tuple(found)


def _casts(how: How) -> list[Cast]:
    return list(how.casts()) if isinstance(how, Accumulator) else [how] if isinstance(how, Cast) else []


def compensated_casts(accumulator: Accumulator, inner: Accumulator) -> set[Cast]:
    """Return the roundings of the compensated sums of totals."""
    found: set[Cast] = set()

    def look(how: object) -> None:
        if isinstance(how, Compensated):
            found.add(how.fmt)
        elif isinstance(how, Blocks):
            look(how.inner)
            look(how.how)

    one = accumulator
    while one is not inner:
        assert isinstance(one, Blocks)
        look(one.how)
        one = one.inner
    return found


def keeps_order(accumulator: Accumulator, inner: Accumulator) -> bool:
    """Whether runs are computed in the order of their terms, in which random bits count them."""
    one = accumulator
    while one is not inner:
        assert isinstance(one, Blocks)
        if isinstance(one, Interleaved) or not _keeps_order(one.how):
            return False
        one = one.inner
    return True


def _keeps_order(how: object) -> bool:
    if isinstance(how, (Interleaved, Tree)) or how == "halves":
        return False
    return not isinstance(how, Blocks) or (_keeps_order(how.inner) and _keeps_order(how.how))


def stack_bound(accumulator: Accumulator, inner: Accumulator) -> int:
    """Return a bound of a schedule's partial sums on the stack, whatever the number of terms."""
    if accumulator is inner:
        return 1
    assert isinstance(accumulator, Blocks)
    return _bound(accumulator.how, _most_totals(accumulator), stack_bound(accumulator.inner, inner))


def _bound(how: object, totals: int, of_total: int) -> int:
    """Bound for totals that each need ``of_total``, combined by ``how``."""
    if isinstance(how, str) and how != "sequential":
        return (totals - 1).bit_length() + of_total
    if isinstance(how, Tree):
        return _height(how.sums) + of_total
    if isinstance(how, Blocks):
        return _bound(how.how, _most_totals(how), _bound(how.inner, totals, of_total))
    return of_total + (2 if isinstance(how, Compensated) else 1)


def _most_totals(one: Blocks) -> int:
    if isinstance(one, SplitK):
        return one.count
    return one.lanes if isinstance(one, Interleaved) else 1 << 31


def _height(node: Node) -> int:
    return 0 if isinstance(node, int) else 1 + max(map(_height, node))


# Expressions: what a schedule computes, before it is written as operations.


@dataclass(frozen=True)
class _Run:
    """The sum of these terms by the innermost accumulator."""

    terms: Sequence[int]


@dataclass(frozen=True)
class _Zero:
    """+0."""


@dataclass(frozen=True)
class _Round:
    """A value rounded."""

    value: Any
    cast: Cast
    stream: int
    index: int


@dataclass(frozen=True)
class _Sum:
    """``S = R(S + t)`` for the values in order, from a zero; ``indices`` are those of the draws."""

    values: list[Any]
    cast: Cast
    stream: int
    first: int
    negative: bool = False


@dataclass(frozen=True)
class _Pair:
    """R(x + y)."""

    left: Any
    right: Any
    cast: Cast
    stream: int
    index: int


@dataclass(frozen=True)
class _Compensated:
    """A compensated sum of the values."""

    values: list[Any]
    how: Compensated


@dataclass
class _Maker:
    """Makes the expression of an accumulator; counts combinations of each stream in the order of their definition."""

    inner: Accumulator
    counted: dict[int, int] = field(default_factory=dict)
    lost: list[Sequence[int]] = field(default_factory=list)

    def _next(self, stream: int, count: int = 1) -> int:
        first = self.counted.get(stream, 0)
        self.counted[stream] = first + count
        return first

    def value(self, one: Accumulator, terms: Sequence[int], depth: int) -> Any:
        """The expression of ``one`` over ``terms``."""
        if one is self.inner:
            return _Run(terms)
        assert isinstance(one, Blocks)
        parts, lost = segments(one, terms)
        if len(lost):
            self.lost.append(lost)
        deeper = depth + levels_of(one.how)
        return self.combined(one, [self.value(one.inner, part, deeper) for part in parts], depth, one.inner.add_cast)

    def combined(self, one: Blocks, totals: list[Any], depth: int, register: Cast) -> Any:
        """The expression of the totals of ``one``, which are in ``register``."""
        how = one.how
        if not isinstance(one, SplitK) or (one.partial is None and isinstance(how, Accumulator)):
            return self.met(how, totals, depth, register)
        workspace = one.partial
        if workspace is None:
            assert isinstance(how, Cast)
            workspace = how
        stream = _WORKSPACE + _LEVEL * depth
        written = [_Round(total, workspace, stream, self._next(stream)) for total in totals]
        if isinstance(how, Cast) and one.partial is not None and written:
            return self.running(written, how, depth, negative=True)
        return self.met(how, written, depth, register)

    def running(self, totals: list[Any], cast: Cast, depth: int, negative: bool = False) -> Any:
        """The running sum of the totals."""
        stream = _COMBINE + _LEVEL * depth
        return _Sum(totals, cast, stream, self._next(stream, len(totals)), negative)

    def met(self, how: How, totals: list[Any], depth: int, register: Cast) -> Any:
        """The expression of totals that are combined by ``how``."""
        if isinstance(how, Cast) or how == "sequential":
            return self.running(totals, how if isinstance(how, Cast) else register, depth)
        if not totals:
            return _Zero()
        if isinstance(how, str):
            return (self._adjacent if how == "pairwise" else self._halves)(totals, register, depth)
        if isinstance(how, Tree):
            return self._tree(how.sums, totals, register if how.fmt is None else how.fmt, depth)
        return self.over(how, totals, depth)

    def over(self, one: Accumulator, totals: list[Any], depth: int) -> Any:
        """The expression of an accumulator whose terms are the totals."""
        if isinstance(one, Sequential):
            return self.running(totals, one.add, depth)
        if isinstance(one, Compensated):
            return _Compensated(totals, one)
        assert isinstance(one, Blocks)
        deeper = depth + levels_of(one.how)
        parts, _ = segments(one, totals)
        return self.combined(
            one, [self.over(one.inner, list(part), deeper) for part in parts], depth, one.inner.add_cast
        )

    def _pair(self, x: Any, y: Any, cast: Cast, depth: int) -> Any:
        stream = _COMBINE + _LEVEL * depth
        return _Pair(x, y, cast, stream, self._next(stream))

    def _adjacent(self, totals: list[Any], cast: Cast, depth: int) -> Any:
        while len(totals) > 1:
            pairs = [self._pair(x, y, cast, depth) for x, y in zip(totals[::2], totals[1::2], strict=False)]
            totals = pairs + totals[2 * len(pairs) :]
        return totals[0]

    def _halves(self, totals: list[Any], cast: Cast, depth: int) -> Any:
        half = 1 << (len(totals) - 1).bit_length()
        while half > 1:
            half //= 2
            met = [self._pair(x, y, cast, depth) for x, y in zip(totals, totals[half:], strict=False)]
            totals = met + totals[len(met) : half]
        return totals[0]

    def _tree(self, node: Node, totals: list[Any], cast: Cast, depth: int) -> Any:
        if isinstance(node, int):
            return totals[node] if node < len(totals) else _Zero()
        x, y = (self._tree(one, totals, cast, depth) for one in node)
        return self._pair(x, y, cast, depth)


def segments(one: Blocks, items: _Items) -> tuple[list[_Items], _Items]:
    """Return the items of each total of ``one``, and those that it leaves out."""
    count = len(items)
    if isinstance(one, Interleaved):
        return _lanes(one, items), items[:0]
    if isinstance(one, SplitK) and isinstance(one.slices, tuple):
        sizes = [size for _, size in one.sizes(count)]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [items[end - size : end] for size, end in zip(sizes, ends, strict=True)], items[:0]
    if isinstance(one, SplitK):
        size, used = one.length(count), one.length(count) * one.count
    else:
        assert isinstance(one, (Chunked, Promote, Pairwise))
        size, used = one.leaf if isinstance(one, Pairwise) else one.n, count
    used = min(used, count)
    return [items[first : min(first + size, used)] for first in range(0, used, max(size, 1))], items[used:]


def _lanes(one: Interleaved, items: _Items) -> list[_Items]:
    lanes, width, count = one.lanes, one.width, len(items)
    if width == 1:
        return [items[lane::lanes] for lane in range(min(lanes, count))]
    found: list[_Items] = []
    for lane in range(min(lanes, -(-count // width))):
        runs = (items[at : at + width] for at in range(lane * width, count, lanes * width))
        joined = chain.from_iterable(runs)
        found.append(list(joined) if isinstance(items, list) else array("q", joined))
    return found


@dataclass
class _Writer:
    """Writes an expression as operations."""

    places: dict[Cast, int]
    operations: array[int] = field(default_factory=lambda: array("q"))
    runs: list[Sequence[int]] = field(default_factory=list)
    depth: int = 0
    additions: int = 0
    _height: int = 0

    def write(self, value: Any) -> None:
        """Append the operations that push ``value``."""
        _WRITE[type(value)](self, value)

    def put(self, code: Operation, change: int, cast: int = 0, n: int = 0, index: int = 0) -> None:
        """Append one operation, after which the stack is higher by ``change``."""
        self.operations.extend((code, cast, n, index))
        self._height += change
        self.depth = max(self.depth, self._height)

    def rounded(self, code: Operation, change: int, cast: Cast, stream: int, index: int) -> None:
        """Append an operation that rounds: twice where the cast does."""
        first, *rest = cast.steps
        self.put(code, change, self.places[first], stream, index)
        for step in rest:
            self.put(Operation.ROUND, 0, self.places[step], stream, index)
        self.additions += code == Operation.ADD


def _write_run(to: _Writer, run: _Run) -> None:
    to.runs.append(run.terms)
    to.put(Operation.RUN, 1, n=len(run.terms))


def _write_zero(to: _Writer, _: _Zero) -> None:
    to.put(Operation.ZERO, 1)


def _write_round(to: _Writer, one: _Round) -> None:
    to.write(one.value)
    to.rounded(Operation.ROUND, 0, one.cast, one.stream, one.index)


def _write_sum(to: _Writer, one: _Sum) -> None:
    to.put(Operation.ZERO, 1, n=int(one.negative))
    for i, value in enumerate(one.values):
        to.write(value)
        to.rounded(Operation.ADD, -1, one.cast, one.stream, one.first + i)


def _write_pair(to: _Writer, one: _Pair) -> None:
    to.write(one.left)
    to.write(one.right)
    to.rounded(Operation.ADD, -1, one.cast, one.stream, one.index)


def _write_compensated(to: _Writer, one: _Compensated) -> None:
    method, cast = method_of_compensated(one.how), to.places[one.how.fmt]
    to.put(Operation.ZERO, 1)
    to.put(Operation.ZERO, 1)
    for value in one.values:
        to.write(value)
        to.put(Operation.COMPENSATE, -1, cast, method)
    to.put(Operation.CORRECT, -1, cast, method)
    to.additions += len(one.values) + int(method > Method.KAHAN)


_WRITE: dict[type, Callable[[_Writer, Any], None]] = {
    _Run: _write_run,
    _Zero: _write_zero,
    _Round: _write_round,
    _Sum: _write_sum,
    _Pair: _write_pair,
    _Compensated: _write_compensated,
}


@lru_cache(maxsize=64)
def schedule(accumulator: Accumulator, k: int) -> Schedule:
    """Return the schedule of ``accumulator`` for ``k`` terms."""
    inner = innermost(accumulator)
    maker = _Maker(inner)
    value = maker.value(accumulator, range(k), 0) if k else _Zero()
    writer = _Writer({cast: i for i, cast in enumerate(schedule_casts(accumulator, inner))})
    writer.write(value)
    terms = array("q", chain.from_iterable([*writer.runs, *maker.lost]))
    sizes = tuple(map(len, writer.runs))
    natural = terms == array("q", range(k))
    return Schedule(
        writer.operations, None if natural else terms, writer.depth, max(sizes, default=0), min(sizes, default=0),
        writer.additions, sizes,
    )  # fmt: skip
