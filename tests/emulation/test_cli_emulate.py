"""``gemmsim emulate`` and ``gemmsim audit``: programs as they are, their arguments and exit codes, and the report."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from support import ROOT
from typer.testing import CliRunner

from gemmsim.cli.app import app

SCRIPT = """
import sys
import torch
from torch import nn
import beside

class Mine(nn.Linear):
    pass

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(Mine(8, 8), nn.Linear(8, 4))
    if "--compiled" in sys.argv:
        model = torch.compile(model, fullgraph=True, backend="aot_eager")
    out = model(torch.randn(3, 8))
    out.sum().backward()
    print("out", float(out.detach().double().sum()).hex(), sys.argv[1:], beside.NAME)
    if "--fail" in sys.argv:
        raise KeyError("mine")
    if "--distance" in sys.argv:
        torch.cdist(torch.randn(30, 4), torch.randn(30, 4))
    if "--other" in sys.argv:
        nn.Linear(8, 4)(torch.randn(3, 8))
    if "--own" in sys.argv:
        import gemmsim as gs
        with gs.emulate([("8.*", ":bf16")]):
            model(torch.randn(3, 8))
    if "--typo" in sys.argv:
        import gemmsim as gs
        gs.qmatmul(torch.eye(2), torch.eye(2), ":bf17")
    sys.exit(int(sys.argv[-1]) if sys.argv[-1].isdigit() else None)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'neighbour'\n")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "mine.py")


@pytest.fixture(autouse=True)
def forget():
    yield
    sys.modules.pop("beside", None)
    sys.modules.pop("mine", None)


def run(*args: str):
    return CliRunner().invoke(app, list(args))


def value(result) -> str:
    return result.stdout.split()[1]


def test_the_script_has_its_arguments_and_its_exit_code(script):
    path, argv = list(sys.path), sys.argv
    result = run("emulate", "--spec", "e4m3 : e5m10", script, "--json", "-m", "7")
    assert result.exit_code == 7 and "['--json', '-m', '7'] neighbour" in result.stdout
    assert (sys.path, sys.argv) == (path, argv)
    assert run("emulate", "--spec", ":fp32", script).exit_code == 0
    result = run("emulate", "--spec", ":fp32", "-m", "mine", "--spec", "5")
    assert result.exit_code == 5 and "['--spec', '5']" in result.stdout
    failed = run("emulate", "--spec", ":fp32", script, "--fail")
    assert failed.exit_code == 1 and isinstance(failed.exception, KeyError)


def test_arithmetic_and_seed_hold(script, tmp_path):
    native = value(run("audit", script))
    narrow = value(run("emulate", "--spec", "e4m3 : e5m4", script))
    assert value(run("audit", "--spec", "e4m3 : e5m4", script)) == narrow != native
    seeds = {value(run("emulate", "--spec", ":e5m3/sr", "--seed", seed, script)) for seed in "012"}
    assert len(seeds) > 1 and value(run("emulate", "--spec", ":e5m3/sr", "--seed", "1", script)) in seeds


def test_rules_from_files(script, tmp_path):
    rules = [["0", "e4m3 : e5m4"], ["*", None]]
    (tmp_path / "pairs.json").write_text(json.dumps(rules))
    (tmp_path / "c.json").write_text(json.dumps({"rules": [{"modules": "0", "formats": "e4m3 : e5m4"}]}))
    results = [run("audit", "--config", str(tmp_path / name), script) for name in ("pairs.json", "c.json")]
    yaml = pytest.importorskip("yaml")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"rules": [{"modules": "0", "formats": "e4m3 : e5m4"}]}))
    results.append(run("audit", "--config", str(tmp_path / "c.yaml"), script))
    for result in results:
        assert result.exit_code == 0, result.output
        assert "5 products" in result.stdout and "2 emulated, 3 native" in result.stdout
    assert len({result.stdout for result in results}) == 1


