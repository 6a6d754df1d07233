"""A study whose workers die or fail at certain cells. In a module of its own, as workers import it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from study.counting_study import Context, CountingStudy

from gemmsim.formats import FormatError
from gemmsim.study import Cell


class Unpicklable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


class DyingStudy(CountingStudy):
    """``deaths``: spec -> how often the process computing it kills itself; ``errors``: spec -> name of what is raised.

    Deaths are counted by files in ``folder``, which survive them.
    """

    name = "dying"

    def __init__(
        self, folder: Path, deaths: dict[str, int] | None = None, errors: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self.folder, self.deaths, self.errors = folder, deaths or {}, errors or {}
        self.home = os.getpid()
        self.die_at_start = False
        self.differ = False
        self.pause = 0.0

    def prepare(self, folder: Path) -> Context:
        if os.getpid() != self.home:
            if self.die_at_start:
                os._exit(7)
            if self.differ:
                return Context(f"of {os.getpid()}")
        return Context("same")

    def evaluate(self, cell: Cell, context: Context) -> dict:
        if cell.spec in self.deaths:
            died = len(list(self.folder.glob(f"{cell.key}.*")))
            if died < self.deaths[cell.spec]:
                (self.folder / f"{cell.key}.{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if cell.spec in self.errors:
            raise {
                "FormatError": FormatError("no such format"),
                "EOFError": EOFError("not the pipe's"),
                "Unpicklable": Unpicklable(1, 2),
                "KeyboardInterrupt": KeyboardInterrupt(),
            }[self.errors[cell.spec]]
        time.sleep(self.pause)
        return {"score": dict(cell.columns)["trailing"] / 10}


class SharedStudy(CountingStudy):
    """24 cells in four runs of equal operands; each row says which process made the inputs, under a time column's name."""

    name = "shared"

    def cells(self) -> list[Cell]:
        return [
            Cell(self.name, "setting", ":e5m2", 0, (("run", run), ("i", i)), macs=1000, operands=f"run {run}")
            for run in range(4)
            for i in range(6)
        ]

    def inputs(self, cell: Cell, context: Context) -> int:
        time.sleep(0.05)
        return os.getpid()

    def evaluate(self, cell: Cell, inputs: int) -> dict:
        time.sleep(0.01)
        return {"score": 1.0, "trailing": 1, "macs_per_s": inputs}
