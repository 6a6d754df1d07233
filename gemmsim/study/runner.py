"""Running a study: what is left to do, what it costs, and doing it so that nothing finished is lost or repeated."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from gemmsim._html import html_table

from .base import Study
from .cells import Cell, Row
from .checks import Verdict, judge, passed
from .errors import StudyError
from .execution import Executor, Failure, Inline, Worker
from .files import atomic_write_text, folder_lock, make_folder, writing
from .kinds.kind import Kind
from .parameters import Parameters
from .plots.style import together
from .progress import progress
from .registry import get, kinds, names
from .store import ResultStore, claim, note, read_rows, to_csv

#: Seconds that a cell takes beside its product: operands, metrics, its row. Small cells took 1.5 to 2.7 ms in all.
CELL_SECONDS = 0.002


@dataclass(frozen=True, repr=False)
class Plan:
    """What ``run`` would do in a folder, without doing it.

    Example:
        >>> gs.study.plan("swamping", "no such folder")
        <Plan of 'swamping': 8 of 8 cells to compute>
    """

    study: Study
    cells: tuple[Cell, ...]
    finished: frozenset[str]
    #: Multiply-adds per second, (deterministic, stochastic), and whether this folder's rows gave them.
    rate: tuple[float, float]
    rate_is_measured: bool

    @property
    def todo(self) -> tuple[Cell, ...]:
        """The cells that ``run`` would compute, in order.

        Example:
            >>> len(gs.study.plan("swamping", "no such folder").todo)
            8
        """
        return tuple(cell for cell in self.cells if cell.key not in self.finished)

    def __repr__(self) -> str:
        return f"<Plan of {self.study.name!r}: {len(self.todo)} of {len(self.cells)} cells to compute>"

    def seconds(self, cells: Iterable[Cell]) -> float:
        """Return the estimated time for ``cells`` in seconds: multiply-adds divided by the rate, plus two
        milliseconds each.

        Example:
            >>> plan = gs.study.plan("swamping", "no such folder")
            >>> 0.016 < plan.seconds(plan.todo) < 1
            True
        """
        return sum(CELL_SECONDS + cell.macs / self.rate[cell.stochastic] for cell in cells)


@dataclass(frozen=True, repr=False)
class RunSummary:
    """What a run did: rows in the order of the study's cells, and how many cells were computed, reused and left.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     summary = gs.study.run("swamping", folder, limit=1)
        >>> summary.computed, summary.left, summary.rows[0]["label"]
        (1, 7, 'sequential')
    """

    folder: Path
    rows: list[Row]
    computed: int
    reused: int
    left: int
    #: Lines of results.jsonl that were damaged and set aside, in words.
    problems: list[str] = field(default_factory=list)
    #: Cells that were given up, with the reason.
    failures: list[Failure] = field(default_factory=list)
    #: What became of the study's expectations.
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no expectation failed and no cell was given up; for an incomplete run: so far.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     print(gs.study.run("swamping", folder).ok)
            True
        """
        return passed(self.verdicts) and not self.failures

    def __repr__(self) -> str:
        return f"<RunSummary of {str(self.folder)!r}: {self._counts()}>"

    def _repr_html_(self) -> str:
        rows = [(one.word, one.expectation.words(), one.found()) for one in self.verdicts]
        title = f"{self.folder}: {self._counts()}"
        return html_table(("verdict", "check", "found"), rows, notes=[title, *self.problems])

    def _counts(self) -> str:
        counts = f"{self.computed} cells computed, {self.reused} reused, {self.left} left"
        held = sum(one.ok is True for one in self.verdicts)
        verdicts = f"; {held} of {len(self.verdicts)} expectations hold" if self.verdicts else ""
        return f"{counts}{verdicts}{f', {len(self.failures)} cells failed' if self.failures else ''}"


