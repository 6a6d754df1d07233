"""Every Python block in README.md and docs/ runs, each page from top to bottom in one namespace and an empty folder.

A page is a program: what a block defines, the next ones may use. Commands in console blocks must exist.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support import ROOT
from support.fork import run_forked

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>[a-z]*)[^\n]*\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
PICTURE = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line of the first code line, body) of each fenced block in ``language``."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("body")) + 1, match["body"])
        for match in FENCE.finditer(text)
        if match["language"] == language
    ]


def program(page: Path) -> str:
    """The page's blocks as one program whose line numbers are those of the page."""
    lines: list[str] = []
    for line, body in blocks(page, "python"):
        lines += [""] * (line - 1 - len(lines))
        lines += body.splitlines()
    return "\n".join(lines)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_page_runs_from_top_to_bottom(page, tmp_path):
    code = f"exec(compile({program(page)!r}, {name(page)!r}, 'exec'), {{'__name__': '__main__'}})"
    done = run_forked(code, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, f"{name(page)}:\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_of_the_project_lead_somewhere(page):
    for match in LINK.finditer(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        target = match["target"].split("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pictures_of_the_project_are_there_and_have_words(page):
    for words, target in PICTURE.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        assert words, f"{name(page)} shows {target} without words for those who do not see it"
        assert "://" in target or (page.parent / target).is_file(), f"{name(page)} shows {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_gemmsim_commands_on_the_page_exist(page):
    from typer.main import get_command

    from gemmsim.cli.app import app

    for _, body in blocks(page, "console"):
        for line in body.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ gemmsim") else []
            group, command = get_command(app), None
            for word in words[1:]:
                command = getattr(group, "commands", {}).get(word)
                if command is None:
                    break
                group = command
            if len(words) > 1 and not words[1].startswith("-"):
                assert group is not get_command(app) and not getattr(group, "commands", {}), f"{name(page)}: {line}"


def test_the_project_files_that_pages_name_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), target
