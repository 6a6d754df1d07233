"""``gemmsim env``: everything that a bug report needs, as lines that survive copying, and nothing else of the machine."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gemmsim.backends import cpu
from gemmsim.cli import installation, machine
from gemmsim.cli.app import app
from gemmsim.cli.env import VARIABLES, facts

NAMES = (
    *("gemmsim", "installed", "package", "cpu library", "cpu library built by", "cpu instruction sets"),
    *("cpu instruction set", "python", "torch", "torch build", "torch cpu capability", "numpy", "system", "cpu"),
    *("cores", "threads", "gpu", "gpu driver", "nvidia-cuda-nvrtc", "nvidia-cutlass", "cache folder"),
)


def test_all_that_a_report_needs_is_there():
    found = facts()
    assert [name for name in NAMES if not found.get(name)] == []
    assert found["cpu instruction set"] in found["cpu instruction sets"].split(", ")
    assert Path(found["cpu library"]).is_file() and Path(found["package"], "__init__.py").is_file()


def test_every_fact_is_one_line_however_narrow_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    lines = CliRunner().invoke(app, ["env"]).stdout.splitlines()
    found = facts()
    assert len(lines) == len(found) and "\x1b" not in "".join(lines)
    assert all(
        line.split("  ")[0] == name and line.endswith(found[name]) for name, line in zip(found, lines, strict=True)
    )


def test_variables_are_named_where_they_are_set_and_no_others_are(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", "off")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    found = facts()
    named = {name: value for name, value in found.items() if name.startswith("$")}
    assert named == {"$GEMMSIM_ALLOW_TENSOR_CORES": "off", "$OMP_NUM_THREADS": "3"}
    assert "secret" not in json.dumps(found)


def test_a_missing_library_is_a_fact(monkeypatch):
    def missing():
        raise cpu.LibraryError("not there")

    for name in ("isa", "build_info", "library_path"):
        monkeypatch.setattr(cpu, name, missing)
    found = facts()
    for name in ("cpu library", "cpu library built by", "cpu instruction sets", "cpu instruction set"):
        assert found[name] == "not available: not there"


WHEEL = "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_28_x86_64\n"
INSTALLED = {
    "from an index": (None, "from a package index, tag py3-none-manylinux_2_28_x86_64, by pip"),
    "wheel": (
        {"url": "file:///tmp/gemmsim-1.0-py3-none-any.whl", "archive_info": {}},
        "wheel gemmsim-1.0-py3-none-any.whl, tag py3-none-manylinux_2_28_x86_64, by pip",
    ),
    "sdist": (
        {"url": "file:///tmp/gemmsim-1.0.tar.gz", "archive_info": {}},
        "built from gemmsim-1.0.tar.gz, tag py3-none-manylinux_2_28_x86_64, by pip",
    ),
    "folder": (
        {"url": "file:///src/gemmsim", "dir_info": {}},
        "built from /src/gemmsim, tag py3-none-manylinux_2_28_x86_64, by pip",
    ),
    "repository": (
        {"url": "https://example.org/gemmsim.git", "vcs_info": {"vcs": "git"}},
        "built from https://example.org/gemmsim.git, tag py3-none-manylinux_2_28_x86_64, by pip",
    ),
    "editable": ({"url": "file:///src/gemmsim", "dir_info": {"editable": True}}, "editable, from /src/gemmsim"),
}


@pytest.mark.parametrize("case", INSTALLED)
def test_how_it_was_installed(case, monkeypatch, tmp_path):
    origin, says = INSTALLED[case]
    folder = tmp_path / "gemmsim-1.0.dist-info"
    folder.mkdir()
    for name, text in (("WHEEL", WHEEL), ("INSTALLER", "pip\n"), ("METADATA", "Name: gemmsim\nVersion: 1.0\n")):
        (folder / name).write_text(text, encoding="utf-8")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    monkeypatch.setattr(installation, "distribution", lambda name: PathDistribution(folder))
    monkeypatch.setattr(installation, "package_folders", lambda: [Path("/elsewhere/gemmsim")])
    assert installation.how_installed() == f"{says}; another copy runs: /elsewhere/gemmsim"
    runs = Path("/src/gemmsim/gemmsim") if case == "editable" else tmp_path / "gemmsim"
    monkeypatch.setattr(installation, "package_folders", lambda: [runs])
    assert installation.how_installed() == says


def test_a_source_tree_that_was_not_installed(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", missing)
    assert installation.how_installed() == "not installed: a source tree on Python's path"


def test_a_processor_without_a_name_is_told_as_its_architecture(monkeypatch):
    def missing(*_, **__):
        raise OSError

    monkeypatch.setattr(machine.Path, "read_text", missing)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "riscv64")
    assert machine.processor()["cpu"] == "unknown (riscv64)"