def plan(study: str | Study, folder: str | Path) -> Plan:
    """Return the cells of ``study``, and those already finished in ``folder``. Computes, writes and creates nothing.

    Example:
        >>> gs.study.plan("swamping", "no such folder")
        <Plan of 'swamping': 8 of 8 cells to compute>
    """
    study = get(study) if isinstance(study, str) else study
    rows, _ = read_rows(Path(folder))
    cells = distinct(study.cells())
    known = {cell.key for cell in cells}
    ours = [row for row in rows if row["cell"] in known]
    rate, measured = _rates(study, ours, {cell.key: cell.stochastic for cell in cells})
    return Plan(study, cells, frozenset(row["cell"] for row in ours), rate, measured)


def run(
    study: str | Study,
    folder: str | Path,
    *,
    limit: int | None = None,
    console: Console | None = None,
    executor: Executor | None = None,
    shard: tuple[int, int] | None = None,
) -> RunSummary:
    """Compute the unfinished cells of ``study`` (at most ``limit``) and store each in ``folder`` when it is finished.

    Finished cells are not computed again, unless ``prepare`` now returns something else than what they were computed
    with. ``console`` shows the progress. ``executor`` says where cells are computed; by default here, sequentially.
    ``shard=(i, n)``, 1 <= i <= n, takes only the cells of the i-th of n parts. The function appends to results.jsonl
    during the run, and writes results.csv, table.txt, verdicts.json, plot.png and plot.svg at the end.

    Raises:
        StudyError: for an unknown study, negative ``limit``, unusable folder, a folder of another study or version,
            one to which another run is writing, a full disk. Finished cells are safe.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> study = gs.study.kind("growth")(spec=["e5m10", "kahan(e5m10)"], K=256, dist="rand01")
        >>> with TemporaryDirectory() as folder:
        ...     summary = gs.study.run(study, folder)
        ...     print({row["label"]: f"{row['rel_fro']:.1e}" for row in summary.rows})
        {'e5m10': '1.8e-03', 'kahan(e5m10)': '2.4e-04'}
    """
    study = get(study) if isinstance(study, str) else study
    if limit is not None and limit < 0:
        raise StudyError(f"limit={limit}; allowed: 0 or more cells.")
    cells = sharded(distinct(study.cells()), shard)
    path = make_folder(Path(folder))
    with folder_lock(path):
        claim(path, study.name, _parameters(study))
        with ResultStore(path) as store:
            computed, failures = _compute(study, cells, store, path, limit, console, executor or Inline())
            rows = [row for cell in cells if (row := store.get(cell.key)) is not None]
            everything, problems = store.rows(), store.problems
        left = len(cells) - len(rows)
        verdicts = judge(study.expectations(), rows, complete=left == 0 and shard is None)
        if rows:
            write_report(study, rows, everything, verdicts, path)
    return RunSummary(path, rows, computed, len(rows) - computed, left, problems, failures, verdicts)


