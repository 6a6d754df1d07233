"""One face for all commands: help without PyTorch, lists that are not cut, exit codes, shell completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import ROOT
from typer.testing import CliRunner

from gemmsim.cli.app import app

TOP = ("formats", "explain", "bits", "trace", "compare", "vectors", "emulate", "audit", "env", "study", "kernels")
STUDY = ("list", "show", "run", "plot", "report", "merge", "export")
KERNELS = ("compile", "list", "clear", "path")
COMMANDS = [(), *((c,) for c in TOP), *(("study", c) for c in STUDY), *(("kernels", c) for c in KERNELS)]


def gemmsim(*words: str, **env: str):
    return CliRunner(env=env).invoke(app, list(words), prog_name="gemmsim")


def real(*words: str, **env: str):
    return subprocess.run(
        [sys.executable, "-m", "gemmsim", *words], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_both_ways_to_ask_for_help_show_the_same_face(command):
    short, long = gemmsim(*command, "-h"), gemmsim(*command, "--help")
    assert short.exit_code == long.exit_code == 0 and short.stdout == long.stdout
    assert short.stdout.startswith(f"Usage: {' '.join(('gemmsim', *command))} ")
    assert "-h, --help" in short.stdout and "<str>  [default" not in short.stdout
    assert max(map(len, short.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("group", "commands"), [((), TOP), (("study",), STUDY), (("kernels",), KERNELS)])
def test_commands_are_listed_whole(group, commands):
    """Without words a group prints its help, and that is no mistake."""
    listed = gemmsim(*group)
    assert listed.exit_code == 0 and listed.stdout == gemmsim(*group, "--help").stdout
    assert "..." not in listed.stdout.split("Commands:")[1]
    for command in commands:
        assert f"\n  {command} " in listed.stdout
        first = gemmsim(*group, command, "-h").stdout.split("\n\n")[1]
        assert " ".join(first.split()) in " ".join(listed.stdout.split())


def test_help_and_version_do_not_load_pytorch():
    """1.5 of 1.7 seconds. Of every command; only the parameters of a kind of study need its module."""
    code = f"""
import sys
from gemmsim.cli import main
for words in {[(*c, h) for c in COMMANDS for h in ("-h", "--help")] + [("--version",), (), ("study",)]}:
    sys.argv = ["gemmsim", *words]
    try:
        main()
    except SystemExit as done:
        assert not done.code, words
loaded = {{name.partition(".")[0] for name in sys.modules}}
assert not loaded & {{"torch", "numpy"}}, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_formats_and_bits_do_not_load_pytorch():
    code = """
import sys
from gemmsim.cli import main
sys.argv = ["gemmsim", *sys.argv[1:]]
try:
    main()
except SystemExit as done:
    assert not done.code
assert "torch" not in sys.modules
"""
    for words in (("formats",), ("formats", "e4m3", "--json"), ("bits", *BITS)):
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


BITS = ("--arch", "h100", "--op", "wgmma", "--in", "e4m3", "--a", "1", "--b", "1")


def test_help_of_a_kind_shows_its_parameters():
    text = gemmsim("study", "run", "growth", "-h").stdout
    assert text.startswith("Usage: gemmsim study run NAME|KIND [OPTIONS] [PARAMETERS]...")
    assert "Parameters of growth:" in text and "--dist <dist>" in text and "--spec <spec>..." in text
    assert gemmsim("study", "run", "--out", "x", "growth", "--help").stdout == text
    assert "Parameters" not in gemmsim("study", "run", "wang2018_fig3", "-h").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nope",), "No such command"),
        (("compare", ":fp32"), "Missing argument"),
        (("compare", ":fp32", ":bf16", "--seed", "x"), "--seed"),
        (("explain", "--jsn", ":fp32"), "--jsn"),
        (("study", "run", "growth"), "--out"),
        (("study", "run", "--out", "x"), "NAME|KIND"),
        (("study", "run", "growth", "--out", "x", "--lenght", "3"), "--lenght"),
        (("study", "run", "wang2018_fig3", "--out", "x", "--K", "3"), "--K"),
        (("emulate", "--spec", ":fp32"), "no program"),
    ],
)
def test_bad_usage_is_told_in_one_way_with_exit_code_2(words, said):
    result = gemmsim(*words)
    assert result.exit_code == 2 and said in result.stderr and "Traceback" not in result.output
    assert result.stderr.startswith("Usage: gemmsim") and "Error: " in result.stderr and not result.stdout


