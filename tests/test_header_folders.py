"""Folders of the CPU library need each other in one direction: files at the top, then ``product``, ``casts`` and ``rows``, then ``tiles``.

Files in the top folder either serve all others (vectors, the table of an instruction set) or put everything together.
"""

from __future__ import annotations

import re
from collections import defaultdict

from support import ROOT

CPU = ROOT / "cutlass_kernels" / "cpu"
#: Files that put the functions of all folders into one table.
TABLES = {"tiles/tiles.cpp"}


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def includes() -> dict[str, set[str]]:
    """Each folder below the top, and the folders whose files its own include."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(CPU.rglob("*")):
        name = path.relative_to(CPU).as_posix()
        if path.suffix not in (".h", ".cpp") or name in TABLES or not folder_of(name):
            continue
        for other in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
            if (CPU / other).is_file() and folder_of(other) not in ("", folder_of(name)):
                found[folder_of(name)].add(folder_of(other))
    return found


def test_folders_of_headers_need_each_other_in_one_direction():
    found = includes()
    assert len(found) >= 8
    both = sorted(
        (one, other) for one, others in found.items() for other in others if one in found.get(other, ()) and one < other
    )
    assert not both, f"headers of these folders include each other: {both}"


def test_tiles_include_nothing_of_casts_and_rows():
    found = includes()
    assert not {folder for folder in found if folder.startswith("tiles") and found[folder] & {"casts", "rows"}}
