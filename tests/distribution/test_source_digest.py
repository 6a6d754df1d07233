"""The digest of the CPU library's sources changes with each of them, and with nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from source_digest import source_digest, sources
from support import ROOT


@pytest.fixture
def tree(tmp_path):
    for path in sources(ROOT):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def test_two_copies_of_the_sources_have_the_same_digest(tree):
    assert source_digest(tree) == source_digest(ROOT)


def test_a_changed_a_new_and_a_renamed_file_change_the_digest(tree):
    seen = {source_digest(tree)}
    header = tree / "cutlass_kernels" / "cpu" / "vec.h"
    header.write_text(header.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    seen.add(source_digest(tree))
    (tree / "cutlass_kernels" / "cpu" / "new.h").write_text("", encoding="utf-8")
    seen.add(source_digest(tree))
    (tree / "cutlass_kernels" / "cpu" / "new.h").rename(tree / "cutlass_kernels" / "cpu" / "newer.h")
    seen.add(source_digest(tree))
    assert len(seen) == 4


def test_pages_and_python_do_not_change_the_digest(tree):
    before = source_digest(tree)
    (tree / "cutlass_kernels" / "NOTES.md").write_text("words", encoding="utf-8")
    (tree / "gemmsim").mkdir()
    (tree / "gemmsim" / "new.py").write_text("", encoding="utf-8")
    assert source_digest(tree) == before


def test_every_header_that_the_library_includes_is_among_the_sources():
    known = {path.resolve() for path in sources(ROOT)}
    kernels = ROOT / "cutlass_kernels"
    for path in (kernels / "cpu").rglob("*.*"):
        if path.suffix not in (".h", ".cpp"):
            continue
        for name in re.findall(r'^#include "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE):
            places = [folder / name for folder in (path.parent, kernels / "cpu", kernels / "include", kernels)]
            found = next((place for place in places if place.exists()), Path(name))
            assert found.resolve() in known, f"{path} includes {name}"
