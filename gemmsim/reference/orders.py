"""Orders of summation: runs, trees, lanes, slices, permutations of an inner accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from ..arithmetic import Chunked, Interleaved, Pairwise, Promote, Shuffled, SplitK
from ..formats import Cast
from .dot import Dot, implements, total
from .dyadic import Value, add
from .philox import Site, philox

__all__: list[str] = []


@implements(Chunked)
@implements(Promote)
def _chunked(accumulator: Chunked | Promote, dot: Dot) -> Value:
    """S = R_outer(S + t_j) over the totals t_j of runs of n terms."""
    starts = range(0, len(dot.products), accumulator.n)
    totals = [total(accumulator.inner, dot.part(start, start + accumulator.n)) for start in starts]
    return dot.running(totals, accumulator.add_cast)


@implements(Pairwise)
def _pairwise(accumulator: Pairwise, dot: Dot) -> Value:
    """Runs of `leaf` terms, then the tree."""
    starts = range(0, len(dot.products), accumulator.leaf)
    leaves = [total(accumulator.inner, dot.part(start, start + accumulator.leaf)) for start in starts]
    return _tree(leaves, accumulator.add_cast, dot)


@implements(Interleaved)
def _interleaved(accumulator: Interleaved, dot: Dot) -> Value:
    """Lane l sums the terms l, l + lanes, ...; lanes without terms do not exist."""
    length = len(dot.products)
    lanes = range(min(accumulator.lanes, length))
    totals = [total(accumulator.inner, dot.part(lane, length, accumulator.lanes)) for lane in lanes]
    if accumulator.combine == "pairwise":
        return _tree(totals, accumulator.add_cast, dot)
    return dot.running(totals, accumulator.add_cast)


@implements(SplitK)
def _splitk(accumulator: SplitK, dot: Dot) -> Value:
    """Slices of ceil(K / slices) terms; w = R_reduce(t), S = R_reduce(S + w)."""
    size = -(-len(dot.products) // accumulator.slices)
    starts = range(0, len(dot.products), size) if size else range(0)
    workspace = dot.combining(accumulator.reduce, Site.WORKSPACE, "slice's total {}")
    totals = (total(accumulator.inner, dot.part(start, start + size)) for start in starts)
    written = [workspace(t, t) for t in totals]
    return dot.running(written, accumulator.reduce)


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


def _tree(values: Sequence[Value], cast: Cast, dot: Dot) -> Value:
    """R(x_2i + x_2i+1) level by level; an odd last element passes up. Nothing is +0."""
    combine = dot.combining(cast)
    while len(values) > 1:
        paired = [combine(add(x, y), x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = [*paired, *values[2 * len(paired) :]]
    return values[0] if values else 0
