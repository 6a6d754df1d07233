"""Running a study: what is left to do, what it costs, and doing it so that nothing finished is lost or repeated."""

from __future__ import annotations

import io
import platform
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .cells import Cell, Scalar
from .errors import StudyError
from .files import atomic_write_text, folder_lock, make_folder
from .registry import Row, Study, get
from .store import ResultStore, read_rows


@dataclass(frozen=True)
class Plan:
    """What ``run`` would do in a folder, without doing it."""

    study: Study
    cells: tuple[Cell, ...]
    finished: frozenset[str]
    #: Multiply-adds per second, (deterministic, stochastic), and whether this folder's rows gave them.
    rate: tuple[float, float]
    rate_is_measured: bool

    @property
    def todo(self) -> tuple[Cell, ...]:
        """The cells that ``run`` would compute, in order."""
        return tuple(cell for cell in self.cells if cell.key not in self.finished)

    def seconds(self, cells: Iterable[Cell]) -> float:
        """Estimated time for ``cells``: multiply-adds over rate."""
        return sum(cell.macs / self.rate[cell.stochastic] for cell in cells)


@dataclass(frozen=True)
class RunSummary:
    """What a run did: rows in the order of the study's cells, and how many cells were computed, reused and left."""

    folder: Path
    rows: list[Row]
    computed: int
    reused: int
    left: int
    #: Lines of results.jsonl that were damaged and dropped, in words.
    problems: list[str] = field(default_factory=list)


def plan(study: str | Study, folder: str | Path) -> Plan:
    """The cells of ``study`` and those already finished in ``folder``. Computes, writes and creates nothing."""
    study = get(study) if isinstance(study, str) else study
    rows, _ = read_rows(Path(folder))
    cells = tuple(study.cells())
    known = {cell.key for cell in cells}
    ours = [row for row in rows if row["cell"] in known]
    rate, measured = _rates(study, ours, {cell.key: cell.stochastic for cell in cells})
    return Plan(study, cells, frozenset(row["cell"] for row in ours), rate, measured)


def run(
    study: str | Study, folder: str | Path, *, limit: int | None = None, console: Console | None = None
) -> RunSummary:
    """Computes the unfinished cells of ``study`` (at most ``limit``) and stores each in ``folder`` as it is done.

    Cells finished earlier are never computed again, unless what ``prepare`` made is not what they were computed with.
    With ``console`` a progress bar is shown. Writes results.jsonl, results.csv, table.txt and plot.png.

    Raises:
        StudyError: unknown study, negative ``limit``, unusable folder, a folder another run is writing to.
    """
    study = get(study) if isinstance(study, str) else study
    if limit is not None and limit < 0:
        raise StudyError(f"limit={limit}; allowed: 0 or more cells.")
    path = make_folder(Path(folder))
    with folder_lock(path):
        store = ResultStore(path)
        cells = list(study.cells())
        computed = _compute(study, cells, store, path, limit, console)
    rows = [row for cell in cells if (row := store.get(cell.key)) is not None]
    left = len(cells) - len(rows)
    if rows:
        _report(study, rows, path)
    return RunSummary(path, rows, computed, len(rows) - computed, left, store.problems)


def _compute(
    study: Study, cells: list[Cell], store: ResultStore, path: Path, limit: int | None, console: Console | None
) -> int:
    finished = [row for cell in cells if (row := store.get(cell.key)) is not None]
    same_inputs = len({row.get("fingerprint") for row in finished}) <= 1
    if limit == 0 or (len(finished) == len(cells) and same_inputs):
        return 0
    context = study.prepare(path)
    todo = [cell for cell in cells if not _is_finished(store.get(cell.key), context.fingerprint)][:limit]
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=console is None,
    )
    with bar:
        task = bar.add_task(study.name, total=len(todo))
        for cell in todo:
            bar.update(task, description=f"{study.name} {cell.spec}")
            store.add(_measure(study, cell, context))
            bar.advance(task)
    return len(todo)


def _measure(study: Study, cell: Cell, context: Any) -> Row:
    start = time.perf_counter()
    measured = study.evaluate(cell, context)
    seconds = time.perf_counter() - start
    return {**cell.row(), **measured, "seconds": round(seconds, 6), "fingerprint": context.fingerprint, **versions()}


def _is_finished(row: Row | None, fingerprint: str) -> bool:
    return row is not None and row.get("fingerprint") == fingerprint


def _report(study: Study, rows: list[Row], path: Path) -> None:
    text = io.StringIO()
    Console(file=text, width=110, force_terminal=False, color_system=None).print(study.table(rows))
    atomic_write_text(path / "table.txt", text.getvalue())
    study.plot(rows, path / "plot.png")


def versions() -> dict[str, Scalar]:
    """The columns that say with what a row was computed."""
    columns: dict[str, Scalar] = {name: _version(name) for name in ("gemmsim", "torch", "numpy")}
    return {**columns, "python": platform.python_version(), "machine": platform.machine()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        module = __import__(package)
        return str(getattr(module, "__version__", "unknown"))


def _rates(study: Study, rows: list[Row], stochastic: dict[str, bool]) -> tuple[tuple[float, float], bool]:
    rates = list(study.declared_rate)
    measured = False
    for kind in (False, True):
        done = [row for row in rows if stochastic[row["cell"]] is kind and row.get("macs") and row.get("seconds")]
        if done:
            # The median: the first cell of a run also pays for loading and starting threads.
            rates[kind] = statistics.median(row["macs"] / row["seconds"] for row in done)
            measured = True
    return (rates[False], rates[True]), measured