def test_the_report(script, tmp_path):
    out = tmp_path / "report.json"
    result = run("audit", "--spec", "e4m3 : e5m10", "--json", str(out), "--values", "--strict", script, "3")
    assert result.exit_code == 3 and "100 % of the multiply-adds" in result.stdout and "NaN" in result.stdout
    data = json.loads(out.read_text())
    assert [(r["module"], r["role"]) for r in data["records"]] == [
        *(("0", "fprop"), ("1", "fprop"), ("1", "dgrad"), ("1", "wgrad"), ("0", "wgrad"))
    ]
    strict = run("audit", "--strict", script)
    assert (
        strict.exit_code == 1
        and type(strict.exception).__name__ == "NativeGemmError"
        and "No products" in strict.stdout
    )
    failed = run("audit", script, "--fail")
    assert failed.exit_code == 1 and "5 products" in failed.stdout


def test_the_real_command(script):
    command = [sys.executable, "-m", "gemmsim", "audit", "--strict", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "NativeGemmError" in done.stderr and "addmm" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("emulate", "mine.py"), "without a config"),
        (("emulate", "--spec", ":bf17", "mine.py"), "bf16"),
        (("emulate", "--spec", ":fp32", "--config", "x.json", "mine.py"), "one of them"),
        (("emulate", "--config", "nothing.json", "mine.py"), "nothing.json"),
        (("emulate", "--config", "mine.py", "mine.py"), "not valid JSON"),
        (("emulate", "--spec", ":fp32", "absent.py"), "absent.py"),
        (("audit",), "no program"),
        (("audit", "--srict", "mine.py"), "--srict"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(script, args, words):
    result = run(*args)
    assert result.exit_code == 2 and words in result.stderr and "Traceback" not in result.stderr


MISFITS = {
    "no such module": ([["9.*", ":bf16"]], (), "patterns that match a module of Sequential, such as 0, 1"),
    "all native": ([["9.*", None]], (), "patterns that match a module of Sequential, such as 0, 1"),
    "in compiled code": (
        [["9.*", ":bf16"]],
        ("--compiled",),
        "patterns that match a module of Sequential, such as 0, 1",
    ),
    "two models": ([["0", ":bf16"], ["*", None]], ("--other",), "Sequential and then Linear called in one context"),
    "no meaning for a call": (
        {"rules": [{"kinds": "cdist", "formats": {"fprop": ": e5m10", "input_quant": "e4m3"}}]},
        ("--distance",),
        "in cdist: cdist with these formats",
    ),
}


@pytest.mark.parametrize("command", ["emulate", "audit"])
@pytest.mark.parametrize(("rules", "args", "words"), MISFITS.values(), ids=MISFITS)
def test_rules_that_do_not_fit_the_program_are_one_message_and_exit_code_2(script, command, rules, args, words):
    pathlib.Path("rules.json").write_text(json.dumps(rules))
    result = run(command, "--config", "rules.json", script, *args)
    assert result.exit_code == 2 and words in result.stderr and "Traceback" not in result.output
    assert result.stderr.startswith("error: ") and ("products" in result.stdout) is (command == "audit")


@pytest.mark.parametrize(
    ("args", "error"), [(("--own",), "ConfigError"), (("--typo",), "FormatError"), (("--fail",), "KeyError")]
)
def test_mistakes_of_the_program_keep_their_traceback(script, args, error):
    result = run("emulate", "--spec", ":fp32", script, *args)
    assert result.exit_code == 1 and error in type(result.exception).__name__ and "error:" not in result.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_rules_in_the_encodings_of_other_tools(script, tmp_path, encoding):
    """PowerShell's ``>`` writes UTF-16 with a byte order mark, Notepad UTF-8 with one."""
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([["*", "e4m3 : e5m10"]]), encoding=encoding)
    done = CliRunner().invoke(app, ["emulate", "--config", str(rules), script])
    plain = CliRunner().invoke(app, ["emulate", "--spec", "e4m3 : e5m10", script])
    assert (done.exit_code, done.stdout) == (plain.exit_code, plain.stdout) and "out" in done.stdout


@pytest.mark.parametrize("data", ['[["é", ":bf16"]]'.encode("latin-1"), b"\xff\xfe[", b"\x00\xd8"])
def test_rules_that_are_no_text_are_one_message(script, tmp_path, data):
    rules = tmp_path / "rules.json"
    rules.write_bytes(data)
    done = CliRunner().invoke(app, ["emulate", "--config", str(rules), script])
    assert done.exit_code == 2 and "is no text in utf-" in done.output and "Save it as UTF-8" in done.output
