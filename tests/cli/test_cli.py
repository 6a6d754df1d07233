"""The gemmsim command: what it prints, and that a user's mistake costs one message and exit code 2."""

from __future__ import annotations

import subprocess
import sys

import pytest
from study.counting_study import CountingStudy
from support import ROOT, run_python
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app


def gemmsim(*args: str):
    return CliRunner().invoke(app, list(args))


@pytest.fixture
def counting(monkeypatch):
    counter = CountingStudy()
    monkeypatch.setattr(study.registry, "_STUDIES", {**study.registry._STUDIES, "counting": lambda: counter})
    return counter


def test_version():
    assert gemmsim("--version").stdout.strip() == f"gemmsim {gs.__version__}"


def test_the_command_leaves_garbage_collection_as_it_was_but_for_what_it_loaded():
    """Looking for garbage among PyTorch's objects, while it is loaded and at the end, takes a third of a short run."""
    code = """
import gc, sys
from gemmsim.cli import main
assert not gc.get_freeze_count()
for enabled in (True, False):
    (gc.enable if enabled else gc.disable)()
    sys.argv = ["gemmsim", "explain", ":fp32"]
    try:
        main()
    except SystemExit as done:
        assert not done.code
    assert gc.isenabled() is enabled and gc.get_freeze_count() > 100_000
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_help_names_every_command():
    text = gemmsim("--help").stdout
    for command in ("formats", "explain", "study", "env"):
        assert command in text


def test_formats_lists_every_named_format_with_its_range():
    result = gemmsim("formats")
    assert result.exit_code == 0
    for entry in gs.formats.NAMED:
        assert any(name in result.stdout for name in (str(entry.format), *gs.formats.aliases(entry.format)))
    assert "448" in result.stdout and "57344" in result.stdout


def test_one_format_in_full():
    result = gemmsim("formats", "e4m3")
    assert result.exit_code == 0
    for fact in ("max 448", "no infinity", "emin -6", "emax 8"):
        assert fact in result.stdout


@pytest.mark.parametrize("name", ["e4m3", "e2m1", "e8m0", "binary8p3", "fixed(8,4)", "e5m2fnuz", "uint4"])
def test_codes_lists_every_code_once(name):
    fmt = gs.formats.parse(name)
    result = gemmsim("formats", name, "--codes")
    assert result.exit_code == 0
    width = (fmt.bits + 3) // 4
    listed = [word for word in result.stdout.split() if word.startswith("0x") and len(word) == width + 2]
    codes = [f"{code:#0{width + 2}x}" for code in fmt.codes()]
    assert set(codes) <= set(listed)


def test_codes_of_a_wide_format_are_refused():
    result = gemmsim("formats", "fp16", "--codes")
    assert result.exit_code == 2 and "8 bits or fewer" in result.stderr


def test_explain_says_what_a_spec_means():
    result = gemmsim("explain", "e4m3 * e5m2 : e5m10/sr8 -> bf16")
    assert result.exit_code == 0
    for word in ("e4m3", "e5m2", "e5m10", "stochastic"):
        assert word in result.stdout


def test_explain_names_instruction_and_source_of_hardware():
    result = gemmsim("explain", "promote(hw(hopper, wgmma, e4m3), 128)")
    assert result.exit_code == 0
    for word in ("wgmma.m64n8k32.f32.e4m3.e4m3", "F = 13", "e8m13", "silicon recorded", "each 128 terms"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "args, said",
    [
        (("formats", "e4m33x"), "e4m3"),
        (("explain", ": e5m10/rnee"), "rne"),
        (("explain", ": e5m10 -> b16"), "bf16"),
        (("explain", "hw(hoper, wgmma, e4m3)"), "hopper"),
        (("study", "run", "digit", "--out", "x"), "'digits'"),
        (("study", "plot", "digits", "--out", "nowhere"), "Run the study first"),
    ],
    ids=["format", "rounding", "output", "architecture", "study", "no results"],
)
def test_a_mistake_is_one_message_with_a_suggestion_and_exit_code_2(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = gemmsim(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and said in result.stderr
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_env_tells_versions_instruction_set_and_threads():
    result = gemmsim("env")
    assert result.exit_code == 0
    for word in ("gemmsim", "torch", "instruction set", "built by", "threads"):
        assert word in result.stdout


def test_study_list(counting):
    text = gemmsim("study", "list").stdout
    assert "digits" in text and "six cells that count" in text


def test_dry_run_prints_cells_and_cost_and_creates_nothing(counting, tmp_path):
    result = gemmsim("study", "run", "counting", "--out", str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.count("to do") == 7 and "6,000 multiply-adds" in result.stdout
    assert not counting.computed and not (tmp_path / "out").exists()


def test_dry_run_with_limit_counts_only_what_would_be_computed(counting, tmp_path):
    result = gemmsim("study", "run", "counting", "--out", str(tmp_path), "--dry-run", "--limit", "2")
    assert "2 of 6 cells to do: 2,000 multiply-adds" in result.stdout


def test_resume_computes_nothing_twice(counting, tmp_path):
    run = ("study", "run", "counting", "--out", str(tmp_path))
    assert "2 cells computed" in gemmsim(*run, "--limit", "2").stdout
    second = gemmsim(*run)
    assert second.exit_code == 0 and "4 cells computed, 2 reused" in second.stdout
    assert "0 cells computed, 6 reused" in gemmsim(*run).stdout
    assert set(counting.computed.values()) == {1} and len(counting.computed) == 6


def test_interrupting_keeps_what_is_finished(counting, tmp_path):
    counting.fail_at = ":e5m3"
    run = ("study", "run", "counting", "--out", str(tmp_path))
    result = gemmsim(*run)
    assert result.exit_code == 130 and "continues from there" in result.stderr
    counting.fail_at = None
    assert "4 cells computed, 2 reused" in gemmsim(*run).stdout


def test_a_damaged_result_is_told(counting, tmp_path):
    run = ("study", "run", "counting", "--out", str(tmp_path))
    gemmsim(*run)
    with (tmp_path / "results.jsonl").open("a") as handle:
        handle.write('{"cell": "half a li\n')
    result = gemmsim(*run)
    assert result.exit_code == 0 and "line 7: not complete JSON" in result.stderr


def test_plot_draws_again(counting, tmp_path):
    gemmsim("study", "run", "counting", "--out", str(tmp_path))
    (tmp_path / "plot.png").unlink()
    result = gemmsim("study", "plot", "counting", "--out", str(tmp_path))
    assert result.exit_code == 0 and (tmp_path / "plot.png").exists()


def test_the_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "gemmsim.cli", "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout.strip() == f"gemmsim {gs.__version__}"
