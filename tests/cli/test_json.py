"""--json of every command that tells something: values that a program reads, and the same exit codes."""

from __future__ import annotations

import json

import pytest
from study.counting_study import CountingStudy
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app


def asked(*words: str, code: int = 0):
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def counting(monkeypatch):
    counter = CountingStudy()
    monkeypatch.setattr(study.registry, "_STUDIES", {"counting": lambda: counter})
    monkeypatch.setattr(study.registry, "REPRODUCTIONS", {})
    return counter


def test_explain():
    found = asked("explain", "e4m3 : chunked(4, e5m10)")
    assert found["spec"] == "e4m3 : chunked(4, e5m10)"
    assert gs.GemmSpec.from_json(found["definition"]) == gs.GemmSpec.of(found["spec"])
    said = {line["about"]: line["says"] for line in found["lines"]}
    assert said["order"] == "sequential, k ascending from +0" and said["cpu"].startswith("yes")
    assert said["overflow"].splitlines()[1].startswith("e5m10:") or "e5m10" in said
    text = gs.explain(found["spec"])
    assert all(word in text for line in found["lines"] for word in line["says"].split())


def test_a_recipe_has_no_single_definition():
    found = asked("explain", "hopper_fp8")
    assert found["spec"] == "hopper_fp8" and found["definition"] is None and found["lines"]


def test_formats():
    found = {entry["name"]: entry for entry in asked("formats")}
    assert list(found) == [str(entry.format) for entry in gs.formats.NAMED]
    e4m3 = found["e4m3"]
    assert (e4m3["bits"], e4m3["p"], e4m3["emin"], e4m3["emax"], e4m3["max"]) == (8, 4, -6, 8, 448)
    assert (e4m3["has_inf"], e4m3["has_nan"], e4m3["smallest"]) == (False, True, 2**-9)
    assert asked("formats", "e4m3") == e4m3
    assert found["fixed(8,0)"]["frac"] == 0 and found["fixed(8,0)"]["smallest"] == 1


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "fixed(4,0)", "posit(8,1)", "mxfp4"])
def test_codes_of_formats(name):
    fmt = gs.formats.parse(name)
    fmt = fmt.element if isinstance(fmt, gs.formats.BlockFormat) else fmt
    codes = asked("formats", name, "--codes")["codes"]
    assert len(codes) == 2**fmt.bits and repr(list(map(float, codes))) == repr(
        [float(fmt.decode(c)) for c in fmt.codes()]
    )
    assert CliRunner().invoke(app, ["formats", "fp16", "--codes", "--json"]).exit_code == 2


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "bfp(8,16)", "nvfp4", "e5m2/ftz", "binary8p3"])
def test_one_format_of_any_kind(name):
    found = asked("formats", name)
    assert found["name"] == str(gs.formats.parse(name)) and found["text"] == gs.formats.parse(name).describe()
    assert json.dumps(found["definition"])


def test_env(monkeypatch):
    from gemmsim.cli import self_test
    from gemmsim.cli.env import facts

    assert asked("env") == facts()
    for wrong in ([], ["x differs"]):
        monkeypatch.setattr(self_test, "compared", lambda wrong=wrong: (["avx2"], 3, wrong))
        found = asked("env", "--check", code=1 if wrong else 0)
        assert found["check"] == {"instruction sets": ["avx2"], "compared": 3, "differences": wrong}


def test_trace_and_compare_write_no_infinities():
    assert asked("trace", ":bf16", "--a", "1,inf,nan", "--b", "1,1,1")["value"] == "nan"
    assert asked("compare", ":fp32", ":e5m2", "--spread", "1e5")["elements"] == 1024


def test_study_list_and_show(counting):
    found = asked("study", "list")
    assert found["studies"] == [{"name": "counting", "title": "six cells that count", "kind": "own", "source": None}]
    assert {kind["name"] for kind in found["kinds"]} == set(study.kinds())
    found = asked("study", "show", "counting")
    assert (found["cells"], found["macs"], found["commands"], found["checks"]) == (6, 6000, [], [])


def test_show_of_a_study_with_checks():
    found = asked("study", "show", "wang2018_fig3")
    assert found["commands"][0].startswith("gemmsim study run growth ")
    assert len(found["checks"]) == len(study.get("wang2018_fig3").expectations())
    first = found["checks"][0]
    assert (first["source"], first["derived"], first["metric"]) == ("known effect", True, "ratio")
    assert {one["name"]: one["source"] for one in asked("study", "list")["studies"]}["deepseek_v3_fp8"] == "paper"


def test_study_run(counting, tmp_path):
    out = str(tmp_path / "out")
    found = asked("study", "run", "counting", "--out", out, "--dry-run")
    assert [cell["state"] for cell in found["cells"]] == ["to do"] * 6 and found["macs"] == 6000
    assert not (tmp_path / "out").exists()
    found = asked("study", "run", "counting", "--out", out, "--limit", "2")
    assert (found["computed"], found["reused"], found["left"], found["ok"]) == (2, 0, 4, True)
    assert found["rows"] == study.load_rows(out)
    found = asked("study", "run", "counting", "--out", out)
    assert (found["computed"], found["reused"], found["left"]) == (4, 2, 0) and len(found["rows"]) == 6


def test_a_failing_check_is_in_the_json_and_the_exit_code(counting, tmp_path, monkeypatch):
    monkeypatch.setattr(
        CountingStudy, "expectations", lambda self: [study.Expectation((), "score", 0.0, 0.1, "derived", "tenths")]
    )
    for name in ("counting", "all"):
        found = asked("study", "run", name, "--out", str(tmp_path / name), code=1)
        found = found["counting"] if name == "all" else found
        assert not found["ok"] and [v["verdict"] for v in found["verdicts"]] == ["fail"]
        assert found["verdicts"][0]["place"] == "tenths" and len(found["verdicts"][0]["values"]) == 6
