"""Orders of summation: runs, trees, lanes, slices, permutations of an inner accumulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..arithmetic import Chunked, Interleaved, Pairwise, Promote, Shuffled, SplitK, Tree
from ..arithmetic.totals import How
from ..arithmetic.tree import Node
from ..arithmetic.wrappers import Blocks
from ..formats import Cast
from .dot import Dot, implements, total
from .dyadic import Value, add, to_float
from .philox import Site, philox

__all__: list[str] = []


@implements(Chunked)
@implements(Promote)
def _chunked(accumulator: Chunked | Promote, dot: Dot) -> Value:
    """S = R_outer(S + t_j) over the totals t_j of runs of n terms."""
    starts = range(0, len(dot.products), accumulator.n)
    return _combined(
        _totals(accumulator, dot, [range(start, start + accumulator.n) for start in starts]), accumulator, dot
    )


@implements(Pairwise)
def _pairwise(accumulator: Pairwise, dot: Dot) -> Value:
    """Runs of `leaf` terms, then the tree."""
    starts = range(0, len(dot.products), accumulator.leaf)
    leaves = [range(start, start + accumulator.leaf) for start in starts]
    return _combined(_totals(accumulator, dot, leaves), accumulator, dot)


@implements(Interleaved)
def _interleaved(accumulator: Interleaved, dot: Dot) -> Value:
    """Lane l sums the runs l, l + lanes, ... of `width` terms; lanes without terms do not exist."""
    length, width = len(dot.products), accumulator.width
    lanes: list[Sequence[int]] = []
    for lane in range(min(accumulator.lanes, -(-length // width))):
        first = lane * width
        if width == 1:
            lanes.append(range(first, length, accumulator.lanes))
            continue
        lanes.append([k for k in range(first, length) if (k - first) % (accumulator.lanes * width) < width])
    return _combined(_totals(accumulator, dot, lanes), accumulator, dot)


@implements(SplitK)
def _splitk(accumulator: SplitK, dot: Dot) -> Value:
    """Slices; w = R_reduce(t), S = R_reduce(S + w) from +0, or w = R_partial(t), S from the first one as it is."""
    slices = _slices(accumulator, len(dot.products))
    totals = _totals(accumulator, dot, slices)
    partial = accumulator.partial
    if partial is None and not isinstance(accumulator.reduce, Cast):
        return _combined(totals, accumulator, dot)
    workspace = dot.combining(
        accumulator.reduce if partial is None else partial,  # type: ignore[arg-type]
        Site.WORKSPACE,
        "slice's sum {}",
    )
    written = [workspace(t, t) for t in totals]
    if partial is None or not isinstance(accumulator.reduce, Cast):
        return _combined(written, accumulator, dot)
    # From -0, which changes no total: not even -0.
    return dot.running(written, accumulator.reduce, -0.0) if written else 0


def _slices(accumulator: SplitK, length: int) -> list[range]:
    """The terms of each slice that has any."""
    if isinstance(accumulator.slices, tuple):
        found, start = [], 0
        for i, size in enumerate(accumulator.slices):
            stop = length if i + 1 == len(accumulator.slices) else start + size
            found.append(range(start, min(stop, length)))
            start = stop
        return [one for one in found if len(one)]
    count, grain = accumulator.slices, accumulator.grain
    if accumulator.share == "floor":
        whole = length // count
        blocks = whole // grain + (whole % grain > 0)
        size = grain * (blocks or 1)
    else:
        grains = length // grain + (length % grain > 0)
        size = grain * (grains // count + (grains % count > 0))
    return [range(i * size, min((i + 1) * size, length)) for i in range(count) if i * size < length]


@implements(Shuffled)
def _shuffled(accumulator: Shuffled, dot: Dot) -> Value:
    """The inner accumulator over the products in the order of 64 random bits each; k counts positions."""
    key = (accumulator.seed & 0xFFFFFFFF, accumulator.seed >> 32)

    def place(k: int) -> tuple[int, int]:
        low, high, _, _ = philox(key, (k & 0xFFFFFFFF, k >> 32, 0, Site.PERMUTATION))
        return low + (high << 32), k

    order = sorted(range(len(dot.products)), key=place)
    dot.note("order", f"terms in the order {', '.join(map(str, order))}", (), 0, 0)
    return total(accumulator.inner, dot.permuted(order))


def _totals(accumulator: Blocks, dot: Dot, parts: Sequence[Sequence[int]]) -> list[Value]:
    """What the inner accumulator makes of each of these terms."""
    levels = accumulator.levels - accumulator.inner.levels
    return [total(accumulator.inner, dot.part(part, levels)) for part in parts]


def _combined(totals: Sequence[Value], accumulator: Blocks, dot: Dot) -> Value:
    """One number of the totals, as ``accumulator`` says."""
    how: How = accumulator.how
    if isinstance(how, Cast):
        return dot.running(totals, how)
    if how == "sequential":
        return dot.running(totals, accumulator.add_cast)
    if how == "pairwise":
        return _adjacent(totals, accumulator.add_cast, dot)
    if how == "halves":
        return _halves(totals, accumulator.add_cast, dot)
    assert not isinstance(how, str)
    if isinstance(how, Tree):
        return _tree(how.sums, totals, dot.combining(accumulator.add_cast)) if totals else 0
    return total(how, dot.over(totals, [to_float(t, dot.unit) for t in totals]))


def _adjacent(values: Sequence[Value], cast: Cast, dot: Dot) -> Value:
    """R(x_2i + x_2i+1) level by level; an odd last element passes up. Nothing is +0."""
    combine = dot.combining(cast)
    while len(values) > 1:
        paired = [combine(add(x, y), x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = [*paired, *values[2 * len(paired) :]]
    return values[0] if values else 0


def _halves(values: Sequence[Value], cast: Cast, dot: Dot) -> Value:
    """R(x_i + x_(i+n/2)), then n/4, ..., 1, n the power of two at or above their number; without x_(i+n/2), x_i."""
    combine = dot.combining(cast)
    half = 1
    while half < len(values):
        half *= 2
    while half > 1:
        half //= 2
        kept = list(values[:half])
        for i, x in enumerate(values[half:]):
            kept[i] = combine(add(kept[i], x), kept[i], x)
        values = kept
    return values[0] if values else 0


def _tree(node: Node, totals: Sequence[Value], combine: Callable[..., Value]) -> Value:
    """The sums of the tree, the left addend's first; a total that does not exist is +0."""
    if isinstance(node, int):
        return totals[node] if node < len(totals) else 0
    x, y = (_tree(one, totals, combine) for one in node)
    return combine(add(x, y), x, y)
