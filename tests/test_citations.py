"""Comments and docstrings cite what a reader of the project can open: pages of docs, with headings that exist, or what is published.

Design sheets (``spec`` with a slash) are not in the repository. Links between pages go to headings that exist, too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from support import ROOT

FOLDERS = ("gemmsim", "cutlass_kernels", "tests", "benchmarks", "examples", "packaging", "docs")
SUFFIXES = {".py", ".h", ".cpp", ".md", ".txt", ".sh"}
SHEET = re.compile(r"(?<![\w/])spec/")
PAGE = re.compile(r"(?<![\w./])(?P<page>(?:docs|tests|cutlass_kernels)/[\w/]+\.md)(?:#(?P<heading>[\w-]+))?")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<page>[^)\s#:]*)#(?P<heading>[^)\s]+)\)")
FILE = re.compile(r"`((?:gemmsim|tests|docs|benchmarks|cutlass_kernels)/[\w./*-]+)`")
SOURCE = re.compile(r"`([\w./-]+\.(?:py|h|cpp|cuh|sh))`")
#: Headers of other projects.
FOREIGN = ("cutlass/", "cute/")
CODE = re.compile(r"^```.*?^```\s*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def texts(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(
        path for path in found if path.suffix in SUFFIXES and path.is_file() and path.name != Path(__file__).name
    )


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub makes them: lower case, without punctuation, with hyphens for blanks."""
    text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found)


@cache
def ends_of_paths() -> frozenset[str]:
    """Every path of a source file and every end of one: "backend.py", "backends/backend.py" ..."""
    files = (path.relative_to(ROOT).parts for folder in (*FOLDERS, ".ci") for path in (ROOT / folder).rglob("*.*"))
    return frozenset("/".join(parts[i:]) for parts in files for i in range(len(parts)))


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_comment_cites_a_sheet_that_is_not_in_the_repository(folder):
    paths = texts(folder)
    assert paths
    wrong = [str(path.relative_to(ROOT)) for path in paths if SHEET.search(path.read_text(encoding="utf-8"))]
    assert not wrong, f"cite a page of docs instead of spec/...: {wrong}"


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "docs"])
def test_pages_and_headings_that_code_cites_exist(folder):
    for path in texts(folder):
        for match in PAGE.finditer(path.read_text(encoding="utf-8")):
            where = f"{path.relative_to(ROOT)} cites {match[0]}"
            assert (ROOT / match["page"]).is_file(), where
            assert match["heading"] is None or match["heading"] in headings(ROOT / match["page"]), where


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_to_headings_lead_to_headings(page):
    for match in LINK.finditer(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = page if not match["page"] else (page.parent / match["page"]).resolve()
        assert match["heading"] in headings(target), f"{page.relative_to(ROOT)} links to {match[0]}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "contributing").glob("*.md")), ids=lambda page: page.name)
def test_files_that_recipes_name_exist(page):
    named = FILE.findall(page.read_text(encoding="utf-8"))
    missing = [name for name in named if not any(ROOT.glob(name))]
    assert not missing, f"{page.relative_to(ROOT)} names {missing}"


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "cutlass_kernels/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_source_files_that_pages_name_exist(page):
    """By their whole path or the end of it: `product/pack.h`."""
    named = set(SOURCE.findall(page.read_text(encoding="utf-8")))
    missing = [name for name in named if not name.startswith(FOREIGN) and name not in ends_of_paths()]
    assert not missing, f"{page.relative_to(ROOT)} names {missing}"


def test_the_patterns_find_what_they_are_for():
    assert SHEET.search("Source: spec/ops.md, section 7.") and not SHEET.search("per_spec/x and a//spec/ of others")
    assert PAGE.search("(docs/reference/formats.md#block-floating-point)")["heading"] == "block-floating-point"
    assert LINK.search("[a](b.md#c)")["heading"] == "c" and not LINK.search("[a](https://x/b#c)")
