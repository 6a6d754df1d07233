"""What `make test TORCH=...` installs: nothing in it holds back another PyTorch."""

from __future__ import annotations

import re
from importlib.metadata import requires

from support import ROOT

HEADING = "# PyTorch and what it asks for"


def names(text: str) -> set[str]:
    """Packages of requirement lines, in the form in which registries compare them."""
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in text.splitlines() if not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


def test_what_pytorch_asks_for_is_pinned_under_its_own_heading():
    ours, theirs = (ROOT / "constraints.txt").read_text(encoding="utf-8").split(HEADING)
    asked = names("\n".join(requires("torch") or []))
    assert "torch" in names(theirs) and asked
    assert not (names(ours) & ({"torch", "setuptools"} | asked))
    assert not [name for name in names(ours) if name.startswith(("nvidia-", "cuda-"))]


def test_the_makefile_leaves_that_part_out():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"sed '/^{HEADING}/,$$d' constraints.txt" in makefile
    assert "$(if $(TORCH),checks,test)" in makefile
