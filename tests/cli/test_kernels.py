"""``gemmsim kernels``: compiling ahead of time and looking after the folder, without a GPU."""

from __future__ import annotations

from pathlib import Path

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
    from support.cuda import tiny_kernel

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


@installed
@pytest.mark.filterwarnings("ignore::gemmsim.backends.cuda.CacheWarning")
def test_compiling_into_a_folder_that_keeps_nothing_is_no_success(tmp_path, monkeypatch, few):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", str(tmp_path / "file" / "below"))
    result = kernels("compile", "tiny", "--arch", "sm_90a")
    assert result.exit_code == 2 and "test<tiny 1> for sm_90a could not be saved in" in result.stderr
    assert "Traceback" not in result.stderr and "kept in" not in result.stdout


def test_what_cannot_be_removed_is_one_message(folder, monkeypatch):
    kept = folder / "entries" / "ab"
    kept.mkdir(parents=True)
    for name in ("one", "two"):
        (kept / name).write_text("")
    unlink = Path.unlink

    def only_one(path, missing_ok=False):
        if path.name == "two":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", only_one)
    result = kernels("clear")
    assert result.exit_code == 2 and "1 of 2 files stay" in result.stderr and "Traceback" not in result.stderr
    assert [path.name for path in kept.iterdir()] == ["two"]


@pytest.mark.parametrize("command", ["path", "list", "clear"])
def test_without_a_home_folder_a_command_says_what_to_set(monkeypatch, command):
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", "~no_user_has_this_name/kernels")
    result = kernels(command)
    assert result.exit_code == 2 and "Set GEMMSIM_CACHE_DIR" in result.stderr and "Traceback" not in result.stderr


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
