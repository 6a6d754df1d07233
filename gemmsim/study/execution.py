"""Where cells are computed. Whatever the place, a worker computes rows and gives them back; one process writes them."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .base import Study
from .cells import Cell, Row
from .deterministic_sum import one_thread
from .records import finished_row

__all__ = ["Executor", "Failure", "Inline", "Worker"]

#: Sets of inputs that a worker keeps: cells come in an order in which equal ones are neighbours.
KEPT_INPUTS = 4
#: Cells of fewer multiply-adds, some ten milliseconds, are computed in one thread. Several threads wait for each other
#: many times a cell, and where a processor is busy with something else every one of these waits is a time slice: the
#: digits study took 0.3 s with two threads on two idle cores, 2 to 6 s on busy ones, and 0.5 s in one thread on both.
SMALL_CELL = 2**24


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, and why."""

    cell: Cell
    error: str


class Worker:
    """Computes cells of one study, one after the other: keeps what ``prepare`` gave and the last few inputs."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study = study
        self.context = study.prepare(folder)
        self._inputs: OrderedDict[str, Any] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """That of what ``prepare`` gave."""
        return str(self.context.fingerprint)

    def compute(self, cell: Cell) -> Row:
        """The finished row of ``cell``. Its seconds are those of ``evaluate``; shared inputs are nobody's."""
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
    """Computes cells somewhere. ``worker`` has prepared in this process, so a folder holds what others need."""

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """Rows in the order they are finished; a Failure for a cell that was given up.

        Closing the iterator stops all workers. An error of ``evaluate`` itself is raised here.
        """
        ...


class Inline:
    """In this process, in order: small cells in one thread, others in those that PyTorch has."""

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """One row after the other."""
        for cell in cells:
            with one_thread() if 0 < cell.macs < SMALL_CELL else contextlib.nullcontext():
                row = worker.compute(cell)
            yield row
