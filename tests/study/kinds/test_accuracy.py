"""The kind accuracy and its templates: which cells a grid has, what they are called, what is refused."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim import study
from gemmsim.arithmetic import SpecError
from gemmsim.formats import FormatError
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.accuracy import measure_pass, prepare_pass
from gemmsim.study.records import TIME_COLUMNS
from gemmsim.study.templates import register_of, templates


def test_templates_are_read_with_and_without_label():
    one, other = templates(["chunk = chunked(16, {})", "kahan({})"], "acc")
    assert (one.label, str(one.spec("e5m2"))) == ("chunk", ":chunked(16, e5m2)")
    assert (other.label, str(other.spec("bf16"))) == ("kahan({})", ":kahan(e8m7)")
    assert templates("x = e4m3 * e5m2 : {}/rtz -> bf16", "acc")[0].open
    assert not templates("x = int(18)", "acc")[0].open
    assert templates([one, one], "acc") == (one,)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"spec": ["x = {}", "x = {}/rtz"]}, StudyError, "two accumulators labelled 'x'"),
        ({"spec": []}, StudyError, "no accumulator"),
        ({"spec": [5]}, StudyError, "allowed: text"),
        ({"spec": ["chunk({})"]}, SpecError, "chunked"),
        ({"formats": "e5m2,e5mm"}, FormatError, "e5mm"),
        ({"formats": ""}, StudyError, "lists no format"),
        ({"seeds": 0}, StudyError, "1 to 1000000"),
        ({"metric": "acuracy"}, StudyError, "'accuracy'"),
        ({"format": "e5m2"}, StudyError, "'formats'"),
    ],
)
def test_bad_input(given, error, said):
    with pytest.raises(error, match=said):
        study.kind("accuracy")(**given)


def test_cells_are_formats_times_orders_and_only_random_ones_repeat():
    kind = study.kind("accuracy")(spec=["a = {}", "s = {}/sr8", "w = int(18)"], formats="e5m2,bf16", seeds=3)
    cells = kind.cells()
    assert cells[0].label == "exact" and dict(cells[0].columns)["what"] == "truth"
    found = [(cell.label, dict(cell.columns)["acc_format"], cell.seed) for cell in cells[1:]]
    assert found == [
        ("a", "e5m2", 0), ("s", "e5m2", 0), ("s", "e5m2", 1), ("s", "e5m2", 2), ("w", None, 0),
        ("a", "bf16", 0), ("s", "bf16", 0), ("s", "bf16", 1), ("s", "bf16", 2),
    ]  # fmt: skip
    assert all(cell.macs == 599 * (64 * 256 + 256 * 10) for cell in cells)
    assert len({cell.key for cell in cells}) == len(cells)


def test_parameters_give_the_words_that_give_them():
    kind = study.kind("accuracy")(spec=["a = chunked(16, {})", "b = {}"], formats="e5m2,bf16", metric="logit_err")
    words = kind.arguments()
    assert words == ["--spec", "a = chunked(16, {})", "b = {}", "--formats", "e5m2,bf16", "--metric", "logit_err"]


def test_the_narrowest_register_names_the_format():
    assert register_of(gs.GemmSpec.of("chunked(8, e5m2, bf16)")) == ("e5m2", 3)
    assert register_of(gs.GemmSpec.of("int(18)")) is None


def test_columns_of_a_pass():
    context = prepare_pass("x")
    exact = measure_pass(context.truth, context)
    assert exact["correct"] == 582 and exact["images"] == 599 and exact["accuracy"] == 582 / 599
    assert exact["logit_err"] == exact["logit_error_max"] == 0 and exact["agree"] == 1
    shifted = context.truth.clone()
    shifted[:3] = -shifted[:3]
    found = measure_pass(shifted, context)
    error = (shifted - context.truth).square().sum().sqrt() / context.truth.square().sum().sqrt()
    assert found["logit_err"] == pytest.approx(float(error), rel=2 * 599 * 10 * 2.0**-53)  # sums of 5990 squares
    assert found["agree"] == 596 / 599
    broken = context.truth.clone()
    broken[0, 0] = float("nan")
    assert measure_pass(broken, context)["logit_err"] != measure_pass(broken, context)["logit_err"], "NaN"


def test_rows_do_not_depend_on_threads(tmp_path):
    def rows(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            kind = study.kind("accuracy")(spec=["s = {}/sr8", "k = kahan({})"], formats="e5m2")
            found = study.run(kind, tmp_path / str(threads)).rows
        finally:
            torch.set_num_threads(before)
        return [{name: value for name, value in row.items() if name not in TIME_COLUMNS} for row in found]

    assert rows(1) == rows(2)


def test_a_list_of_accumulators_has_a_table_a_picture_and_a_finding(tmp_path):
    kind = study.kind("accuracy")(spec=["one = e5m2", "two = int(30)"][:1], formats="e5m2")
    rows = study.run(kind, tmp_path).rows
    assert "one" in (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert kind.finding(rows).startswith("Accuracy 97.2 % with exact sums, 91.5 % with these")
    kind.plot(rows[:1], tmp_path / "part.png")
