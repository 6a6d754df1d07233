"""Orders that a spec can say, without roundings: the tree of each, and its text with the roundings put in.

A place is where a rounding stands: "" of the shape itself, "i" in front for its inner shape, "o" for the one over its
totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from .sum_tree import EXACT, STEP, SumTree, TreeBuilder

__all__ = ["Chain", "Exactly", "Lanes", "Pairs", "Runs", "Shape", "Slices", "Steps", "Written", "tree_of"]


@dataclass(frozen=True)
class Shape:
    """An order."""

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        """The node that the terms make; nodes are entered in ``on`` under the shape's place."""
        raise NotImplementedError

    def text(self, casts: Mapping[str, str], place: str) -> str:
        """The accumulator with these roundings; the text at the place of a chain or an exact sum is taken whole."""
        raise NotImplementedError

    def places(self, place: str = "") -> list[str]:
        """Of all roundings, innermost first."""
        return [place]

    def leaf(self, place: str = "") -> str:
        """The place of the innermost shape, that adds the products."""
        return place


class _Growing:
    """Nodes, and the place of each."""

    def __init__(self, K: int) -> None:
        self.build = TreeBuilder(K)
        self.places: dict[int, str] = {}

    def add(self, kind: str, addends: Sequence[int], place: str) -> int:
        node = self.build.add(kind, addends)
        if len(addends) > 1:
            self.places[node] = place
        return node

    def run(self, nodes: Sequence[int], place: str) -> int:
        """One after the other."""
        total = nodes[0]
        for one in nodes[1:]:
            total = self.add("add", (total, one), place)
        return total


def tree_of(shape: Shape, K: int) -> tuple[SumTree, list[str]]:
    """The tree of K terms, and the place of each of its nodes."""
    on = _Growing(K)
    shape.grow(range(K), on, "")
    return on.build.tree(), list(on.places.values())


@dataclass(frozen=True)
class Chain(Shape):
    """One term after the other."""

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        return on.run(terms, place)

    def text(self, casts: Mapping[str, str], place: str) -> str:
        return casts[place]


@dataclass(frozen=True)
class Exactly(Shape):
    """Nothing is lost beside another term: an exact register, or a compensated sum."""

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        return on.add(EXACT, list(terms), place)

    def text(self, casts: Mapping[str, str], place: str) -> str:
        return casts[place]


@dataclass(frozen=True)
class Steps(Shape):
    """``n`` terms and the running sum at a time; ``first`` as in ``fused``.

    ``kind``: "step" or "exact", as in the tree; "two blocks", terms with k mod 4 in {0, 1}, the others, then the
    running sum; "pairs", terms by adjacent pairs, then the running sum.
    """

    n: int
    kind: str = STEP
    first: int | None = None

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        terms = list(terms)
        residue = len(terms) % self.first if self.first else 0
        parts = [terms[i : min(i + self.n, residue)] for i in range(0, residue, self.n)]
        parts += [terms[i : i + self.n] for i in range(residue, len(terms), self.n)]
        if self.kind in (STEP, EXACT):
            total = on.add(self.kind, parts[0], place)
            for part in parts[1:]:
                total = on.add(self.kind, (total, *part), place)
            return total
        return on.run([self._alone(part, on, place) for part in parts], place)

    def _alone(self, part: list[int], on: _Growing, place: str) -> int:
        if self.kind == "pairs":
            return _adjacent(part, on, place)
        early = [term for k, term in enumerate(part) if k % 4 < 2]
        late = [term for k, term in enumerate(part) if k % 4 >= 2]
        total = on.add(STEP, early, place)
        return on.add(STEP, (total, *late), place) if late else total

    def text(self, casts: Mapping[str, str], place: str) -> str:
        return casts[place]


@dataclass(frozen=True)
class Runs(Shape):
    """``chunked``."""

    n: int
    inner: Shape
    over: Shape

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        totals = [self.inner.grow(terms[i : i + self.n], on, place + "i") for i in range(0, len(terms), self.n)]
        return self.over.grow(totals, on, place + "o")

    def text(self, casts: Mapping[str, str], place: str) -> str:
        inner, over = self.inner.text(casts, place + "i"), self.over.text(casts, place + "o")
        return f"chunked({self.n}, {inner}{'' if over == inner else f', {over}'})"

    def places(self, place: str = "") -> list[str]:
        return [*self.inner.places(place + "i"), *self.over.places(place + "o")]

    def leaf(self, place: str = "") -> str:
        return self.inner.leaf(place + "i")


