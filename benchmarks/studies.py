"""What storing the rows of a study costs beside computing them: JSON lines, a row for each number of cells.

A study of 10,000 small products runs with every call of the store timed; then rows like its own are appended alone.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from harness import Report, options

from gemmsim import study
from gemmsim.study import runner, store


class _Timed(store.ResultStore):
    """The store, with the seconds spent in it."""

    spent = 0.0

    def add(self, row: store.Row) -> store.Row:
        began = time.perf_counter()
        try:
            return super().add(row)
        finally:
            _Timed.spent += time.perf_counter() - began

    def close(self) -> None:
        began = time.perf_counter()
        super().close()
        _Timed.spent += time.perf_counter() - began


def whole_run(cells: int, report: Report) -> list[store.Row]:
    """Growth with short sums, the cheapest cells that anybody would run: the store's share of them is the largest."""
    seeds = cells // 20
    chosen = study.kind("growth")(
        acc=["e8m10", "chunked(64, e8m10)", "pairwise(e8m10)", "kahan(e8m10)"],
        K="2^6:2^10:x2",
        dist="randn",
        seeds=seeds,
    )
    folder = tempfile.mkdtemp(prefix="gemmsim_")
    kept, runner.ResultStore = runner.ResultStore, _Timed  # type: ignore[misc]
    kept_report, runner.write_report = runner.write_report, lambda *_: None
    _Timed.spent = 0.0
    began = time.perf_counter()
    try:
        rows = study.run(chosen, folder).rows
    finally:
        runner.ResultStore, runner.write_report = kept, kept_report  # type: ignore[misc]
        seconds = time.perf_counter() - began
        shutil.rmtree(folder)
    share = _Timed.spent / seconds
    report.add(bench="study", cells=len(rows), seconds=seconds, store_seconds=_Timed.spent, store_share=share)
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


def main() -> None:
    args = options(__doc__)
    report = Report(args.out)
    for cells in (200,) if args.quick else (1_000, 10_000):
        rows_alone(whole_run(cells, report), report)
    report.close()


if __name__ == "__main__":
    main()
