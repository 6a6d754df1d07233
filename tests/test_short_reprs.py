"""What a person sees of values in a console, and in a notebook: a line each, and tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim import study
from gemmsim._html import html_table
from gemmsim.emulation import Config, Record, Report, Rule
from gemmsim.study.runner import RunSummary


class Cells(HTMLParser):
    """The texts of a table's cells by rows, and of what stands around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.around: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif data.strip():
            self.around.append(data)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))


def audited() -> Report:
    model = net()
    with gs.emulate([("0", "e4m3 : fp16"), ("*", None)]), gs.audit(values=True) as report:
        model(torch.ones(4, 8))
    return report


def test_html_tables_escape_and_align():
    text = html_table(["a<b", "n"], [["<script>", "1"]], caption="&", notes=["<i>"], right=1)
    found = Cells(text)
    assert found.rows == [["a<b", "n"], ["<script>", "1"]] and found.around == ["&", "<i>"]
    assert "<script>" not in text and "<i>" not in text
    assert [re.findall("text-align: ([a-z]+)", row) for row in text.split("<tbody>")] == [["left", "right"]] * 2
    assert html_table(["a"], [], caption="c", notes=["none"]) == "<div>none</div>\n"


def test_a_report():
    report = audited()
    assert repr(report) == (
        "<Report: 2 products, 320 multiply-adds: 1 emulated, 1 native, 0 of integers; "
        "80 % of the multiply-adds are emulated>"
    )
    assert repr(Report()) == "<Report: no products>" and str(Report()) == "No products."
    lines = str(report).split("\n")
    found = Cells(report._repr_html_())
    assert [row[0] for row in found.rows] == ["module", "0", "1"] and found.around == [lines[-1]]
    assert [" ".join(row).split() for row in found.rows] == [line.split() for line in lines[:-1]]
    assert lines[0].startswith("module  role") and lines[1].endswith(" 0") and "e4m3 : e5m10" in lines[1]
    evil = Record("<b>", (1, 1, 1, 1), torch.float32, "<script>", "fprop", "native", 1)
    assert "<script>" not in Report([evil])._repr_html_() and Cells(Report()._repr_html_()).around == ["No products."]


def test_a_config():
    assert repr(Config.of("hopper_fp8")) == "<Config of 1 rule: '*' '*' 'hopper_fp8'>"
    rules = [("0", ":bf16"), ("1", None), Rule("*", "linear", gs.recipes.mxfp8())]
    assert repr(Config.of(rules)) == "<Config of 3 rules: '0' '*' ':e8m7', '1' '*' None, ...>"
    assert repr(Config()) == "<Config of 0 rules>" and str(Config()).startswith("no rules")
    assert str(Config.of(rules)).split("\n")[2].split() == ["*", "linear", "mxfp8"]
    other = gs.QAffineFormats(fprop="e4m3 : fp32", scale_margin=3)
    assert str(other) in str(Config.of([("*", other)])) and len(repr(Config.of([("*", other)]))) < 120


def test_events():
    events = gs.count_events(torch.ones(3, 16), torch.full((16, 2), 0.3), ":fp16")
    share = events.shares()
    assert (
        repr(events)
        == str(events)
        == (
            f"<Events (3, 2), 16 additions per element: {share['swamped']:.3g} swamped, {share['inexact']:.3g} inexact, "
            "0 underflow, 0 overflow>"
        )
    )
    assert share["inexact"] > 0


def test_a_comparison():
    torch.manual_seed(0)
    found = gs.compare(":fp16", ":fp32", torch.randn(2, 64), torch.randn(64, 3))
    table = Cells(found._repr_html_())
    assert table.rows[0] == ["distance in e5m10", "elements", "fraction"]
    lines = [line.split() for line in str(found).split("\n")]
    assert [" ".join(row).split() for row in table.rows[1:]] == lines[2 : 2 + len(table.rows) - 1]
    assert sum(int(row[1]) for row in table.rows[1:]) == 6
    assert table.around[0].startswith(":e5m10 against :e8m23: ") and any(
        "the sums first differ at step" in t for t in table.around
    )
    same = gs.compare(":fp32", ":fp32", torch.ones(1, 1), torch.ones(1, 1))
    assert Cells(same._repr_html_()).rows[1:] == [["equal in value", "1", "100.00%"]]


