"""The tree of additions of a function, from what small units survive which pairs of large numbers.

Units that are added before two large numbers of opposite signs meet are lost. The count of the lost is the size of the
subtree in which the two meet. From one term the sizes for all others sort them into its siblings' groups; each group is
asked likewise, all groups of one depth at a time. (FPRev: Xie et al., 2025, for two addends at a time; here also for
steps of several addends, and for sums in which nothing is lost.)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from .errors import ContradictoryAnswers
from .sum_tree import EXACT, STEP, SumTree, TreeBuilder
from .survivors import Asked, Survivors

__all__ = ["grow_tree"]

#: What a search asks for: lost units, or that others be searched first. What it returns, at last, are subtrees.
_Search = Generator[Any, Any, Any]


def grow_tree(survivors: Survivors, seed: int) -> SumTree:
    """The tree of all terms.

    Raises:
        ContradictoryAnswers: where no tree gives the answers.
        ProbeError: as ``BlackBox``.
    """
    search = _TreeSearch(survivors.terms.K, seed)
    children = _run(search.grow(np.arange(search.K), None, False), survivors)
    if len(children) != 1:
        raise ContradictoryAnswers("terms that meet nowhere")
    return search.build.tree(children[0])


class _TreeSearch:
    def __init__(self, K: int, seed: int) -> None:
        self.K = K
        self.build = TreeBuilder(K)
        self.sizes: dict[int, int] = {}
        self.g = np.random.default_rng(seed)

    def grow(self, leaves: np.ndarray, witness: int | None, at_random: bool, alike: tuple[int, ...] = ()) -> _Search:
        """The subtrees that ``leaves`` are divided into by an addition above them, in which ``witness`` is lost, too.

        ``alike``: they are addends of an exact sum: what stands in another addend is not lost, and each has so many
        terms, or one of two numbers.
        """
        children: list[int] = []
        rest, size = leaves, alike[0] if len(alike) == 1 else 0
        while len(rest):
            if len(rest) == 1:
                children.append(int(rest[0]))
                break
            i = int(self.g.choice(rest)) if at_random else int(rest[0])
            others = rest[rest != i]
            units = rest if witness is None else np.append(rest, witness)
            lost = yield Asked(i, others, units)
            outside = np.zeros(len(others), bool)
            if alike:
                size = size or 1 + int((lost < lost.max()).sum())
                outside = (lost + 2 == 2 * size) if len(rest) > size else outside
            elif witness is not None:
                outside = lost == len(units) - 2
            if size == 1 and outside.all():
                return [*children, *(int(k) for k in rest)]
            children.append((yield from self.assemble(i, others[~outside], lost[~outside])))
            rest = others[outside]
        return children

    def assemble(self, i: int, others: np.ndarray, lost: np.ndarray) -> _Search:
        """The subtree of term i and ``others``, by how many units each pair with i loses."""
        groups = [(int(one), others[lost == one]) for one in np.unique(lost)]
        searches: list[_Search | None] = []
        size, before = 1, 0
        for one, group in groups:
            exact = one + 2 != size + len(group)
            alike = [n for n in (one + 2 - size, one + 2 - before) if n > 0 and len(group) % n == 0] if exact else []
            if not before:
                alike = alike[:1]
            if len(group) == 1 or alike == [1]:
                searches.append(None)
            else:
                bad_split = 10 * len(group) > 9 * len(others) and len(group) > 8
                searches.append(self.grow(group, i, bad_split and not exact, tuple(dict.fromkeys(alike))))
            if not exact or one + 2 - size in alike:
                before = size
            size += len(group)
        grown = iter((yield [one for one in searches if one is not None]))
        node, size, before = i, 1, 1
        for (one, group), search in zip(groups, searches, strict=True):
            children = [int(k) for k in group] if search is None else next(grown)
            total = size + len(group)
            if one + 2 == total:
                node, before = self.add(STEP, [node, *children]), size
                size = total
                continue
            children = self.flat(children)
            ends = {self.size(child) for child in children}
            if ends == {one + 2 - size}:
                node, before = self.add(EXACT, [node, *children]), size
            elif node >= self.K and self.may_be_exact(node) and ends == {one + 2 - before}:
                node = self.build.merge(node, children)
                self.sizes[node] = total
            else:
                raise ContradictoryAnswers(
                    f"with term {i} large, {len(group)} terms such as {int(group[0])} lose {one} of {total - 2} units "
                    "that a tree would lose"
                )
            size = total
        return node

    def add(self, kind: str, addends: list[int]) -> int:
        node = self.build.add(kind, addends)
        self.sizes[node] = sum(map(self.size, addends))
        return node

    def size(self, node: int) -> int:
        return self.sizes.get(node, 1)

    def is_exact(self, node: int) -> bool:
        return node >= self.K and self.build.nodes[node - self.K].kind == EXACT

    def may_be_exact(self, node: int) -> bool:
        """Whether it is an exact sum, or one of two addends, which is the same."""
        return self.is_exact(node) or len(self.build.nodes[node - self.K].addends) == 2

    def flat(self, children: list[int]) -> list[int]:
        if len(children) == 1 and self.is_exact(children[0]):
            return list(self.build.nodes[children[0] - self.K].addends)
        return children


class _Task:
    """A search, and how many of the searches that it waits for have not ended."""

    def __init__(self, search: _Search, parent: _Task | None, place: int) -> None:
        self.search, self.parent, self.place = search, parent, place
        self.results: list[Any] = []
        self.missing = 0


def _run(search: _Search, survivors: Survivors) -> Any:
    """The result of ``search``: all that is asked at the same time is one batch."""
    ready: list[tuple[_Task, Any]] = [(_Task(search, None, 0), None)]
    while True:
        asking: list[tuple[_Task, Asked]] = []
        while ready:
            task, value = ready.pop()
            try:
                wanted = task.search.send(value)
            except StopIteration as end:
                if task.parent is None:
                    return end.value
                above = task.parent
                above.results[task.place] = end.value
                above.missing -= 1
                if not above.missing:
                    ready.append((above, above.results))
                continue
            if isinstance(wanted, Asked):
                asking.append((task, wanted))
            elif not wanted:
                ready.append((task, []))
            else:
                _start(task, wanted, ready)
        answers = survivors.lost([one for _, one in asking])
        ready = [(task, answer) for (task, _), answer in zip(asking, answers, strict=True)]


def _start(task: _Task, searches: Sequence[_Search], ready: list[tuple[_Task, Any]]) -> None:
    task.results, task.missing = [None] * len(searches), len(searches)
    ready += [(_Task(one, task, place), None) for place, one in enumerate(searches)]
