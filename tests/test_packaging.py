"""What sdists and wheels hold, by the rules of pyproject.toml and without making one."""

from __future__ import annotations

import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gemmsim"
#: Made by the build, or by running.
MADE = ("*.so", "*.so.*", "*.dylib", "*.pyc")
#: Of gemmsim.libraries: one a GPU and version.
PROFILES = (
    *("gb200-12.8.5", "gb200-13.1.1", "gb300-13.1.1"),
    *("h100-13.1.1", "h100-pcie-12.8.3.14", "h200-13.1.1", "rtx4060-12.8.3.14"),
)
#: Files that are no Python and that the package opens when it runs.
DATA = {
    "gemmsim/py.typed",
    *(f"gemmsim/libraries/profiles/{name}.json" for name in PROFILES),
    "gemmsim/study/report.html.j2",
    "gemmsim/study/texts/declaration.txt",
    "gemmsim/study/texts/sentences.txt",
    "gemmsim/study/texts/SOURCE.txt",
    "gemmsim/study/networks/digits_64_256_10.safetensors",
}


def rules() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]


def found() -> set[str]:
    """Files of the package, those that are Python or made left out."""
    files = (path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file())
    return {file for file in files if not file.endswith(".py") and not any(fnmatchcase(file, rule) for rule in MADE)}


def included(file: str, patterns: list[str]) -> bool:
    """Whether one of the patterns, as git reads them, names ``file``; * ends at a slash, ** does not."""
    return any(
        fnmatchcase(file, pattern.replace("**/", "*")) and ("**" in pattern or file.count("/") == pattern.count("/"))
        for pattern in patterns
    )


def test_data_files_are_those_that_are_known():
    assert found() == DATA, "a new one belongs into sdist.include of pyproject.toml, and here"


def test_the_sdist_takes_all_that_the_package_needs():
    patterns = rules()["sdist"]["include"]
    # These take precedence over the excluded ones, one of which (study_*) is the name of a module, too.
    code = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    assert [file for file in sorted(code | found()) if not included(file, patterns)] == []
    assert {"cutlass_kernels/**", "CMakeLists.txt", "LICENSE", "README.md"} <= set(patterns)


def test_the_wheel_takes_the_whole_package():
    assert rules()["wheel"]["packages"] == ["gemmsim"] and "exclude" not in rules()["wheel"]


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="no working tree of git")
def test_git_ignores_no_file_of_the_package():
    asked = "\n".join(sorted(found()))
    done = subprocess.run(["git", "check-ignore", "--stdin"], cwd=ROOT, input=asked, capture_output=True, text=True)
    assert done.stdout == "", "wheels leave out what git ignores"
