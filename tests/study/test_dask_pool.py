"""A Dask cluster gives the rows of a run in this process, a killed worker included."""

from __future__ import annotations

import socket
import sys

import pytest
from study.counting_study import CountingStudy
from study.dying_study import DyingStudy
from study.test_pool import found

from gemmsim import study
from gemmsim.study import dask_pool


def test_a_cluster_loses_nothing_when_a_worker_is_killed(tmp_path):
    pytest.importorskip("distributed", reason="needs gemmsim[cluster]")
    inline = study.run(DyingStudy(tmp_path), tmp_path / "inline")
    dying = DyingStudy(tmp_path, deaths={":e5m2": 1})
    summary = study.run(dying, tmp_path / "cluster", executor=study.Cluster("local", 2))
    assert (summary.computed, summary.failures) == (6, [])
    assert found(summary.rows) == found(inline.rows)
    assert {row["threads"] for row in summary.rows} == {1}
    assert len(list(tmp_path.glob("*.*"))) == 1, "it died once"


class Future:
    """Of a task that is never done."""

    status = "pending"

    def add_done_callback(self, call):
        pass

    def cancel(self):
        pass


class Unlucky:
    """A client whose worker is another one at every look: whatever it was at died with it."""

    status = "running"

    def __init__(self):
        self.submitted = []
        self.looks = 0

    def nthreads(self):
        self.looks += 1
        return {f"tcp://host:{self.looks}": 1}

    def submit(self, function, *args, **how):
        assert how["workers"] == [f"tcp://host:{self.looks}"]
        self.submitted.append(args[-1].spec)
        return Future()


def test_the_third_death_at_a_cell_gives_it_up(monkeypatch, tmp_path):
    monkeypatch.setattr(dask_pool, "_LOOK_EVERY", 0.001)
    client, cells = Unlucky(), CountingStudy().cells()[:2]
    outcomes = list(dask_pool._Job(client, b"", tmp_path, "same", cells).outcomes())
    assert client.submitted == [":e5m1"] * 3 + [":e5m2"] * 3
    assert [outcome.cell for outcome in outcomes] == cells and "3 times" in outcomes[0].error


def test_other_inputs_of_a_worker_are_refused(tmp_path):
    packed = dask_pool.packed_study(CountingStudy())
    cell = CountingStudy().cells()[0]
    with pytest.raises(study.StudyError, match="a Dask worker prepared other inputs.*inputs-1 instead of inputs-2"):
        dask_pool._compute(packed, str(tmp_path), "inputs-2", cell)
    assert dask_pool._compute(packed, str(tmp_path / "not here"), "inputs-1", cell)["score"] == 0.1


def test_a_scheduler_that_is_not_there_is_told_at_once(tmp_path):
    pytest.importorskip("distributed", reason="needs gemmsim[cluster]")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for address in (f"tcp://127.0.0.1:{port}", "nonsense"):
        with pytest.raises(study.StudyError, match=f"cannot reach a Dask scheduler at '{address}'.*--cluster local"):
            study.run(CountingStudy(), tmp_path, executor=study.Cluster(address))
    with pytest.raises(study.StudyError, match="allowed: 1 to 1,024"):
        study.Cluster("local", 0)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(study.StudyError, match=r"gemmsim\[cluster\]"):
        study.Cluster("local")
