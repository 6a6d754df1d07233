"""Shards joined are the whole: same rows, one for each cell, verdicts of all of them; strangers are refused."""

from __future__ import annotations

import json

import pytest
from study.counting_study import CountingStudy
from study.test_pool import found
from typer.testing import CliRunner

from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study import runner, store
from gemmsim.study.kinds import growth as growth_kind
from gemmsim.study.registry import with_parameters


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawn elsewhere; half a second each."""
    monkeypatch.setattr(growth_kind, "growth_plot", lambda rows, metric, title, path: path.touch())


def growth(**given):
    return study.kind("growth")(**{"spec": ["e5m10", "c = chunked(4, e5m10)"], "K": "8,16,32", "M": 4, "N": 4, **given})


def lines(folder) -> set[str]:
    return set((folder / "results.jsonl").read_text().splitlines())


def test_shards_merged_are_the_whole_study(tmp_path):
    whole = study.run(growth(), tmp_path / "whole")
    shards = [tmp_path / f"shard{i}" for i in (1, 2, 3)]
    for i, folder in enumerate(shards, start=1):
        study.run(growth(), folder, shard=(i, 3))
    assert sum(len(lines(folder)) for folder in shards) == len(whole.rows) == 12
    merged = study.merge(shards, tmp_path / "merged")
    assert found(merged.rows) == found(whole.rows)
    assert [row["cell"] for row in merged.rows] == [row["cell"] for row in whole.rows], "in the order of the study"
    assert (merged.computed, merged.reused, merged.left) == (0, 12, 0)
    assert lines(tmp_path / "merged") == set().union(*map(lines, shards)), "rows are taken as they are"
    for file in ("table.txt", "results.csv", "verdicts.json", "plot.png", "plot.svg"):
        assert (tmp_path / "merged" / file).is_file()
    assert (tmp_path / "merged" / "table.txt").read_text() == (tmp_path / "whole" / "table.txt").read_text()
    again = study.merge(shards, tmp_path / "merged")
    assert again.rows == merged.rows and len(lines(tmp_path / "merged")) == 12


def test_a_run_in_the_merged_folder_goes_on(tmp_path):
    study.run(growth(), tmp_path / "one", shard=(1, 2))
    merged = study.merge([tmp_path / "one"], tmp_path / "merged")
    assert merged.left > 0
    assert study.run(growth(), tmp_path / "merged").computed == merged.left


def test_verdicts_are_those_of_all_rows(tmp_path):
    below = {
        high: study.Expectation((("label", "e5m10"),), "rel_fro", 0.0, high, "derived", "nowhere")
        for high in (0.0, 1.0)
    }
    checked = study.kind("growth")(
        spec=["e5m10"], K="8,16,32", M=4, N=4, dist="randn", name="checked", expectations=[*below.values()]
    )
    for i in (1, 2):
        part = study.run(checked, tmp_path / str(i), shard=(i, 2))
        assert [verdict.word for verdict in part.verdicts] == ["fail" if part.rows else "unfinished", "unfinished"]
    merged = study.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged", study=checked)
    assert [verdict.word for verdict in merged.verdicts] == ["fail", "pass"] and not merged.ok
    written = json.loads((tmp_path / "merged" / "verdicts.json").read_text())
    assert [entry["verdict"] for entry in written] == ["fail", "pass"]


def test_the_newest_row_of_a_cell_is_kept(tmp_path):
    for name, time in (("new", "2026-02-02"), ("old", "2026-01-01")):
        study.run(CountingStudy(), tmp_path / name)
        rows = [{**row, "finished_at": time, "score": len(name)} for row in study.load_rows(tmp_path / name)]
        (tmp_path / name / "results.jsonl").write_text("".join(store.stamp(r)[1] for r in rows))
    (tmp_path / "old" / "results.jsonl").open("a").write(store.stamp({**rows[0], "score": 9})[1])
    merged = study.merge([tmp_path / "new", tmp_path / "old"], tmp_path / "out", study=CountingStudy())
    assert {row["finished_at"] for row in merged.rows} == {"2026-02-02"} and len(merged.rows) == 6
    into = study.merge([tmp_path / "old"], tmp_path / "new", study=CountingStudy())
    assert {row["finished_at"] for row in into.rows} == {"2026-02-02"}, "rows that the folder has count, too"


def test_parameters_of_all_folders_are_those_of_the_merged_study(tmp_path):
    study.run(growth(K="8"), tmp_path / "a")
    study.run(growth(K="8"), tmp_path / "a")
    study.run(growth(K="16", spec=["bf16"], dist="uniform(1,2)*ones", **{"in": "e4m3/none"}), tmp_path / "b")
    merged = study.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    assert (len(merged.rows), merged.left) == (4 + 1, 0)
    of_all = study.of_folder(tmp_path / "merged")
    assert [part.K for part in of_all.parts] == [(8,), (16,)]
    assert {cell.key for cell in of_all.cells()} == {row["cell"] for row in merged.rows}


def test_accumulators_without_a_label_read_back():
    parameters = study.kind("growth").parameters.of(
        {"spec": ["kahan(e5m10)", "e4m3 * e5m2 : e5m10/sr8 -> bf16", "a.b = bf16"]}
    )
    assert parameters.of(parameters.given()) == parameters
    assert parameters.given()["spec"][0] == "kahan(e5m10)" and parameters.given()["spec"][2] == "a.b = :e8m7"


@pytest.mark.parametrize("name", study.kinds())
def test_parameters_read_back_from_their_own_words(name):
    parameters = study.kind(name).parameters.of({})
    assert with_parameters(name, [parameters.given()]).parts == (parameters,)


def test_what_prepare_kept_comes_along(tmp_path):
    study.run(CountingStudy(), tmp_path / "one")
    (tmp_path / "one" / "network.npz").write_bytes(b"weights")
    study.merge([tmp_path / "one"], tmp_path / "merged", study=CountingStudy())
    assert (tmp_path / "merged" / "network.npz").read_bytes() == b"weights"


def test_strangers_are_refused_and_nothing_is_written(tmp_path):
    study.run(CountingStudy(), tmp_path / "one")
    study.run(growth(K="8"), tmp_path / "growth")
    study.run(CountingStudy("inputs-2"), tmp_path / "other inputs")
    study.run(CountingStudy(), tmp_path / "other version")
    path = tmp_path / "other version" / "results.jsonl"
    rows = [store.stamp({**row, "library": "9.9"})[0] for row in study.load_rows(path.parent)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    study.run(CountingStudy(), tmp_path / "other layout")
    old = {**study.load_rows(tmp_path / "one")[0], "schema": 1}
    del old["digest"]
    (tmp_path / "other layout" / "results.jsonl").write_text(
        json.dumps({**old, "digest": study.cells.digest(old)}) + "\n"
    )
    (tmp_path / "empty").mkdir()
    for name, said in {
        "growth": "'growth'.*'counting'.*Merge folders of one study",
        "other inputs": "different inputs: inputs-1 in .*one', inputs-2.*prepared folder",
        "other version": "different versions of gemmsim: .*9.9 in .*Compute all of them with one",
        "other layout": "layout 1; this version reads and writes 2",
        "empty": "no results in '.*empty'",
    }.items():
        with pytest.raises(study.StudyError, match=said):
            study.merge([tmp_path / "one", tmp_path / name], tmp_path / "out", study=CountingStudy())
        assert not (tmp_path / "out").exists()
    with pytest.raises(study.StudyError, match="no folder to merge"):
        study.merge([], tmp_path / "out")
    with pytest.raises(study.StudyError, match="unknown study 'counting'"):
        study.merge([tmp_path / "one"], tmp_path / "out")
    (tmp_path / "one" / "study.json").write_text("{")
    with pytest.raises(study.StudyError, match="study.json' is damaged"):
        study.merge([tmp_path / "one"], tmp_path / "out")


def test_the_commands(tmp_path):
    def gemmsim(*words):
        return CliRunner().invoke(app, ["study", *map(str, words)])

    common = ("run", "growth", "--spec", "e5m10", "--K", "8,16", "--M", 2, "--N", 2, "--dist", "randn", "--out")
    for i in (1, 2):
        assert gemmsim(*common, tmp_path / str(i), "--shard", f"{i}/2").exit_code == 0
    done = gemmsim("merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "0 cells computed, 2 reused." in done.stdout
    wrong = gemmsim("merge", tmp_path / "1", tmp_path / "none", "--out", tmp_path / "out")
    assert wrong.exit_code == 2 and wrong.stderr.startswith("error: no results in")
    assert gemmsim(*common, tmp_path / "w", "--workers", 0).exit_code == 2
    assert "2 cells computed" in gemmsim(*common, tmp_path / "w", "--workers", 2).stdout
    assert found(study.load_rows(tmp_path / "w")) == found(study.load_rows(tmp_path / "out"))


def test_the_parameters_of_named_studies_are_not_written(tmp_path):
    chosen = study.get("higham_mary_growth")
    assert runner._parameters(chosen) == [] and runner._parameters(CountingStudy()) == []
