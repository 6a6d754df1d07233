"""Which worker computes which cell: cells of equal operands go to one worker, until another has nothing left to do."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Hashable, Sequence

from .cells import Cell

__all__ = ["MOST_DEATHS", "Assignment"]

#: A cell whose worker died this often is given up: it is the cell that kills them.
MOST_DEATHS = 3


class Assignment:
    """The cells that are still to be given out. A run is a stretch of cells with equal ``operands``.

    Args:
        cells: in the order in which they are to be computed, those of equal operands next to each other.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._waiting = deque(_runs(cells))
        self._taken: dict[Hashable, deque[Cell]] = {}
        self._deaths: Counter[str] = Counter()

    def take(self, worker: Hashable) -> Cell | None:
        """The next cell for ``worker``: of its run, of the next run, of the later half of the longest; else None."""
        own = self._taken.get(worker)
        if not own:
            own = self._taken[worker] = self._waiting.popleft() if self._waiting else self._half()
        return own.popleft() if own else None

    def give_back(self, worker: Hashable, cell: Cell | None) -> bool:
        """``worker`` died, at ``cell`` if it had one (each in turn, if several); its run waits for another.

        False: it was the third death at this cell, which is not given out again.
        """
        left = self._taken.pop(worker, deque())
        again = True
        if cell is not None:
            self._deaths[cell.key] += 1
            again = self._deaths[cell.key] < MOST_DEATHS
            if again:
                left.appendleft(cell)
        if left:
            self._waiting.appendleft(left)
        return again

    def _half(self) -> deque[Cell]:
        """The later half of the longest run that another worker is at; its last cell where one is left."""
        longest = max(self._taken.values(), key=len, default=deque[Cell]())
        half: deque[Cell] = deque()
        for _ in range((len(longest) + 1) // 2):
            half.appendleft(longest.pop())
        return half


def _runs(cells: Sequence[Cell]) -> list[deque[Cell]]:
    found: list[deque[Cell]] = []
    for operands, run in itertools.groupby(cells, key=lambda cell: cell.operands):
        if operands:
            found.append(deque(run))
        else:
            found.extend(deque([cell]) for cell in run)
    return found
