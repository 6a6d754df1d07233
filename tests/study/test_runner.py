"""A finished cell is never computed again; an interrupted, damaged or partial result is noticed and completed."""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os

import pytest
import torch
from study.counting_study import CountingStudy

from gemmsim import study
from gemmsim.study import cells, execution, files, store
from gemmsim.study.cells import Cell
from gemmsim.study.runner import CELL_SECONDS

ALL = {f":e5m{t}": 1 for t in range(1, 7)}


def lines(folder) -> list[str]:
    return (folder / "results.jsonl").read_text().splitlines()


def test_a_run_computes_every_cell_once_and_a_second_one_none(tmp_path):
    counting = CountingStudy()
    first = study.run(counting, tmp_path)
    assert (first.computed, first.reused, first.left) == (6, 0, 0)
    before = lines(tmp_path)
    second = study.run(counting, tmp_path)
    assert (second.computed, second.reused, second.left) == (0, 6, 0)
    assert counting.computed == ALL
    assert counting.prepared == 1, "nothing is trained when nothing is left"
    assert lines(tmp_path) == before


def test_small_cells_are_computed_in_one_thread(tmp_path):
    class Sized(CountingStudy):
        sizes = {1: 1, 2: execution.SMALL_CELL - 1, 3: execution.SMALL_CELL, 4: 2**40, 5: 0, 6: 1}

        def cells(self):
            sized = [(cell, self.sizes[dict(cell.columns)["trailing"]]) for cell in super().cells()]
            return [dataclasses.replace(cell, macs=macs) for cell, macs in sized]

        def evaluate(self, cell, context):
            return {**super().evaluate(cell, context), "of": torch.get_num_threads()}

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        rows = study.run(Sized(), tmp_path).rows
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert [row["of"] for row in rows] == [row["threads"] for row in rows] == [1, 1, 3, 3, 3, 1]


def test_limit_stops_early_and_the_next_run_goes_on(tmp_path):
    counting = CountingStudy()
    first = study.run(counting, tmp_path, limit=2)
    assert (first.computed, first.left, len(lines(tmp_path))) == (2, 4, 2)
    second = study.run(counting, tmp_path)
    assert (second.computed, second.reused, second.left) == (4, 2, 0)
    assert counting.computed == ALL


def test_an_interrupted_run_keeps_what_it_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        study.run(CountingStudy(fail_at=":e5m4"), tmp_path)
    assert len(lines(tmp_path)) == 3
    counting = CountingStudy()
    assert study.run(counting, tmp_path).reused == 3
    assert set(counting.computed) == {":e5m4", ":e5m5", ":e5m6"}


DAMAGES = {
    "cut short": lambda line: line[: len(line) // 2],
    "value changed": lambda line: line.replace('"score": 0.2', '"score": 0.9'),
    "not a row": lambda line: "[1, 2]",
    "other layout": lambda line: line.replace('"schema": 2', '"schema": 1'),
    "binary": lambda line: "\ufffd\x00\x01",
    "no digest": lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != "digest"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_reported_and_only_its_cell_computed_again(tmp_path, damage):
    study.run(CountingStudy(), tmp_path)
    broken = lines(tmp_path)
    assert broken[1] != DAMAGES[damage](broken[1])
    broken[1] = DAMAGES[damage](broken[1])
    (tmp_path / "results.jsonl").write_text("\n".join(broken) + "\n")
    counting = CountingStudy()
    summary = study.run(counting, tmp_path)
    assert counting.computed == {":e5m2": 1}
    assert len(summary.problems) == 1 and "line 2" in summary.problems[0]
    assert study.run(counting, tmp_path).problems == []


def test_a_write_that_fails_leaves_the_finished_rows(tmp_path, monkeypatch):
    study.run(CountingStudy(), tmp_path, limit=3)
    before = lines(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "WRITE_EVERY", 0.0)
    monkeypatch.setattr(store, "SYNC_EVERY", -1.0)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(study.StudyError, match="No space left.*Finished cells are safe"):
        study.run(CountingStudy(), tmp_path)
    monkeypatch.undo()
    kept = lines(tmp_path)
    assert kept[:3] == before and len(kept) < 6
    assert study.run(CountingStudy(), tmp_path).computed == 6 - len(kept)


def test_rows_computed_with_other_inputs_are_computed_again(tmp_path):
    study.run(CountingStudy("inputs-1"), tmp_path, limit=5)
    other = CountingStudy("inputs-2")
    assert study.run(other, tmp_path).computed == 6
    assert {row["fingerprint"] for row in study.load_rows(tmp_path)} == {"inputs-2"}
    assert len(lines(tmp_path)) == 5 + 6, "nothing is overwritten"


def test_a_partly_renewed_folder_is_completed(tmp_path):
    study.run(CountingStudy("inputs-1"), tmp_path)
    (tmp_path / "results.jsonl").write_text("\n".join(lines(tmp_path)[:-1]) + "\n")
    study.run(CountingStudy("inputs-2"), tmp_path, limit=2)
    final = CountingStudy("inputs-2")
    study.run(final, tmp_path)
    rows = study.load_rows(tmp_path)
    assert len(rows) == 6 and {row["fingerprint"] for row in rows} == {"inputs-2"}


def test_a_folder_belongs_to_one_study(tmp_path):
    study.run(CountingStudy(), tmp_path)
    other = CountingStudy()
    other.name = "another"
    with pytest.raises(study.StudyError, match="holds results of 'counting', not of 'another'.*--out"):
        study.run(other, tmp_path)


def test_rows_of_another_version_are_refused_and_kept(tmp_path):
    old = json.dumps({"schema": 1, "cell": "a"})
    (tmp_path / "results.jsonl").write_text(
        json.dumps({**json.loads(old), "digest": cells.digest(json.loads(old))}) + "\n"
    )
    before = lines(tmp_path)
    with pytest.raises(study.StudyError, match="layout 1; this version reads and writes 2"):
        study.run(CountingStudy(), tmp_path)
    assert lines(tmp_path) == before


def test_a_row_that_was_being_written_is_cut_back(tmp_path):
    study.run(CountingStudy(), tmp_path)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    counting = CountingStudy()
    summary = study.run(counting, tmp_path)
    assert counting.computed == {":e5m6": 1} and summary.problems == []
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:5]))
    assert len(lines(tmp_path)) == 6


