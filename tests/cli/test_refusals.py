"""What the machine or a file refuses is one message and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from typer.testing import CliRunner

from gemmsim._files import LIMIT, FileError, read_text
from gemmsim.cli.app import app
from gemmsim.cli.console import plain


def told(*words: str, code: int, said: str) -> None:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("error: ") and said in result.stderr and "Traceback" not in result.output


def test_products_that_no_memory_holds():
    told("compare", ":fp32", ":bf16", "--shape", "99999999999", "1", "99999999999", code=2, said="GiB")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"), "not enough memory: Default"),
        (OSError(28, "No space left on device"), "No space left"),
        (OSError(36, "File name too long", "x"), "'x': File name too long"),
        (RecursionError(), "nested too deeply"),
    ],
)
def test_what_the_machine_refuses_is_exit_code_1(error, said, monkeypatch):
    from gemmsim.cli import trace

    def refuse(*_: object) -> bool:
        raise error

    monkeypatch.setattr(trace, "compare", refuse)
    told("compare", ":fp32", ":fp32", code=1, said=said)


def test_faults_of_ours_keep_their_traceback(monkeypatch):
    from gemmsim.cli import trace

    monkeypatch.setattr(trace, "compare", lambda *_: [][1])
    assert isinstance(CliRunner().invoke(app, ["compare", ":fp32", ":fp32"]).exception, IndexError)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "words", [["formats"], ["formats", "--json"], ["--help"], ["--version"], ["study", "run", "-h"]]
)
def test_a_full_disk_is_one_line(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gemmsim", *words], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_output_that_is_closed_or_not_read():
    command = f"{sys.executable} -m gemmsim formats"
    closed = subprocess.run(f"{command} >&-", shell=True, cwd=ROOT, capture_output=True, text=True)
    unread = subprocess.run(f"{command} | head -1", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert closed.stderr == unread.stderr == "" and unread.stdout.startswith("name")


LONG = "n" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("study", "report", LONG, "--out", "r.html"),
        ("study", "merge", LONG, "--out", "m"),
        ("study", "plot", "growth", "--out", LONG),
        ("study", "export", LONG, "--to", "csv"),
        ("study", "run", "gemm", "--a", f"{LONG}.npy", "--b", "x.npy", "--out", "o"),
        ("study", "run", "growth", "--spec", f"@{LONG}", "--out", "o"),
        ("study", "run", "growth", "--out", LONG),
        ("emulate", "--spec", ":bf16", LONG),
        ("emulate", "--config", LONG, "x.py"),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_names_that_no_file_has(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told(*words, code=2, said="n" * 255)


DEEP = "[" * 5000 + "]" * 5000


def test_nesting_without_end(tmp_path):
    (tmp_path / "results.jsonl").write_text(DEEP + "\n")
    (tmp_path / "study.json").write_text(DEEP)
    told("study", "plot", "growth", "--out", str(tmp_path), code=2, said="study.json' is damaged")
    told("study", "merge", str(tmp_path), "--out", str(tmp_path / "m"), code=2, said="study.json' is damaged")
    told("study", "report", str(tmp_path), "--out", str(tmp_path / "r.html"), code=2, said="holds no intact row")
    told("study", "run", "growth", "--limit", "1", "--out", str(tmp_path), code=2, said="study.json' is damaged")
    (tmp_path / "deep.json").write_text(DEEP)
    (tmp_path / "p.py").write_text("")
    program = str(tmp_path / "p.py")
    told("emulate", "--config", str(tmp_path / "deep.json"), program, code=2, said="is not valid JSON")
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(50_000)  # as a compiler of graphs does
        told("emulate", "--config", str(tmp_path / "deep.json"), program, code=2, said="more than 32 deep")
    finally:
        sys.setrecursionlimit(before)
    pytest.importorskip("yaml")
    (tmp_path / "own.yaml").write_text("&a [*a, *a, *a]")
    told("emulate", "--config", str(tmp_path / "own.yaml"), program, code=2, said="more than 32 deep")
    (tmp_path / "deep.yaml").write_text(DEEP)
    told("emulate", "--config", str(tmp_path / "deep.yaml"), program, code=2, said="is not valid YAML")


def test_modules_that_are_not_there_and_those_that_import_none(tmp_path, monkeypatch):
    told("emulate", "--spec", ":bf16", "-m", "no.such.module", code=2, said="allowed: a module that Python finds")
    (tmp_path / "wants.py").write_text("import no_such_module\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["emulate", "--spec", ":bf16", "-m", "wants"])
    assert isinstance(result.exception, ModuleNotFoundError)  # the program's own


def test_a_report_that_cannot_be_written(tmp_path):
    (tmp_path / "p.py").write_text("print(7)")
    told("audit", "--json", str(tmp_path / "no" / "r.json"), str(tmp_path / "p.py"), code=2, said="cannot write")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="/dev/zero is Unix's")
def test_files_without_end():
    told("study", "run", "growth", "--spec", "@/dev/zero", "--out", "o", code=2, said=f"more than {LIMIT:,} bytes")
    told("emulate", "--config", "/dev/zero", __file__, code=2, said=f"more than {LIMIT:,} bytes")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-be"])
def test_text_in_the_encodings_of_other_tools(encoding, tmp_path):
    path = tmp_path / "x.txt"
    mark = "\ufeff" if encoding.endswith("be") else ""
    path.write_bytes((mark + "é\nx").encode(encoding))
    assert read_text(path) == "é\nx"


def test_the_limit_of_files(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("12345")
    assert read_text(path, 5) == "12345"
    with pytest.raises(FileError, match="it has more than 4 bytes; allowed: shorter files"):
        read_text(path, 4)
    for name, reason in ((path / "inside", "Not a directory"), (Path("a\0b"), "null")):
        with pytest.raises(FileError, match=reason) as caught:
            read_text(name)
        assert caught.value.allowed == ""


def test_accumulators_with_a_byte_order_mark(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "acc.txt").write_text("e5m10\nwide = bf16\n", encoding=encoding)
        words = [
            "study",
            "run",
            "growth",
            "--spec",
            f"@{tmp_path / 'acc.txt'}",
            "--K",
            "8",
            "--out",
            "o",
            "--dry-run",
            "--json",
        ]
        result = CliRunner().invoke(app, words)
        labels = {cell["label"] for cell in json.loads(result.stdout)["cells"]}
        assert {"e5m10", "wide"} <= labels


def test_values_for_json():
    class Other:
        def __str__(self) -> str:
            return "other"

    inf = float("inf")
    given = {"a": (1.5, inf, -inf, float("nan")), 2: [None, True, "x", Other()]}
    assert plain(given) == {"a": [1.5, "inf", "-inf", "nan"], "2": [None, True, "x", "other"]}


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["emulate", "--acc", "e4m3 : fp32", "p.py", "--acc", "7"], "--spec 'e4m3 : fp32'"),
        (["emulate", "--format=bf16", "p.py"], "--spec bf16"),
        (["audit", "--accumulator", ":fp32", "-m", "json"], "--spec :fp32"),
        (["explain", "--acc", "fp32"], "--spec fp32"),
        (["explain", "--sepc"], "--spec"),
        (["trace", "--accum", ":fp16", "--a", "1", "--b", "1"], "--spec :fp16"),
        (["compare", "--spec", ":fp32", ":fp16"], None),
        (["compare", ":fp32", ":fp16", "--acc", ":fp16"], None),
    ],
)
def test_options_with_other_names_for_a_spec(words, advice):
    result = CliRunner().invoke(app, words)
    said = result.stderr.splitlines()
    last = "Give the specs without a name." if advice is None else f"Try {advice}"
    assert result.exit_code == 2 and said[-1] == f"  {last}", result.output
    assert f"no option {next(w for w in words if w[:2] == '--').partition('=')[0]}; allowed: " in said[-2]


def test_options_of_a_program_are_its_own(tmp_path):
    program = tmp_path / "p.py"
    program.write_text("import sys; sys.exit(str(sys.argv[1:]))")
    result = CliRunner().invoke(app, ["emulate", "--spec", ":fp32", str(program), "--acc", "fp32", "--format=x"])
    assert result.exit_code == 1 and "['--acc', 'fp32', '--format=x']" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trace", "hopper_fp8", "--a", "1", "--b", "1"], "'e4m3/sat : hw(hopper, wgmma, e4m3)'."),
        (["compare", "mxfp8", ":fp32"], "'mxfp8_e4m3/rceil : hw(blackwell, mxf8f6f4, e4m3)', or write 'mxfp8 : fp32'"),
        (["study", "run", "train", "--spec", "hopper_fp8", "--out", "o"], "'e4m3/sat : hw(hopper, wgmma, e4m3)'."),
    ],
)
def test_recipes_where_one_product_is_asked_for_are_answered_for_a_shell(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told(*words, code=2, said=f"\n  Give the spec of one product, such as {said}")
    assert "gemmsim.recipes" not in CliRunner().invoke(app, words).stderr


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ("print(1)\n".encode("utf-16"), "It looks like UTF-16: iconv -f UTF-16 -t UTF-8 "),
        ("print(1)\n".encode("utf-16-be"), "It looks like UTF-16: iconv -f UTF-16 -t UTF-8 "),
        ("print(1)\n".encode("utf-16-le"), "it has null bytes; allowed: text in UTF-8."),
        ("print(1)\n# \u00e9\n".encode("latin-1"), "Save it as UTF-8, or declare its encoding in its first line"),
        (b"print(1)\0\n", "it has null bytes; allowed: text in UTF-8.\n  Save it as UTF-8"),
        (b"# coding: nosuch\nprint(1)\n", "unknown encoding: nosuch; allowed: text in UTF-8."),
    ],
)
@pytest.mark.parametrize("command", ["emulate", "audit"])
def test_programs_that_are_no_text(command, contents, said, tmp_path):
    (tmp_path / "p.py").write_bytes(contents)
    program = str(tmp_path / "p.py")
    told(command, "--spec", ":fp32", program, code=2, said=f"'{program}' cannot be read as Python: ")
    told(command, "--spec", ":fp32", program, code=2, said=said)


def test_programs_that_python_reads_run(tmp_path):
    """Other encodings that a file names, byte order marks, compiled files, folders and archives; and mistakes in them
    are their own."""
    import py_compile
    import zipfile

    (tmp_path / "utf8.py").write_bytes("print(7)  # \u00e9\n".encode("utf-8-sig"))
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nprint(7)  # \u00e9\n".encode("latin-1"))
    py_compile.compile(str(tmp_path / "utf8.py"), str(tmp_path / "compiled.pyc"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("print(7)")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", "print(7)")
    for name in ("utf8.py", "latin.py", "compiled.pyc", "folder", "archive.zip"):
        result = CliRunner().invoke(app, ["emulate", "--spec", ":fp32", str(tmp_path / name)])
        assert result.exit_code == 0 and result.output == "7\n", name
    (tmp_path / "wrong.py").write_text("print(7")
    result = CliRunner().invoke(app, ["emulate", "--spec", ":fp32", str(tmp_path / "wrong.py")])
    assert isinstance(result.exception, SyntaxError)