def distinct(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """``cells`` with each measurement once, the first time it comes."""
    return tuple({cell.key: cell for cell in cells}.values())


def sharded(cells: tuple[Cell, ...], shard: tuple[int, int] | None) -> tuple[Cell, ...]:
    """The cells of part i of n: those whose key modulo n is i - 1. All without ``shard``.

    Raises:
        StudyError: i is not in 1 ... n.
    """
    if shard is None:
        return cells
    part, parts = shard
    if not 1 <= part <= parts:
        raise StudyError(f"shard {part}/{parts}; allowed: i/n with 1 <= i <= n, such as 1/4.")
    return tuple(cell for cell in cells if int(cell.key, 16) % parts == part - 1)


def write_report(study: Study, rows: list[Row], everything: list[Row], verdicts: Sequence[Verdict], path: Path) -> None:
    """results.csv, table.txt, verdicts.json and the pictures, each whole or absent; what pages say into study.json."""
    text = io.StringIO()
    out = Console(file=text, width=120, force_terminal=False, color_system=None, markup=False, emoji=False)
    out.print(study.table(rows))
    atomic_write_text(path / "results.csv", to_csv(everything))
    atomic_write_text(path / "table.txt", text.getvalue())
    atomic_write_text(path / "verdicts.json", json.dumps([_verdict_row(v) for v in verdicts], indent=1) + "\n")
    note(
        path,
        title=study.title,
        kind=study.kind,
        command=command_of(study, path),
        finding=study.finding(rows),
        metrics=[part.metric for part in getattr(study, "parts", ()) if hasattr(part, "metric")],
    )
    with together(path / "plot.png", path / "plot.svg") as pictures:
        for picture in pictures:
            if not pictures[picture]:
                with writing(picture):
                    study.plot(rows, picture)


def command_of(study: Study, folder: Path) -> str:
    """What runs ``study`` into ``folder``: a command where it is one of ours, else a line of Python."""
    out = shlex.quote(str(folder))
    if study.name in names():
        if type(study).__module__.startswith("gemmsim."):
            return f"gemmsim study run {study.name} --out {out}"
        return f"gemmsim.study.run({study.name!r}, {str(folder)!r})  # registered: {type(study).__module__}"
    parts: Sequence[Parameters] = getattr(study, "parts", ())
    if len(parts) == 1 and study.kind in kinds():
        return " ".join(filter(None, ["gemmsim study run", study.kind, parts[0].command(), "--out", out]))
    return f"gemmsim.study.run({type(study).__module__}.{type(study).__qualname__}(...), {str(folder)!r})"


def _verdict_row(verdict: Verdict) -> Row:
    wanted = verdict.expectation
    return {
        "check": wanted.words(),
        "metric": wanted.metric,
        "verdict": verdict.word,
        "found": verdict.found(),
        "published": wanted.published or None,
        "source": wanted.source,
        "derived": wanted.derived,
        "place": wanted.place,
    }


def _compute(
    study: Study,
    cells: tuple[Cell, ...],
    store: ResultStore,
    path: Path,
    limit: int | None,
    console: Console | None,
    executor: Executor,
) -> tuple[int, list[Failure]]:
    finished = [row for cell in cells if (row := store.get(cell.key)) is not None]
    same_inputs = len({row.get("fingerprint") for row in finished}) <= 1
    if limit == 0 or (len(finished) == len(cells) and same_inputs):
        return 0, []
    worker = Worker(study, path)
    todo = [cell for cell in cells if not _is_finished(store.get(cell.key), worker.fingerprint)][:limit]
    by_key = {cell.key: cell for cell in todo}
    computed, failures = 0, []
    costs = {cell.key: cell.macs / study.declared_rate[cell.stochastic] for cell in todo}
    with progress(console, study.name, costs) as shown:
        outcomes = executor.run(worker, path, todo)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                    _note(path, outcome)
                    shown.finished(outcome.cell)
                    continue
                store.add(outcome)
                computed += 1
                shown.finished(by_key[outcome["cell"]])
    return computed, failures


def _note(path: Path, failure: Failure) -> None:
    file = path / "failures.jsonl"
    with writing(file), file.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps({**failure.cell.row(), "error": failure.error}) + "\n")


def _parameters(study: Study) -> list[dict[str, str | list[str]]]:
    """The parameters of a kind run by its own name, one set for each part: the name alone does not say them."""
    return [part.given() for part in study.parts] if isinstance(study, Kind) and study.name == study.kind else []


def _is_finished(row: Row | None, fingerprint: str) -> bool:
    return row is not None and row.get("fingerprint") == fingerprint


def _rates(study: Study, rows: list[Row], stochastic: dict[str, bool]) -> tuple[tuple[float, float], bool]:
    rates = list(study.declared_rate)
    measured = False
    for kind in (False, True):
        done = [row for row in rows if stochastic[row["cell"]] is kind and row.get("macs") and row.get("elapsed_s")]
        if done:
            # The median: the first cell of a run also pays for loading and starting threads.
            rates[kind] = statistics.median(row["macs"] / row["elapsed_s"] for row in done)
            measured = True
    return (rates[False], rates[True]), measured
