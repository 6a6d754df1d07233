"""Seconds of studies, and what storing their rows costs beside computing them: JSON lines, a row for each.

First what is asked of whole studies on two cores: the digits table, growth to K = 2^20 under six accumulators, and the
command for the digits from its start to its end. Then a study of 10,000 products runs with every call of the store
timed: one with cells of some ten milliseconds, the least that anybody waits for, and one with the cheapest that anybody
would run. Then rows like its own are appended alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Report, options

from gemmsim import study
from gemmsim.study import runner, store


class _Timed(store.ResultStore):
    """The store, with the seconds spent in it. Its processor time is not asked for: that is a call of the system, and
    on a machine with other work such calls are where a thread that has computed for a while has to wait its turn.
    """

    spent = 0.0

    @classmethod
    @contextlib.contextmanager
    def timed(cls) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            cls.spent += time.perf_counter() - began

    def add(self, row: store.Row) -> None:
        with self.timed():
            super().add(row)

    def close(self) -> None:
        with self.timed():
            super().close()


#: Sizes of cells: lengths of the sums, rows and columns of the result; and the share that is asked of the store.
SIZES = {"10 ms": ("2^11", 64), "small": ("2^6:2^10:x2", 32)}
ASKED = {"10 ms": 0.01}


def computed(chosen: str | study.Study) -> tuple[list[store.Row], float]:
    """Rows of a run, and its seconds without pictures and tables."""
    folder = tempfile.mkdtemp(prefix="gemmsim_")
    kept, runner.write_report = runner.write_report, lambda *_: None
    began = time.perf_counter()
    try:
        rows = study.run(chosen, folder).rows
    finally:
        seconds = time.perf_counter() - began
        runner.write_report = kept
        shutil.rmtree(folder)
    return rows, seconds


def whole_run(cells: int, size: str, report: Report) -> list[store.Row]:
    """Growth of short sums, whose seconds are all those of ``study.run`` less pictures and tables."""
    lengths, side = SIZES[size]
    accumulators = ["e8m10", "chunked(64, e8m10)", "pairwise(e8m10)", "kahan(e8m10)"]
    grid = study.kind("growth")(spec=accumulators, K=lengths, dist="randn", M=side, N=side)
    chosen = study.kind("growth")(
        spec=accumulators, K=lengths, dist="randn", M=side, N=side, seeds=cells // len(grid.cells())
    )
    kept, runner.ResultStore = runner.ResultStore, _Timed  # type: ignore[misc]
    _Timed.spent = 0.0
    try:
        rows, seconds = computed(chosen)
    finally:
        runner.ResultStore = kept  # type: ignore[misc]
    share = _Timed.spent / seconds
    met = share <= ASKED[size] if size in ASKED else None
    report.add(
        bench="study", size=size, cells=len(rows), seconds=seconds, ms_a_cell=1e3 * seconds / len(rows),
        store_seconds=_Timed.spent, store_share=share, asked=ASKED.get(size), met=met,
    )  # fmt: skip
    return rows


def rows_alone(rows: list[store.Row], report: Report) -> None:
    """Appending, and opening the folder again."""
    folder = Path(tempfile.mkdtemp(prefix="gemmsim_"))
    began = time.perf_counter()
    with store.ResultStore(folder) as opened:
        for row in rows:
            opened.add(row)
    appended = time.perf_counter()
    with store.ResultStore(folder) as opened:
        assert len(opened) == len(rows)
    read = time.perf_counter()
    size = (folder / "results.jsonl").stat().st_size
    shutil.rmtree(folder)
    report.add(
        bench="store",
        rows=len(rows),
        append_us_a_row=1e6 * (appended - began) / len(rows),
        open_us_a_row=1e6 * (read - appended) / len(rows),
        bytes_a_row=size / len(rows),
    )


def command() -> float:
    """Seconds of ``gemmsim study run digits`` in a new folder, from the process's start to its end. Bytecode is kept,
    as it is for users: compiling all that is imported anew takes as long again."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="gemmsim_") as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "gemmsim", "study", "run", "digits", "--out", folder],
            check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return time.perf_counter() - began


#: Seconds that are asked of a study on two cores.
ASKED_SECONDS = {"digits table": 3.0, "growth to 2^20": 30.0, "digits command": 5.0}
ORDERS = ["e8m10", "e8m10/rtz", "e8m10/sr", "chunked(64, e8m10)", "pairwise(e8m10)", "kahan(e8m10)"]


def whole_studies(report: Report, rounds: int, quick: bool) -> None:
    """Least and median seconds of each study that has a figure to meet; the first command warms the file cache."""
    growth = study.kind("growth")(spec=ORDERS, K="2^6:2^10:x2" if quick else "2^6:2^20:x2", dist="rand01")
    runs = {
        "digits table": lambda: computed("digits")[1],
        "growth to 2^20": lambda: computed(growth)[1],
        "digits command": command,
    }
    command()
    taken = {name: [run() for _ in range(rounds)] for name, run in runs.items()}
    for name, seconds in taken.items():
        asked, median = ASKED_SECONDS[name], statistics.median(seconds)
        report.add(
            bench="whole", study=name, least=min(seconds), median=median, rounds=rounds, asked=asked,
            met=None if quick else median <= asked,
        )  # fmt: skip


def main() -> None:
    args = options(__doc__)
    report = Report(args.out)
    whole_studies(report, 1 if args.quick else args.rounds, args.quick)
    for cells in (200,) if args.quick else (1_000, 10_000):
        for size in SIZES:
            rows = whole_run(cells, size, report)
        rows_alone(rows, report)
    report.close()


if __name__ == "__main__":
    main()
