"""The import lines of tests/compat/import_lines: each resolves under ``gemmsim.compat`` or is said not to, and why."""

from __future__ import annotations

import pytest
from support import import_lines as lists
from support.fork import run_forked
from support.import_lines import Line

LINES = [line for peer in lists.peers() for line in lists.read(peer)]
#: People write at least so many different ones for each peer.
FEWEST = 30


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.peer}: {line.code}")
def test_the_line_resolves_unless_it_is_not_offered(line: Line):
    if line.verdict == "not offered":
        with pytest.raises(ImportError):
            exec(line.rewritten, {})
        return
    try:
        exec(line.rewritten, {})
    except ModuleNotFoundError as error:
        # the peer needs it too: torchmx's layers of transformers
        if error.name is None or error.name.split(".")[0] == "gemmsim":
            raise
        pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("peer", lists.peers())
def test_nearly_every_line_of_a_peer_resolves(peer):
    lines = lists.read(peer)
    assert len({line.code for line in lines}) == len(lines) >= FEWEST
    offered = sum(line.verdict != "not offered" for line in lines)
    assert offered >= 0.95 * len(lines), f"{peer}: {offered} of {len(lines)}"


@pytest.mark.parametrize("peer", lists.peers())
def test_the_page_has_the_list(peer):
    page = (lists.PAGES / f"{peer}.md").read_text(encoding="utf-8")
    assert page == lists.with_section(page, peer), f"python tests/support/import_lines.py {peer}  writes it"


@pytest.mark.parametrize("peer", lists.peers())
def test_the_overview_leads_to_the_page(peer):
    overview = (lists.PAGES.parent / "compat.md").read_text(encoding="utf-8")
    assert f"(compat/{peer}.md)" in overview, "docs/reference/compat.md has a row for each system with its page"


def test_parts_are_attributes_of_what_was_imported():
    """In a fresh interpreter, where no other test has loaded them."""
    code = (
        "import gemmsim.compat.torchao as torchao, gemmsim.compat.microxcaling as mx, gemmsim.compat.torchmx as torchmx\n"
        "import gemmsim.compat.torchao.prototype.mx_formats as mxf\n"
        "torchao.quantization.quantize_; torchao.prototype.mx_formats.ScaleCalculationMode; mxf.mx_tensor.MXTensor\n"
        "mx.mx_ops.quantize_mx_op; mx.specs.MxSpecs; mx.vector_ops.vec_add; mx.norm_utils; mx.custom_extensions.funcs\n"
        "torchmx.mx_tensor.MXTensor; torchmx.MXTensor; torchmx.ops.mx_mm\n"
        "print('all there')"
    )
    done = run_forked(code)
    assert done.stdout.strip() == "all there", done.stderr


@pytest.mark.parametrize(
    "code, peer, want",
    [
        ("from torchao.a.b import C as D, E", "torchao", "from gemmsim.compat.torchao.a.b import C as D, E"),
        ("from mx import Linear", "microxcaling", "from gemmsim.compat.microxcaling import Linear"),
        ("from mx.specs import *", "microxcaling", "from gemmsim.compat.microxcaling.specs import *"),
        ("import mx", "microxcaling", "import gemmsim.compat.microxcaling as mx"),
        ("import modelopt.torch.quantization as mtq", "modelopt", "import gemmsim.compat.modelopt.torch.quantization as mtq"),
        ("import qtorch.quant", "qtorch", "import gemmsim.compat.qtorch.quant; import gemmsim.compat.qtorch as qtorch"),
    ],
)  # fmt: skip
def test_how_a_line_is_rewritten(code, peer, want):
    assert lists.rewrite(code, peer) == want


@pytest.mark.parametrize(
    "code", ["import torch", "from mxnet import nd", "x = 1", "from . import a", "import mx, torch"]
)
def test_other_lines_are_refused(code):
    with pytest.raises(ValueError, match="allowed"):
        lists.rewrite(code, "microxcaling")


def test_a_list_says_why_in_one_form(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "LISTS", tmp_path)
    (tmp_path / "mptorch.txt").write_text(
        "# README\nimport mptorch\nfrom mptorch import a  # not offered: no such thing\n"
    )
    assert [(line.verdict, line.why) for line in lists.read("mptorch")] == [
        ("works", ""),
        ("not offered", "no such thing"),
    ]
    (tmp_path / "mptorch.txt").write_text("from mptorch import a  # not there\n")
    with pytest.raises(ValueError, match=r"mptorch.txt:1"):
        lists.read("mptorch")


def test_a_section_shows_what_differs_and_folds_what_works(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "LISTS", tmp_path)
    (tmp_path / "mptorch.txt").write_text(
        "import mptorch\nfrom mptorch import a  # differs: a | b\nfrom mptorch import c  # not offered: old\n"
        "from mptorch import d\n"
    )
    text = lists.section("mptorch")
    before, fold, after = text.partition("<details><summary>2 of 4 lines work</summary>\n\n")
    assert fold and "2 of 4 lines work unchanged; the table lists the others." in before
    assert "| `from mptorch import a` | differs: a \\| b |\n| `from mptorch import c` | not offered: old |\n" in before
    assert after == "```text\nimport mptorch\nfrom mptorch import d\n```\n\n</details>\n"
    (tmp_path / "mptorch.txt").write_text("import mptorch\n")
    assert "All 1 lines work unchanged." in lists.section("mptorch") and "| import line |" not in lists.section(
        "mptorch"
    )


def test_a_section_replaces_the_one_before():
    once = lists.with_section("# Title\n\nWords.\n", "torchmx")
    assert once.startswith("# Title\n\nWords.\n\n## Import lines\n") and lists.with_section(once, "torchmx") == once
    older = once.replace("```text", "```") + "\n## Bits\n\nMore.\n"
    assert older != once + "\n## Bits\n\nMore.\n"
    assert lists.with_section(older, "torchmx") == once + "\n## Bits\n\nMore.\n"