@dataclass(frozen=True)
class Pairs(Shape):
    """``pairwise``: over terms, or over totals where it stands there."""

    leaf_terms: int
    inner: Shape
    halves: bool = False

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        n = self.leaf_terms
        nodes = [self.inner.grow(terms[i : i + n], on, place + "i") for i in range(0, len(terms), n)]
        return (_halves if self.halves else _adjacent)(nodes, on, place)

    def text(self, casts: Mapping[str, str], place: str) -> str:
        leaf = "" if self.leaf_terms == 1 else f", {self.leaf_terms}"
        return f"pairwise({self.inner.text(casts, place + 'i')}{leaf}{', pairs=halves' if self.halves else ''})"

    def places(self, place: str = "") -> list[str]:
        return [*self.inner.places(place + "i"), place]

    def leaf(self, place: str = "") -> str:
        return self.inner.leaf(place + "i")


def _adjacent(nodes: list[int], on: _Growing, place: str) -> int:
    while len(nodes) > 1:
        paired = [on.add("add", nodes[i : i + 2], place) for i in range(0, len(nodes) - 1, 2)]
        nodes = [*paired, *nodes[2 * len(paired) :]]
    return nodes[0]


def _halves(nodes: list[int], on: _Growing, place: str) -> int:
    half = 1
    while half < len(nodes):
        half *= 2
    while half > 1:
        half //= 2
        kept = nodes[:half]
        for i, one in enumerate(nodes[half:]):
            kept[i] = on.add("add", (kept[i], one), place)
        nodes = kept
    return nodes[0]


@dataclass(frozen=True)
class Lanes(Shape):
    """``interleaved``."""

    lanes: int
    width: int
    inner: Shape
    over: Shape

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        parts: list[list[int]] = [[] for _ in range(self.lanes)]
        for rank, term in enumerate(terms):
            parts[rank // self.width % self.lanes].append(term)
        totals = [self.inner.grow(part, on, place + "i") for part in parts if part]
        return self.over.grow(totals, on, place + "o")

    def text(self, casts: Mapping[str, str], place: str) -> str:
        inner, over = self.inner.text(casts, place + "i"), self.over.text(casts, place + "o")
        width = "" if self.width == 1 else f", width={self.width}"
        words = {
            inner: "",
            f"pairwise({inner})": ", combine=pairwise",
            f"pairwise({inner}, pairs=halves)": ", combine=halves",
        }
        return f"interleaved({self.lanes}, {inner}{words.get(over, f', combine={over}')}{width})"

    def places(self, place: str = "") -> list[str]:
        return [*self.inner.places(place + "i"), *self.over.places(place + "o")]

    def leaf(self, place: str = "") -> str:
        return self.inner.leaf(place + "i")


@dataclass(frozen=True)
class Slices(Shape):
    """``splitk`` of slices of given lengths, or, with one number, of so many slices of whole ``grain`` terms."""

    lengths: tuple[int, ...]
    inner: Shape
    over: Shape
    grain: int = 1

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        if len(self.lengths) == 1:
            size = self.grain * -((-len(terms) // self.grain) // self.lengths[0])
            ends = list(range(0, len(terms), size)) + [len(terms)]
        else:
            ends = [0, *accumulate(self.lengths)]
            ends[-1] = len(terms)
        parts = [terms[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]
        totals = [self.inner.grow(part, on, place + "i") for part in parts if len(part)]
        return self.over.grow(totals, on, place + "o")

    def text(self, casts: Mapping[str, str], place: str) -> str:
        count = str(self.lengths[0]) if len(self.lengths) == 1 else str(list(self.lengths))
        grain = "" if self.grain == 1 else f", grain={self.grain}"
        over = self.over.text(casts, place + "o")
        return f"splitk({count}, {self.inner.text(casts, place + 'i')}, {over}{grain})"

    def places(self, place: str = "") -> list[str]:
        return [*self.inner.places(place + "i"), *self.over.places(place + "o")]

    def leaf(self, place: str = "") -> str:
        return self.inner.leaf(place + "i")


@dataclass(frozen=True)
class Written(Shape):
    """``tree``: the order of a fixed number of totals, written out."""

    sums: str
    nodes: tuple[tuple[int, int], ...]

    def grow(self, terms: Sequence[int], on: _Growing, place: str) -> int:
        made = list(terms)
        if len(made) <= len(self.nodes):
            return on.run(made, place)  # another number of totals, which no tree is written for
        for one, other in self.nodes:
            made.append(on.add("add", (made[one], made[other]), place))
        return made[-1]

    def text(self, casts: Mapping[str, str], place: str) -> str:
        return f"tree({self.sums}, {casts[place]})"