def test_an_option_without_its_value_is_exit_code_2():
    for words in (("audit", "-m"), ("study", "run", "growth", "--out"), ("compare", ":fp32", ":fp32", "--unit")):
        result = gemmsim(*words)
        assert result.exit_code == 2 and words[-1] in result.stderr and "requires an argument" in result.stderr


def test_options_may_stand_before_the_study(tmp_path):
    result = gemmsim(
        "study", "run", "--dry-run", "--out", str(tmp_path / "o"), "growth", "--spec", "e5m10", "bf16", "--K", "8"
    )
    assert result.exit_code == 0 and result.stdout.count("to do") == 5  # 2 accumulators, 2 distributions, and the sum


@pytest.mark.parametrize("command", ["emulate", "audit"])
def test_words_behind_the_program_are_the_programs(command, tmp_path, monkeypatch):
    (tmp_path / "words.py").write_text("import sys\nprint(sys.argv)\n")
    monkeypatch.chdir(tmp_path)
    own = ("-h", "--spec", "x", "--", "-m", "--help")
    for program, name in ((("words.py",), "words.py"), (("-m", "words"), str(tmp_path / "words.py"))):
        result = gemmsim(command, "--spec", ":fp32", *program, *own)
        assert result.exit_code == 0 and repr([name, *own]) in result.stdout, result.output
        assert result.stdout.splitlines()[0] == repr([name, *own])
    sys.modules.pop("words", None)


def test_the_shell_completes_commands_and_options():
    for line, at, found in (
        ("gemmsim comp", 1, ["compare"]),
        ("gemmsim study e", 2, ["export"]),
        ("gemmsim emulate --s", 2, ["--spec", "--seed"]),
        ("gemmsim study run --dr", 3, ["--dry-run"]),
    ):
        done = real(COMP_WORDS=line, COMP_CWORD=str(at), _GEMMSIM_COMPLETE="complete_bash")
        assert done.stdout.split() == found, done.stderr
    shown = real("--show-completion", "bash", SHELL="/bin/bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_GEMMSIM_COMPLETE" in shown.stdout or shown.returncode == 1  # where no shell is detected it says so


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((":fp32", ":fp32", "--check"), 0),
        ((":fp32", ":bf16", "--check"), 1),
        ((":fp32", ":bf16"), 0),
        ((":fp32", ":bf16", "--check", "--json"), 1),
        ((":fp32", ":fp32", "--check", "--json"), 0),
        ((":fp32", ":bf61", "--check"), 2),
    ],
)
def test_compare_checks_as_cmp_does(words, code):
    result = gemmsim("compare", *words, "--shape", "4", "16", "5")
    assert result.exit_code == code
    if "--json" in words:
        assert (json.loads(result.stdout)["share"] == 1) is (code == 0)


def test_an_interrupt_is_130(monkeypatch):
    from gemmsim.cli import trace

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(trace, "compare", interrupted)
    result = gemmsim("compare", ":fp32", ":fp32")
    assert result.exit_code == 130 and result.stderr == "interrupted\n"


def test_an_interrupted_program_is_130(tmp_path):
    (tmp_path / "p.py").write_text("raise KeyboardInterrupt\n")
    result = gemmsim("audit", str(tmp_path / "p.py"))
    assert result.exit_code == 130 and "No products" in result.stdout and "KeyboardInterrupt" in result.stderr
