"""The order of additions of one dot product as a tree, in flat lists: chains of thousands of terms are deep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["ADD", "EXACT", "STEP", "Node", "SumTree", "TreeBuilder"]

#: Two addends, one rounding.
ADD = "add"
#: Several addends in one step, in which small ones are lost beside large ones.
STEP = "step"
#: Several addends of which none is lost beside another.
EXACT = "exact"


@dataclass(frozen=True)
class Node:
    """One addition: its kind, and its addends, terms below K and nodes (K + index) from there on."""

    kind: str
    addends: tuple[int, ...]


@dataclass(frozen=True)
class SumTree:
    """The partial sums of each addition, for K terms: no roundings, and no order within an addition.

    Attributes:
        K: number of terms, the leaves 0 to K-1.
        nodes: the additions, addends before their sums; the last one is the result. None for K below 2.

    ``tree == other`` compares as trees: the order in which nodes and addends are listed does not matter.

    Example:
        >>> tree = gs.reveal(lambda a, b: gs.qmatmul(a, b, ":chunked(4, fp32)"), 8).tree
        >>> tree.sizes[tree.root], [tree.sizes[one] for one in tree.addends(tree.root)]
        (8, [4, 4])
    """

    K: int
    nodes: tuple[Node, ...] = field(repr=False)

    @property
    def root(self) -> int:
        """The number of the result: of the last node, or of the only term."""
        return self.K + len(self.nodes) - 1 if self.nodes else 0

    def addends(self, node: int) -> tuple[int, ...]:
        """The addends of node number ``node``; none for a term."""
        return () if node < self.K else self.nodes[node - self.K].addends

    def kind(self, node: int) -> str:
        """ "add", "step" or "exact"; "" for a term."""
        return "" if node < self.K else self.nodes[node - self.K].kind

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The node in which each term and each node is an addend; -1 of the root."""
        found = [-1] * (self.K + len(self.nodes))
        for index, node in enumerate(self.nodes):
            for one in node.addends:
                found[one] = self.K + index
        return tuple(found)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of terms of each term (1) and each node."""
        found = [1] * self.K
        for node in self.nodes:
            found.append(sum(found[one] for one in node.addends))
        return tuple(found)

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The least term of each term and each node."""
        found = list(range(self.K))
        for node in self.nodes:
            found.append(min(found[one] for one in node.addends))
        return tuple(found)

    @cached_property
    def lasts(self) -> tuple[int, ...]:
        """The greatest term of each term and each node."""
        found = list(range(self.K))
        for node in self.nodes:
            found.append(max(found[one] for one in node.addends))
        return tuple(found)

    def is_range(self, node: int) -> bool:
        """Whether the terms below a node are consecutive."""
        return self.lasts[node] - self.firsts[node] + 1 == self.sizes[node]

    def terms(self, node: int) -> list[int]:
        """The terms below a node, ascending."""
        found, todo = [], [node]
        while todo:
            one = todo.pop()
            if one < self.K:
                found.append(one)
            else:
                todo += self.nodes[one - self.K].addends
        return sorted(found)

    def keys(self, table: dict[object, int]) -> list[int]:
        """A number for each term and node that is the same for the same subtree, in trees numbered by one ``table``."""
        found = [table.setdefault(("term", k), len(table)) for k in range(self.K)]
        for node in self.nodes:
            key = (node.kind, *sorted(found[one] for one in node.addends))
            found.append(table.setdefault(key, len(table)))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SumTree):
            return NotImplemented
        if self.K != other.K or len(self.nodes) != len(other.nodes):
            return False
        table: dict[object, int] = {}
        return self.keys(table)[-1:] == other.keys(table)[-1:]

    def __hash__(self) -> int:
        return hash((self.K, tuple(sorted(self.sizes[self.K :]))))

    def part(self, node: int) -> SumTree:
        """The subtree of a node, its terms numbered by rank."""
        terms = self.terms(node)
        return self._rebuilt(node, {term: rank for rank, term in enumerate(terms)})

    def quotient(self, blocks: Sequence[int]) -> SumTree:
        """The tree over the given nodes and terms, which become its terms in this order."""
        return self._rebuilt(self.root, {block: rank for rank, block in enumerate(blocks)})

    def _rebuilt(self, root: int, leaves: dict[int, int]) -> SumTree:
        build = TreeBuilder(len(leaves))
        made = dict(leaves)
        todo = [root]
        while todo:
            one = todo[-1]
            if one in made:
                todo.pop()
                continue
            missing = [addend for addend in self.addends(one) if addend not in made]
            if missing:
                todo += missing
                continue
            made[one] = build.add(self.kind(one), [made[addend] for addend in self.addends(one)])
            todo.pop()
        return build.tree()

    def to_dict(self) -> dict[str, object]:
        """K, and the kind and addends of each node, for JSON."""
        return {"K": self.K, "nodes": [[node.kind, list(node.addends)] for node in self.nodes]}


class TreeBuilder:
    """Collects the nodes of a tree of K terms."""

    def __init__(self, K: int) -> None:
        self.K = K
        self.nodes: list[Node] = []

    def add(self, kind: str, addends: Sequence[int]) -> int:
        """A new node, whose number is returned; a single addend is itself."""
        if len(addends) == 1:
            return addends[0]
        self.nodes.append(Node(ADD if len(addends) == 2 else kind, tuple(addends)))
        return self.K + len(self.nodes) - 1

    def merge(self, node: int, addends: Sequence[int]) -> int:
        """An exact sum in place of ``node``, an exact sum or one of two addends, with further addends."""
        self.nodes.append(Node(EXACT, (*self.nodes[node - self.K].addends, *addends)))
        return self.K + len(self.nodes) - 1

    def tree(self, root: int | None = None) -> SumTree:
        """The tree with the last node as its result, or ``root``; nodes that it does not use are left out."""
        if not self.nodes:
            return SumTree(self.K, ())
        top = self.K + len(self.nodes) - 1 if root is None else root
        used, todo = set(), [top]
        while todo:
            one = todo.pop()
            if one >= self.K and one not in used:
                used.add(one)
                todo += self.nodes[one - self.K].addends
        numbers = {one: self.K + rank for rank, one in enumerate(sorted(used))}
        nodes = [self.nodes[one - self.K] for one in sorted(used)]
        return SumTree(
            self.K,
            tuple(Node(node.kind, tuple(numbers.get(one, one) for one in node.addends)) for node in nodes),
        )
