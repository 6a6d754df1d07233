"""Worker processes give the rows of a run in this process, die without loss, and their errors arrive as they are."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import defaultdict

import pytest
import torch
from study.counting_study import CountingStudy
from study.dying_study import DyingStudy, SharedStudy

from gemmsim import study
from gemmsim.formats import FormatError
from gemmsim.study import execution, pool
from gemmsim.study.cells import Cell
from gemmsim.study.execution import Assignment
from gemmsim.study.records import TIME_COLUMNS


def found(rows):
    """What was measured: rows by cell, without the columns that differ between two runs."""
    return {row["cell"]: {k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in rows}


@pytest.fixture(scope="module")
def growth():
    # 184 x 184 outputs: PyTorch would split sums of so many numbers by the number of threads.
    return study.kind("growth")(spec=["e5m10", "bf16/sr", "kahan(e5m10)"], K="8,24", M=184, N=184, dist="randn,rand01")


@pytest.fixture(scope="module")
def inline(growth, tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execution, "SMALL_CELL", 0)
            return study.run(growth, tmp_path_factory.mktemp("inline"))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_do_not_depend_on_workers_or_threads(growth, inline, workers, tmp_path):
    here = study.run(growth, tmp_path, executor=study.Processes(workers))
    assert found(here.rows) == found(inline.rows) and len(here.rows) == 12
    assert {row["threads"] for row in here.rows} == {1}
    assert {row["threads"] for row in inline.rows} == {2}
    again = study.run(growth, tmp_path, executor=study.Processes(workers))
    assert (again.computed, again.reused) == (0, 12)


def test_cells_of_equal_operands_go_to_one_worker(tmp_path):
    rows = study.run(SharedStudy(), tmp_path, executor=study.Processes(2)).rows
    makers = defaultdict(set)
    for row in rows:
        makers[row["run"]].add(row["macs_per_s"])
    assert len(rows) == 24 and len({pid for pids in makers.values() for pid in pids}) == 2
    # Only a worker with nothing left takes half of what another one is at.
    assert sum(len(pids) for pids in makers.values()) <= 6


def test_a_worker_that_dies_gives_its_cell_back(tmp_path):
    dying = DyingStudy(tmp_path, deaths={":e5m2": 2, ":e5m5": 1})
    summary = study.run(dying, tmp_path / "out", executor=study.Processes(2))
    assert (summary.computed, summary.left, summary.failures) == (6, 0, [])
    assert found(summary.rows).keys() == {cell.key for cell in dying.cells()}
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 6


def test_the_third_death_at_a_cell_gives_it_up_and_the_run_goes_on(tmp_path):
    dying = DyingStudy(tmp_path, deaths={":e5m2": 9})
    summary = study.run(dying, tmp_path / "out", executor=study.Processes(2))
    assert (summary.computed, summary.left, summary.ok) == (5, 1, False)
    (failure,) = summary.failures
    assert failure.cell.spec == ":e5m2" and "signal 9" in failure.error and "3 times" in failure.error
    (noted,) = map(json.loads, (tmp_path / "out" / "failures.jsonl").read_text().splitlines())
    assert noted["cell"] == failure.cell.key and noted["error"] == failure.error
    assert len(list(tmp_path.glob("*.*"))) == 3, "died three times, no more"


@pytest.mark.parametrize(
    "name, wanted, said",
    [
        ("FormatError", FormatError, "no such format"),
        ("EOFError", EOFError, "not the pipe's"),
        ("Unpicklable", RuntimeError, "Unpicklable: 1 and 2"),
        ("KeyboardInterrupt", KeyboardInterrupt, "^$"),
    ],
)
def test_an_error_of_evaluate_stops_the_run_as_it_is(tmp_path, name, wanted, said):
    dying = DyingStudy(tmp_path, errors={":e5m4": name})
    with pytest.raises(wanted, match=said) as caught:
        study.run(dying, tmp_path / "out", executor=study.Processes(1))
    assert caught.type is wanted
    assert "in evaluate" in str(caught.value.__cause__), "the traceback of the worker"
    assert len(study.load_rows(tmp_path / "out")) == 3
    assert not multiprocessing.active_children()


def test_other_inputs_in_a_worker_are_refused(tmp_path):
    dying = DyingStudy(tmp_path)
    dying.differ = True
    with pytest.raises(study.StudyError, match="prepared other inputs.*instead of same"):
        study.run(dying, tmp_path / "out", executor=study.Processes(2))


def test_workers_that_die_before_their_first_cell_end_the_run(tmp_path):
    dying = DyingStudy(tmp_path)
    dying.die_at_start = True
    with pytest.raises(study.StudyError, match="exit status 7 before their first cell.*__main__"):
        study.run(dying, tmp_path / "out", executor=study.Processes(2))


@pytest.fixture
def heeds_ctrl_c():
    """As in a terminal: a shell starts what runs in its background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_kills_the_workers_and_keeps_the_rows(tmp_path):
    dying = DyingStudy(tmp_path)
    dying.pause = 1.0
    out = tmp_path / "out"

    def interrupt():
        while not (out / "results.jsonl").is_file() or not (out / "results.jsonl").stat().st_size:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        study.run(dying, out, executor=study.Processes(2))
    thread.join()
    assert not multiprocessing.active_children()
    kept = len(study.load_rows(out))
    assert 1 <= kept < 6
    dying.pause = 0.0
    assert study.run(dying, out, executor=study.Processes(2)).reused == kept


def test_what_cannot_be_asked_for_is_refused(tmp_path):
    for workers in (0, -1, 1025, True, 1.5):
        with pytest.raises(study.StudyError, match="allowed: 1 to 1,024"):
            study.Processes(workers)

    class Local(CountingStudy):
        pass

    with pytest.raises(study.StudyError, match="cannot be sent to other processes.*top of a module"):
        study.run(Local(), tmp_path, executor=study.Processes(1))


def test_every_study_can_be_sent():
    for name in study.names():
        chosen = study.get(name)
        assert [c.key for c in pickle.loads(pool.packed_study(chosen)).cells()] == [c.key for c in chosen.cells()]


def cells(*runs: tuple[str, int]) -> list[Cell]:
    return [Cell("s", "", "", i, (("o", operands),), operands=operands) for operands, n in runs for i in range(n)]


def test_assignment_keeps_runs_together_then_shares_the_longest():
    assignment = Assignment(cells(("a", 5), ("b", 2)))
    first, second = [assignment.take("one") for _ in range(1)], [assignment.take("two") for _ in range(2)]
    assert [cell.operands for cell in (*first, *second)] == ["a", "b", "b"]
    # Four are left of a: the later two go to the worker that has none.
    assert [assignment.take("two").seed for _ in range(2)] == [3, 4]
    assert [assignment.take("one").seed for _ in range(2)] == [1, 2]
    assert assignment.take("one") is None and assignment.take("two") is None


def test_every_cell_is_given_out_once_whoever_asks():
    given = cells(("a", 7), ("", 3), ("b", 1), ("c", 4))
    for workers in (1, 2, 5, 20):
        assignment = Assignment(given)
        taken = []
        while (cell := assignment.take(len(taken) * 7 % workers)) is not None:
            taken.append(cell)
        assert sorted(cell.key for cell in taken) == sorted(cell.key for cell in given)


def test_cells_of_the_dead_are_given_again_three_times():
    assignment = Assignment(cells(("a", 2)))
    for death in range(3):
        cell = assignment.take(death)
        assert cell.seed == 0
        assert assignment.give_back(death, cell) is (death < 2)
    assert assignment.take("next").seed == 1 and assignment.take("next") is None