def test_a_trace():
    trace = gs.trace([1.0, 2.0], [0.1, 3.0], ":fp16")
    table = Cells(trace._repr_html_())
    assert table.rows[0] == ["part", "k", "step", "operation", "exact", "value", "rounded to"]
    assert len(table.rows) == len(trace.steps) + 1
    assert [row[5] for row in table.rows[1:]][-1] == str(trace.value)
    for row, step in zip(table.rows[1:], trace.steps, strict=True):
        assert row[2] == step.kind and row[3] == step.text and bool(row[6]) == step.is_rounded
    long = gs.trace([1.0] * 90, [1.0] * 90, ":fp16")
    table = Cells(long._repr_html_())
    assert len(table.rows) == 54 and table.rows[41][3] == f"... {len(long.steps) - 52} steps ..."
    assert table.rows[42][3] == long.steps[-12].text


def test_a_run_of_a_study(tmp_path):
    verdict = study.get("swamping").expectations()[0]
    from gemmsim.study.checks import Verdict

    summary = RunSummary(
        Path("out<1>"), [], 3, 2, 1, verdicts=[Verdict(verdict, (1.0,), True), Verdict(verdict, (), None)]
    )
    assert repr(summary) == "<RunSummary of 'out<1>': 3 cells computed, 2 reused, 1 left; 1 of 2 expectations hold>"
    table = Cells(summary._repr_html_())
    assert table.rows[1] == ["pass", verdict.words(), "1"] and table.rows[2][0] == "unfinished"
    assert table.around == ["out<1>: 3 cells computed, 2 reused, 1 left; 1 of 2 expectations hold"]
    plan = study.plan("swamping", tmp_path / "new")
    assert repr(plan) == f"<Plan of 'swamping': {len(plan.cells)} of {len(plan.cells)} cells to compute>"


FORMATS = {
    "hopper_fp8": "'hopper_fp8'",
    ":fp16": "':e5m10'",
    "e4m3 : fp32": "'e4m3 : e8m23'",
    "e4m3 * e5m2 : chunked(64, hw(hopper, wgmma, e4m3, e5m2), e8m23/rtz) -> bf16": "'e4m3 * e5m2 : chunked(64, hw(hopper, wgmma, e...'",
}


@pytest.mark.parametrize(
    "formats", [None, *FORMATS, gs.QAffineFormats(fprop="e4m3 : fp32", input_quant="e5m2", scale_margin=2)]
)
def test_layers_say_their_formats_in_short(formats):
    shown = FORMATS.get(
        formats, "None" if formats is None else "QAffineFormats(fprop='e4m3 : e8m23', input_quant='e5m2', wei...)"
    )
    assert repr(gs.nn.QLinear(8, 4, spec=formats)) == f"QLinear(in_features=8, out_features=4, bias=True, spec={shown})"
    assert (
        repr(gs.nn.QConv2d(3, 4, 3, spec=formats)) == f"QConv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), spec={shown})"
    )
    assert repr(gs.nn.QLazyLinear(4, spec=formats)).endswith(f", spec={shown})")


def test_other_modules_say_their_formats_in_short():
    mha = gs.nn.QMultiheadAttention(8, 2, projection="hopper_fp8", spec=gs.QAttentionFormats(qk="hopper_fp8"))
    softmax = gs.nn.QSoftmax(-1, spec=gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", "e5m10", "e5m10"))
    for module in (mha, softmax, gs.nn.QGELU(spec=gs.QGELUFormats("e5m10"))):
        first = repr(module).split("\n")[0] if "\n" not in repr(module) else repr(module).split("\n")[1]
        assert "spec=Q" in first and len(first) <= 120


def test_dir_lists_public_names():
    import gemmsim.emulation.mode  # noqa: F401  # loads some thirty parts of the package

    for module in (
        gs,
        gs.emulation,
        gs.formats,
        gs.arithmetic,
        gs.acc,
        gs.recipes,
        gs.nn,
        gs.mx,
        gs.ops,
        gs.hardware,
        gs.functional,
    ):
        listed = dir(module)
        assert all(hasattr(module, name) for name in listed)
        assert {*module.__all__} <= {*listed} and listed == sorted(listed)
        assert all(name == "__version__" or name[0] != "_" for name in listed)
        assert not {"annotations", "exports", "import_module", "TYPE_CHECKING"} & {*listed}
    assert dir(gs.formats) == sorted(gs.formats.__all__) and dir(gs.recipes) == gs.recipes.__all__
    assert dir(gs.emulation) == sorted(gs.emulation.__all__) and "mode" not in dir(gs.emulation)
    assert "load_operators" in dir(gs) and "__version__" in dir(gs) and "lowering" not in dir(gs)
