"""A name leads to one thing: what a package exports under a module's name comes out of that module, names differ in more than an ending,
and tests of a package are found in a folder of its name.

``gemmsim/compat`` is left out: it has the names of the packages it stands for.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from support import ROOT

PACKAGE = ROOT / "gemmsim"
FOLDERS = sorted(
    path.parent for path in PACKAGE.rglob("__init__.py") if "compat" not in path.relative_to(PACKAGE).parts
)
#: Exported under the name of a module that holds something else: package and name -> why it stays.
HIDING = {
    ("gemmsim.hardware", "instruction"): "the function; the module's classes are exported beside it",
    ("gemmsim.reference", "scaled_block"): "the cast of a format; the module scaled_block holds its arithmetic",
}
#: Folders of tests whose subject is no package: what they are for.
OTHER_FOLDERS = {"distribution", "golden", "gpu", "gpu_kit", "oracles", "standin"}


def dotted(folder: Path) -> str:
    return ".".join(folder.relative_to(ROOT).parts)


@pytest.mark.parametrize("folder", FOLDERS, ids=dotted)
def test_no_exported_name_hides_a_module_that_holds_something_else(folder):
    name = dotted(folder)
    package = importlib.import_module(name)
    for one in getattr(package, "__all__", ()):
        if (folder / f"{one}.py").exists() and (name, one) not in HIDING:
            value = getattr(package, one)
            home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
            assert home == f"{name}.{one}", f"{name}.{one} is from {home}: rename one of them"


@pytest.mark.parametrize("folder", FOLDERS, ids=dotted)
def test_files_of_a_package_differ_in_more_than_an_ending(folder):
    stems: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        stem = path.stem
        for ending in ("ing", "s"):
            stem = stem.removesuffix(ending)
        assert stem not in stems, f"{path.relative_to(ROOT)} beside {stems[stem]}.py: say what each holds"
        stems[stem] = path.stem


def test_what_hides_a_module_still_does():
    for package, name in HIDING:
        assert inspect.isroutine(getattr(importlib.import_module(package), name))
        assert (ROOT / Path(*package.split(".")) / f"{name}.py").exists()


def test_folders_of_tests_mirror_the_package():
    tests = ROOT / "tests"
    for folder in sorted({path.parent for path in tests.rglob("test_*.py")} - {tests}):
        name = folder.relative_to(tests)
        assert name.parts[0] in OTHER_FOLDERS or (PACKAGE / name).is_dir(), f"gemmsim/{name} is no package"
    for name in OTHER_FOLDERS:
        assert (tests / name).is_dir() and not (PACKAGE / name).exists()
