"""``fused`` as a value: texts, JSON, operand casts, explanations, and what it refuses."""

from __future__ import annotations

import copy
import json
import pickle
import re

import pytest
from support import ROOT
from support.fused import ROWS, TEXTS

from gemmsim import acc
from gemmsim.arithmetic import Accumulator, Fused, GemmSpec, SpecError
from gemmsim.formats import E4M3, FP32, parse_cast


@pytest.mark.parametrize(
    "text", [*TEXTS, "chunked(128, fused(32, 13, e8m13/rtz, a=e4m3), fp32)", "palette(fused(4, 9), e5m10)"]
)
def test_round_trips(text):
    one = Accumulator.parse(text)
    spec = GemmSpec.of(one)
    assert Accumulator.parse(str(one)) == one
    assert Accumulator.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert GemmSpec.parse(str(spec)) == spec and GemmSpec.from_json(json.dumps(spec.to_json())) == spec
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert (spec.a, spec.b) == one.operand_casts
    assert spec.transposed().transposed() == spec
    assert (spec.transposed().a, spec.transposed().b) == (spec.b, spec.a)
    assert not spec.is_stochastic and one.product_cast is None


def test_the_spellings_of_an_argument():
    assert acc.fused(16, 25) == acc.fused(16, "25", "fp32/rtz", a="e8m23") == Accumulator.parse("fused(16, 25)")
    assert acc.fused(16, None, "fp32") == acc.fused(16, "exact", FP32) == Accumulator.parse("fused(16, none, fp32)")
    assert str(acc.fused(16, None, "fp32")) == "fused(16, exact, e8m23)"
    assert acc.fused(32, 13, "e8m13/rtz", a=E4M3, b="e4m3").b is None
    assert acc.fused(32, 13, a="e4m3", b="e5m2").transposed() == acc.fused(32, 13, a="e5m2", b="e4m3")
    assert acc.fused(8, 24, a="tf32").operand_casts == (parse_cast("tf32/rtz"), parse_cast("tf32/rtz"))


def test_operands_of_the_spec_stand_beside_it():
    spec = GemmSpec.of("e4m3 * bf16 : fused(32, 25)")
    assert (str(spec.a), str(spec.b)) == ("e4m3", "e8m7")
    assert GemmSpec.of("fused(32, 25)").cast_a == parse_cast("fp32")
    with pytest.raises(SpecError, match="which takes e4m3"):
        GemmSpec.of("e5m2 : fused(32, 25, a=e4m3)")
    with pytest.raises(SpecError, match=r"scaled\(fused"):
        GemmSpec.of("mxfp8_e4m3 : fused(32, 25)")


def test_whole_text_of_a_common_one():
    assert GemmSpec.of("bf16 : fused(16, 25)").explain() == (
        "spec        e8m7 : fused(16, 25)\n"
        "operands    a and b rounded to e8m7 (max 3.38953139e+38), to nearest, ties to even\n"
        "product     exact\n"
        "each step   16 products and the accumulator: truncated F = 25 bits below the largest exponent, exact sum, one rounding\n"
        "rounding    e8m23 (max 3.40282347e+38), toward zero; larger results become infinity\n"
        "order       steps for k ascending from +0; K is padded with zeros to a multiple of 16\n"
        "overflow    e8m7: to infinity\n"
        "            e8m23: to infinity\n"
        "output      the accumulator's value, then to nearest even in the output tensor's dtype\n"
        "arithmetic  exact: every rounding happens once, from the exact value"
    )
    assert (
        "nothing truncated, exact sum" in acc.fused(1, None).explain()
        and "1 product and" in acc.fused(1, None).explain()
    )
    assert "infinity" not in acc.fused(1, None, "fp32/rtz/sat").explain_lines()[2][1]


@pytest.mark.parametrize(
    "text, words",
    [
        ("fused(0, 25)", "n='0'; allowed: an integer from 1 to 64"),
        ("fused(65, 25)", "n='65'; allowed"),
        ("fused(16, 0)", "kept='0'; allowed: an integer from 1 to 60, or exact"),
        ("fused(16, 61)", "kept='61'; allowed"),
        ("fused(16, all)", "kept='all'; allowed"),
        ("fused(16)", "missing"),
        ("fused(16, 25, fp32/sr8)", "uses random bits; allowed: a deterministic rounding"),
        ("fused(16, 25, fp64)", "out=e11m52; allowed: a signed float format whose values binary32 holds"),
        ("fused(16, 25, fixed(8,4))", r"out=fixed\(8,4\); allowed: a signed float"),
        ("fused(16, 25, e8m0)", "out=.*allowed: a signed float"),
        ("fused(16, 25, a=int8)", "a=.*allowed: a signed float"),
        ("fused(16, 25, b=fp64)", "b=e11m52; allowed: a signed float"),
        ("fused(16, 25, a=e4n3)", "a: .*e4n3"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(SpecError, match=words):
        Accumulator.parse(text)


def test_python_arguments_are_checked_likewise():
    for wrong in (True, 2.5, "x", [1]):
        with pytest.raises(SpecError, match="kept="):
            acc.fused(16, wrong)
    with pytest.raises(SpecError, match="no product rounding"):
        GemmSpec(product="bf16", accumulator=acc.fused(16, 25))
    with pytest.raises(SpecError, match="arithmetic='fp32'"):
        GemmSpec.of(":fused(16, 25), arithmetic=fp32")


def test_the_page_names_instances_of_rows():
    page = (ROOT / "docs" / "reference" / "accumulators.md").read_text()
    pairs = re.findall(r"^\| `(hw\(.*?\))`.*? \| `(fused\(.*?\))`", page, re.MULTILINE)
    known = dict(ROWS)
    assert len(pairs) == 6
    for row, one in pairs:
        assert known[Accumulator.parse(row)] == Accumulator.parse(one)
    assert all(isinstance(one, Fused) for one in known.values())
