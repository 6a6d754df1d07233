"""``gemmsim library``: what is known, plans, recordings, verification, and two libraries side by side."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app

L = gs.libraries


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["library", *words])
    assert result.exit_code == code, result.output
    return result.output


def test_known():
    assert run("known").strip() == str(L.known())
    assert [row["gpu"] for row in json.loads(run("known", "--json"))] == [row.gpu for row in L.known()]


def test_plan():
    asked = ("plan", "h100", "13.1", "64", "64", "8192", "bf16", "--config", "66,,4,2,,,35")
    plan = L.cublaslt("h100", version="13.1").plan(64, 64, 8192, "bf16", config="66,,4,2,,,35")
    assert run(*asked).strip() == plan.explain()
    facts = json.loads(run(*asked, "--json"))
    assert facts["spec"] == str(plan.spec) and facts["call"]["K"] == 8192 and facts["config"]["SPLITK_NUM"] == 4
    assert (facts["family"], facts["evidence"], facts["source"], facts["lost"]) == ("nvjet", "silicon", "config", 0)


def test_plan_with_every_option():
    said = run(
        *("plan", "rtx4060", "12.8", "16", "16", "512", "e5m2", "--in-b", "e4m3", "--result", "e5m2"),
        *("--config", "60,,2,,,1,15", "--fast", "--workspace", "0"),
    )
    assert "e5m2 * e4m3 : interleaved(2, hw(ada, mma, e5m2, e4m3), tree((1+0)), width=64) -> fp32 -> e5m2/sat" in said
    assert "workspace=0" in said


def test_a_plan_of_a_version_that_is_taken_for_like_this_one():
    words = ("plan", "h100", "13.1", "64", "64", "8192", "bf16", "--config", "66,,4,,,,35")
    said = run(*words, "--assume-version", "13.2")
    assert "evidence: inferred" in said and "h100 13.2 is assumed to behave the same" in said


def test_a_plan_from_a_table(tmp_path):
    path = tmp_path / "t.jsonl"
    call = L.Call(64, 64, 8192, "fp16", "fp16", "fp16", False)
    L.write_table(path, L.Header("h100", "13.1.1", 32 << 20), [(call, L.Config(66, SPLITK_NUM=9, STAGES_ID=35))])
    assert "splitk(9, " in run("plan", "h100", "13", "64", "64", "8192", "fp16", "--table", str(path))
    assert "recorded for workspace" in run(
        *("plan", "h100", "13", "64", "64", "8192", "fp16", "--table", str(path), "--workspace", "0"), code=2
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "h100", "13.1", "64", "64", "64", "bf16"), "configuration is not known"),
        (("plan", "h10", "13.1", "64", "64", "64", "bf16"), "Did you mean 'h100'"),
        (("plan", "h100", "13.7", "64", "64", "64", "bf16"), "assume_version='13.7'"),
        (("plan", "h100", "13.1", "64", "64", "0", "bf16"), "K=0"),
        (("plan", "h100", "13.1", "64", "64", "64", "bf61"), "bf61"),
        (("plan", "h100", "13.1", "64", "64", "64", "bf16", "--config", "66,x"), "66,x"),
        (("plan", "h100", "13.1", "64", "64", "64", "bf16", "--assume", "luck"), "luck"),
        (("plan", "h100", "13.1", "64", "64", "64", "bf16", "--table", "nothing.jsonl"), "nothing.jsonl"),
        (("diff", "h100:13.1", "gb200", "--shape", "1x64x64", "--assume", "chain"), "without a version"),
        (("diff", "h100", "gb300", "--shape", "1x64", "--assume", "chain"), "1x64"),
        (("diff", "h100", "gb300", "--shape", "1x64x64"), "not known"),
        (("verify", "--table", "nothing.jsonl"), "nothing.jsonl"),
    ],
)
def test_mistakes_are_one_message(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run(*words, code=2)
    assert output.startswith("error: ") and said in output and "Traceback" not in output


def test_diff():
    words = ("diff", "h100:13.1", "h100-pcie", "--shape", "16x128x4096", "--in", "e4m3", "--result", "fp32")
    said = run(*words, "--config", "66,,1,,,,36", "--fast")
    assert said.count("-> e8m23\n") >= 2 and "1024 of 1024 elements equal" in said
    slow = run(
        "diff",
        "h100:13.1",
        "gb200:13.1",
        "--shape",
        "16x16x512",
        "--in",
        "e4m3",
        "--result",
        "fp32",
        "--config",
        "66,,,,,,36",
    )
    assert "promote(hw(hopper, wgmma, e4m3), 128)" in slow and "hw(blackwell, tcgen05, e4m3)" in slow
    assert "elements equal" in slow and slow.count("nvjet, inferred") == 2


def test_diff_as_json():
    words = ("diff", "h100:13.1", "h100:13.1", "--shape", "32,48,600", "--config", "66,,,,,,35", "--json")
    found = json.loads(run(*words, "--other-config", "16", "--result", "fp32"))
    assert [plan["family"] for plan in found["plans"]] == ["nvjet", "gemmsn"]
    assert found["comparison"]["elements"] == 32 * 48 and 0 < found["comparison"]["share"] < 1


class Here:
    """A library of this machine, of which every answer is known."""

    def __init__(self, wrong: bool = False) -> None:
        self.library, self.wrong = L.cublaslt("h100", version="13.1"), wrong
        self.names, self.workspace = self.library.names, self.library.workspace

    def record(self, shapes, path, a, b, out, *, fast_accumulation):
        rows = [(L.Call(*shape, a, a, out or a, fast_accumulation), L.Config(66, STAGES_ID=35)) for shape in shapes]
        L.write_table(path, L.Header("h100", "13.1.1", self.workspace, 132), rows)
        return len(rows)

    def plan(self, *args, **keywords):
        return self.library.plan(*args, **keywords)

    def run(self, a, b, config, *, out, fast_accumulation):
        got = self.library.matmul(a, b, out, config, fast_accumulation=fast_accumulation)
        return torch.nextafter(got, torch.zeros_like(got)) if self.wrong else got


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    (tmp_path / "grid.csv").write_text("M,N,K\n64,48,64\n\n17, 16, 100\n")
    monkeypatch.setattr(L, "here", lambda *like, workspace: Here())
    out = tmp_path / "t.jsonl"
    assert "2 new rows of 2 shapes" in run("record", "--shapes", str(tmp_path / "grid.csv"), "--out", str(out))
    return out


def test_record_and_verify(recorded, monkeypatch):
    assert len(L.read_table(recorded)) == 2
    assert "nvjet: 2 of 2 products equal" in run("verify", "--table", str(recorded))
    monkeypatch.setattr(L, "here", lambda *like, workspace: Here(wrong=True))
    said = run("verify", "--table", str(recorded), "--per-family", "1", code=1)
    assert "nvjet: 0 of 1 products equal" in said and "ALGO_ID=66" in said
    (row,) = json.loads(run("verify", "--table", str(recorded), "--json", code=1))
    assert (row["family"], row["equal"], row["products"]) == ("nvjet", 0, 2)


def test_tables_of_another_machine_are_not_verified(recorded, monkeypatch):
    other = Here()
    other.names = ("gb300", "13.1.1")
    monkeypatch.setattr(L, "here", lambda *like, workspace: other)
    assert "recorded for GPU h100" in run("verify", "--table", str(recorded), code=2)


@pytest.mark.parametrize("line", ["64,48", "64,48,64,1", "a,b,c", "64,48,-1"])
def test_lines_that_are_no_shapes_are_named(tmp_path, line):
    (tmp_path / "grid.csv").write_text(f"64,48,64\n{line}\n")
    said = run("record", "--shapes", str(tmp_path / "grid.csv"), "--out", str(tmp_path / "t.jsonl"), code=2)
    assert "grid.csv, line 2" in said


def test_a_file_of_shapes_that_cannot_be_read(tmp_path):
    assert "No such file" in run("record", "--shapes", str(tmp_path / "none.csv"), "--out", "t.jsonl", code=1)
    (tmp_path / "grid.csv").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in run("record", "--shapes", str(tmp_path / "grid.csv"), "--out", "t.jsonl", code=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_record_says_so(tmp_path):
    (tmp_path / "grid.csv").write_text("64,48,64\n")
    said = run("record", "--shapes", str(tmp_path / "grid.csv"), "--out", str(tmp_path / "t.jsonl"), code=2)
    assert "without a GPU" in said and not (tmp_path / "t.jsonl").exists()
