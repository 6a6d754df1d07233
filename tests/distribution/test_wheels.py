"""What `make wheels` does before and after it compiles."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest
import wheels
from support import ROOT


def test_build_tools_have_exact_versions():
    lines = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if not line.startswith("#")]
    assert asked and all(re.fullmatch(r"[a-z_]+==[0-9.]+", line) for line in asked)
    assert set(wheels.TOOLS) <= {line.split("==")[0] for line in asked}


def test_an_unknown_platform_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        wheels.main(["windows"])
    assert "unknown platforms: windows (known: x86_64, aarch64)" in capsys.readouterr().err


def test_a_missing_compiler_is_named_with_its_package(tmp_path):
    target = wheels.Target("riscv64", "riscv64-linux-gnu-g++-none", "g++-riscv64-linux-gnu")
    with pytest.raises(wheels.BuildError, match="apt-get install g.*riscv64"):
        wheels.compile_wheel(tmp_path, target, tmp_path)


def test_a_failed_command_shows_its_last_lines():
    with pytest.raises(wheels.BuildError, match="the reason"):
        wheels.run(["sh", "-c", "echo the reason >&2; exit 3"])


def test_the_time_of_the_build_is_the_variable_or_the_last_commit(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert wheels.time_of_build() == 1_700_000_000
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(wheels, "run", lambda command: "1600000000\n")
    assert wheels.time_of_build() == 1_600_000_000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(wheels.BuildError, match="SOURCE_DATE_EPOCH"):
        wheels.time_of_build()


def test_files_that_no_commit_has_are_refused(monkeypatch):
    monkeypatch.setattr(wheels, "run", lambda command: " M README.md\n?? new.py\n")
    with pytest.raises(wheels.BuildError, match=r"2 files differ.*README\.md, new\.py.*--uncommitted"):
        wheels.check_tree()


@pytest.mark.parametrize("target", wheels.TARGETS.values(), ids=list(wheels.TARGETS))
def test_paths_of_the_building_machine_are_mapped_away(target):
    options = target.options(Path("/tmp/some/source"))
    assert '-ffile-prefix-map="/tmp/some/source"=.' in options["cmake.define.CMAKE_CXX_FLAGS"]
    assert (ROOT / "packaging" / "old_libraries.h").exists()
    toolchain = options.get("cmake.define.CMAKE_TOOLCHAIN_FILE")
    assert toolchain is None or (ROOT / Path(toolchain).relative_to("/tmp/some/source")).exists()


def test_sums_are_those_of_sha256sum(tmp_path):
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"sdist")
    wheels.write_sums(tmp_path)
    wheels.write_sums(tmp_path)  # a file of sums is not among what it lists
    expected = [
        f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in (("a.tar.gz", b"sdist"), ("b.whl", b"wheel"))
    ]
    assert (tmp_path / "SHA256SUMS").read_text(encoding="utf-8").splitlines() == expected


def test_make_help_names_the_wheels():
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert "make wheels" in shown and "make TORCH=" in shown and "WHEELS=folder" in shown