def test_csv_holds_the_same_rows(tmp_path):
    study.run(CountingStudy(), tmp_path)
    with (tmp_path / "results.csv").open() as handle:
        table = list(csv.DictReader(handle))
    for line, row in zip(lines(tmp_path), table, strict=True):
        assert {key: store.as_text(value) for key, value in json.loads(line).items()} == row


def test_rows_say_with_what_they_were_computed(tmp_path):
    row = study.run(CountingStudy(), tmp_path, limit=1).rows[0]
    for column in ("study", "spec", "seed", "macs", "elapsed_s", "fingerprint", "library", "torch", "numpy", "python"):
        assert row[column] not in ("", None), column


def test_only_one_run_at_a_time_writes_to_a_folder(tmp_path):
    with files.folder_lock(tmp_path), pytest.raises(study.StudyError, match="another run"):
        study.run(CountingStudy(), tmp_path)
    assert study.run(CountingStudy(), tmp_path).computed == 6


def test_a_plan_creates_nothing_and_knows_what_is_left(tmp_path):
    folder = tmp_path / "absent"
    plan = study.plan(CountingStudy(), folder)
    assert len(plan.todo) == 6 and not plan.rate_is_measured and not folder.exists()
    assert plan.seconds(plan.todo) == pytest.approx(
        6 * CELL_SECONDS + 3 * 1000 / 4e9 + 3 * 1000 / 1e9, rel=8 * 2.0**-53
    )  # a sum of 6 in float64
    study.run(CountingStudy(), folder, limit=4)
    plan = study.plan(CountingStudy(), folder)
    assert [cell.spec for cell in plan.todo] == [":e5m5", ":e5m6"] and plan.rate_is_measured


def test_cell_keys_depend_on_everything_but_the_cost():
    cell = Cell("s", "setting", ":e5m2", 0, (("n", 1),), macs=5)
    assert cell.key == Cell("s", "setting", ":e5m2", 0, (("n", 1),), macs=6).key
    others = [
        Cell("t", "setting", ":e5m2", 0, (("n", 1),)),
        Cell("s", "other", ":e5m2", 0, (("n", 1),)),
        Cell("s", "setting", ":e5m3", 0, (("n", 1),)),
        Cell("s", "setting", ":e5m2", 1, (("n", 1),)),
        Cell("s", "setting", ":e5m2", 0, (("n", 2),)),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 6


def test_further_studies_register(tmp_path, monkeypatch):
    monkeypatch.setattr(study.registry, "_STUDIES", dict(study.registry._STUDIES))
    study.register("counting", CountingStudy)
    study.register("counting", CountingStudy)
    assert "counting" in study.names()
    assert study.run("counting", tmp_path).computed == 6
    with pytest.raises(study.StudyError, match="exists already"):
        study.register("counting", lambda: CountingStudy())


def test_bad_input_says_what_to_do(tmp_path):
    with pytest.raises(study.StudyError, match="Did you mean 'digits'"):
        study.get("digit")
    with pytest.raises(study.StudyError, match="limit=-1"):
        study.run(CountingStudy(), tmp_path, limit=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(study.StudyError, match="--out"):
        study.run(CountingStudy(), tmp_path / "file")
    with pytest.raises(study.StudyError, match="no results"):
        study.load_rows(tmp_path / "nowhere")
