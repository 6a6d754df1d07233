"""Names, comments and pages use the field's terms (docs/contributing/glossary.md), not words that the project once made up."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest
from support import ROOT

#: Words that the glossary's section of history explains, for readers of old commits.
PRIVATE = re.compile(
    r"(?i)(?<![a-z])(beside|brisk\w*|sunk|sink(?!s?\()|lifted|wager\w*|carefully|closely|nobody|unwatch|watch(?:ed|er|ing|es)?)(?![a-z])"
)
#: What PyTorch, Python or the operating system call so.
FOREIGN = re.compile(r"file watch\w*|watchdog|torch\.\w*watch\w*")
FOLDERS = ("cutlass_kernels", "gemmsim/backends", "gemmsim/emulation", "gemmsim/lowering")
PAGES = ("docs/design/cpu.md", "docs/design/cuda.md")


def files(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".h", ".cpp"))


def words_of(path: Path) -> str:
    """Names and comments of a source file: all of it but string literals that are no docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    kept = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL)
        if token.type != tokenize.STRING or docstring:
            kept.append(token.string)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return " ".join(kept)


def private_words(text: str) -> list[str]:
    # "one_at_once" and "RowsAtOnce" are words, too
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", FOREIGN.sub("", text))
    return sorted({match[0].lower() for match in PRIVATE.finditer(apart)})


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_and_comments_have_no_private_words(folder):
    paths = files(folder)
    assert paths
    found = {str(path.relative_to(ROOT)): private_words(f"{words_of(path)} {path.stem}") for path in paths}
    wrong = {path: words for path, words in found.items() if words}
    assert not wrong, f"the glossary (docs/contributing/glossary.md) has the terms: {wrong}"


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_kernels_have_no_private_words(page):
    assert not private_words((ROOT / page).read_text(encoding="utf-8"))


def test_words_are_found():
    assert private_words("rows_beside, WatchedSum and a wager") == ["beside", "wager", "watched"]
    assert not private_words("a careful proof of overlap")
