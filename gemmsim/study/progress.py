"""How far a run is: a bar with the time left on a terminal, plain lines every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .cells import Cell

__all__ = ["Reporter", "progress"]

#: Seconds between two lines where there is no terminal.
LINE_EVERY = 10.0


class Reporter(Protocol):
    """Is told of each finished cell."""

    def finished(self, cell: Cell) -> None:
        """``cell`` is done."""
        ...


class _Silent:
    def finished(self, cell: Cell) -> None:
        return


class _Bar:
    """``name ━━━━━ 120/480 0:01:01 0:03:00 label``: the bar and the time left go by cost, not by count."""

    def __init__(self, bar: Progress, name: str, costs: dict[str, float]) -> None:
        self._bar, self._costs = bar, costs
        self._even = not sum(costs.values())
        total = len(costs) if self._even else sum(costs.values())
        self._task = bar.add_task(name, total=total, count=0, cells=len(costs), label="")
        self._count = 0

    def finished(self, cell: Cell) -> None:
        self._count += 1
        cost = 1.0 if self._even else self._costs.get(cell.key, 0.0)
        self._bar.update(self._task, advance=cost, count=self._count, label=(cell.label or cell.spec)[:32])
        if self._count == len(self._costs):  # whatever the sum of so many floats came to
            self._bar.update(self._task, completed=self._bar.tasks[self._task].total)


class _Lines:
    """``name: 120 of 480 cells, 61 s, about 180 s left``: what is left is taken by cost, not by count."""

    def __init__(self, console: Console, name: str, costs: dict[str, float]) -> None:
        self._console, self._name, self._costs = console, name, costs
        self._total = sum(costs.values())
        self._started = self._told = time.monotonic()
        self._count, self._done = 0, 0.0

    def finished(self, cell: Cell) -> None:
        self._count += 1
        self._done += self._costs.get(cell.key, 0.0)
        now = time.monotonic()
        if now - self._told < LINE_EVERY:
            return
        self._told = now
        seconds = now - self._started
        share = self._done / self._total if self._total else self._count / len(self._costs)
        left = f", about {seconds * (1 - share) / share:.0f} s left" if 0 < share < 1 else ""
        text = f"{self._name}: {self._count} of {len(self._costs)} cells, {seconds:.0f} s{left}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress(console: Console | None, name: str, costs: dict[str, float]) -> Iterator[Reporter]:
    """Something to tell of finished cells. ``costs``: cell key -> cost in any unit, of the cells to come."""
    if console is None or not costs:
        yield _Silent()
    elif console.is_terminal:
        # Labels and specs are text, whatever brackets they have.
        name_column, label_column = (
            TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[label]")
        )
        count_column = TextColumn("{task.fields[count]}/{task.fields[cells]}")
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(name_column, BarColumn(), count_column, *times, label_column, console=console) as bar:
            yield _Bar(bar, name, costs)
    else:
        yield _Lines(console, name, costs)
