"""Labels of accumulators: any text before an equals sign behind which a spec stands."""

from __future__ import annotations

import pytest

import gemmsim as gs
from gemmsim import study
from gemmsim.study.curves import curves
from gemmsim.study.templates import templates


@pytest.mark.parametrize(
    ("given", "label", "spec"),
    [
        ("a<b = fp32", "a<b", "fp32"),
        ("a&b=fp32", "a&b", "fp32"),
        ("a=b = fp32", "a=b", "fp32"),
        ("[/x] = e4m3 : fp32", "[/x]", "e4m3 : fp32"),
        ("two words = kahan(e5m10, mul=e5m10)", "two words", "kahan(e5m10, mul=e5m10)"),
        ("mul=e5m10, add=bf16", "mul=e5m10, add=bf16", "mul=e5m10, add=bf16"),
        ("both = mul=e5m10, add=bf16", "both", "mul=e5m10, add=bf16"),
        ("kahan(e5m10, mul=e5m10)", "kahan(e5m10, mul=e5m10)", "kahan(e5m10, mul=e5m10)"),
        (" : fp32", "fp32", "fp32"),
    ],
)
def test_labels(given, label, spec):
    (found,) = curves(given)
    assert (found.label, found.spec) == (label, str(gs.GemmSpec.of(spec)))
    assert curves(found.words()) == (found,)


@pytest.mark.parametrize(
    ("given", "label", "text"), [("a<b = chunked(16, {})", "a<b", "chunked(16, {})"), ("c=kahan({})", "c", "kahan({})")]
)
def test_labels_of_templates(given, label, text):
    (found,) = templates(given, "--spec")
    assert (found.label, found.text) == (label, text)


@pytest.mark.parametrize(("given", "said"), [("a<b = fp23", "a<b = fp23"), ("x = fp23", "'fp23'"), ("a=b=", "a")])
def test_where_no_part_is_a_spec_the_error_is_that_of_the_spec(given, said):
    with pytest.raises((gs.SpecError, gs.FormatError)) as caught:
        curves(given)
    assert said in str(caught.value)


def test_a_study_with_odd_labels_has_tables_pictures_and_a_page(tmp_path):
    kind = study.kind("growth")(spec=["a<b = e5m10", "c&d=[e] = bf16", "[/] = bf16/rtz"], K="8", dist="randn")
    found = study.run(kind, tmp_path / "out")
    assert not found.failures and {row["label"] for row in found.rows} == {"a<b", "c&d=[e]", "[/]"}
    table = (tmp_path / "out" / "table.txt").read_text(encoding="utf-8")
    assert all(label in table for label in ("a<b", "c&d=[e]", "[/]"))
    page = study.report([tmp_path / "out"], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "a&lt;b" in page and "a<b" not in page and "c&amp;d=[e]" in page
