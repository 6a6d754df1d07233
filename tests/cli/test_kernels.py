"""``gemmsim kernels``: compiling ahead of time and looking after the folder, without a GPU."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gemmsim.backends import cuda
from gemmsim.backends.cuda import registry
from gemmsim.backends.cuda.registry import Family
from gemmsim.cli.app import app

installed = pytest.mark.cuda


def kernels(*args: str):
    return CliRunner().invoke(app, ["kernels", *args])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def few(monkeypatch):
    """One family of two kernels in place of all."""
    from support_cuda import tiny_kernel

    family = Family("tiny", "two kernels", lambda: [tiny_kernel(1), tiny_kernel(2)])
    monkeypatch.setattr(registry, "FAMILIES", {"tiny": family})


def test_path_and_an_empty_list_make_nothing(folder):
    assert kernels("path").stdout.strip() == str(folder)
    assert "no kernels" in kernels("list").stdout
    assert "0 files removed" in kernels("clear").stdout
    assert not folder.exists()


@installed
def test_compile_list_and_clear(folder, few):
    result = kernels("compile", "--all", "--arch", "sm_80", "--arch", "sm_90a", "--arch", "sm_80")
    assert result.exit_code == 0, result.output
    assert "4 kernels for sm_80, sm_90a: 4 compiled" in result.stdout
    # A new process finds them on disk; here the process's own memory is what is asked first.
    assert "2 kernels for sm_90a: 0 compiled" in kernels("compile", "tiny", "--arch", "sm_90a").stdout
    listed = kernels("list").stdout
    assert listed.count("test<tiny 1>") == 2 and "sm_90a" in listed and "4 kernels" in listed
    assert "other version" not in listed
    assert "4 files removed" in kernels("clear").stdout
    assert "no kernels" in kernels("list").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "--arch", "sm_90a"], "--all"),
        (["compile", "cast", "--all", "--arch", "sm_90a"], "one of them"),
        (["compile", "cast", "--arch", "sm_75"], "sm_80 (the oldest)"),
        pytest.param(
            ["compile", "nonsense", "--arch", "sm_90a"], "kernel family nonsense; allowed: cast", marks=installed
        ),
    ],
)
def test_mistakes_cost_one_message(folder, arguments, message):
    result = kernels(*arguments)
    assert result.exit_code == 2 and result.stderr.startswith("error: ") and message in result.stderr
    assert "Traceback" not in result.stderr and not folder.exists()


def test_a_missing_package_is_no_traceback(folder, monkeypatch):
    from gemmsim.cli import kernels as command

    def missing():
        raise cuda.PackageError("no compiler")

    monkeypatch.setattr(command, "toolchain", missing)
    result = kernels("compile", "--all", "--arch", "sm_90a")
    assert result.exit_code == 2 and result.stderr.strip() == "error: no compiler"
