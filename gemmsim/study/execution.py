"""Where cells are computed. Whatever the place, a worker computes rows and gives them back; one process writes them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .base import Study
from .cells import Cell, Row
from .metrics import one_thread
from .records import finished_row

__all__ = ["MOST_DEATHS", "Assignment", "Executor", "Failure", "Inline", "Worker"]

#: Sets of inputs that a worker keeps: cells come in an order in which equal ones are neighbours.
KEPT_INPUTS = 4
#: Cells of fewer multiply-adds, some ten milliseconds, are computed in one thread. Several threads wait for each other
#: many times a cell, and where a processor is busy with something else every one of these waits is a time slice: the
#: digits study took 0.3 s with two threads on two idle cores, 2 to 6 s on busy ones, and 0.5 s in one thread on both.
SMALL_CELL = 2**24


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, and why.

    Example:
        >>> failure = gs.study.Failure(gs.study.Cell("mine", "v1", ":e5m10", seed=0), "killed three times")
        >>> failure.error
        'killed three times'
    """

    cell: Cell
    error: str


class Worker:
    """Compute cells of one study sequentially; keep what ``prepare`` returned, and the last few inputs.

    Example:
        >>> study = gs.study.kind("growth")(spec=["e5m10"], K=64, dist="randn")
        >>> row = gs.study.Worker(study, folder=None).compute(study.cells()[0])
        >>> row["label"], row["K"], round(row["rel_fro"], 4)
        ('e5m10', 64, 0.0012)
    """

    def __init__(self, study: Study, folder: Path) -> None:
        self.study = study
        self.context = study.prepare(folder)
        self._inputs: OrderedDict[str, Any] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of what ``prepare`` returned.

        Example:
            >>> study = gs.study.kind("growth")(K=64)
            >>> gs.study.Worker(study, folder=None).fingerprint == study.setting
            True
        """
        return str(self.context.fingerprint)

    def compute(self, cell: Cell) -> Row:
        """Return the finished row of ``cell``. Its seconds are those of ``evaluate``, without the time to make shared
        inputs.

        Example:
            >>> study = gs.study.kind("growth")(spec=["e5m10"], K=64, dist="randn")
            >>> row = gs.study.Worker(study, folder=None).compute(study.cells()[0])
            >>> sorted(row)[:4]
            ['K', 'M', 'N', 'abs_bias_ratio']
        """
        inputs = self._shared(cell)
        started = time.perf_counter()
        measured = dict(self.study.evaluate(cell, inputs))
        return finished_row(cell, self.study.kind, measured, started, self.fingerprint)

    def _shared(self, cell: Cell) -> Any:
        if not cell.operands:
            return self.study.inputs(cell, self.context)
        if cell.operands not in self._inputs:
            self._inputs[cell.operands] = self.study.inputs(cell, self.context)
            while len(self._inputs) > KEPT_INPUTS:
                self._inputs.popitem(last=False)
        self._inputs.move_to_end(cell.operands)
        return self._inputs[cell.operands]


class Executor(Protocol):
    """Interface of what computes cells. ``worker`` has prepared in this process, so a folder holds what others need.

    Example:
        >>> executors = [gs.study.Inline(), gs.study.Processes(2)]
        >>> all(callable(one.run) for one in executors)
        True
    """

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """Yield rows in the order in which they are finished, and a Failure for a cell that was given up.

        Closing the iterator stops all workers. An error of ``evaluate`` itself is raised here.

        Example:
            >>> study = gs.study.kind("growth")(spec=["e5m10", "e8m7"], K=64, dist="randn")
            >>> worker = gs.study.Worker(study, folder=None)  # a kind needs no folder
            >>> [row["label"] for row in gs.study.Inline().run(worker, None, study.cells())]
            ['e5m10', 'e8m7']
        """
        ...


class Inline:
    """Compute in this process, in order: small cells in one thread, others in all threads of PyTorch.

    Example:
        >>> study = gs.study.kind("growth")(spec=["e5m10", "e8m7"], K=64, dist="randn")
        >>> worker = gs.study.Worker(study, folder=None)  # a kind needs no folder
        >>> [row["label"] for row in gs.study.Inline().run(worker, None, study.cells())]
        ['e5m10', 'e8m7']
    """

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """Yield the rows sequentially.

        Example:
            >>> study = gs.study.kind("growth")(spec=["e5m10"], K=64, dist="randn")
            >>> rows = gs.study.Inline().run(gs.study.Worker(study, folder=None), None, study.cells())
            >>> round(next(rows)["rel_fro"], 4)
            0.0012
        """
        for cell in cells:
            with one_thread() if 0 < cell.macs < SMALL_CELL else contextlib.nullcontext():
                row = worker.compute(cell)
            yield row


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
