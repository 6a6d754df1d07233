"""gs.compare: the counts are those of the two products, the distances those of the unit, the first difference traced."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs


def test_equal_specs_have_no_difference():
    a, b = torch.randn(5, 20), torch.randn(20, 6)
    found = gs.compare("e4m3 : fp32", "e4m3 * e4m3 : sequential(e8m23)", a, b)
    assert found.share == 1 and found.first is None and found.largest == 0 and found.ulps == ((0.0, 30),)
    assert gs.compare(":e5m2/sr8", ":e5m2/sr8", a, b, seed=3).share == 1
    assert gs.compare(":fp32", ":bf16", torch.ones(0, 3), torch.ones(3, 2)).share == 1


@pytest.mark.parametrize(
    "shapes", [((7,), (7,)), ((7,), (7, 3)), ((4, 7), (7,)), ((4, 7), (7, 3)), ((2, 1, 4, 7), (3, 7, 5))]
)
def test_counts_distances_and_first_difference_are_those_of_the_products(shapes):
    a, b = (torch.randn(*shape) for shape in shapes)
    x, y = gs.qmatmul(a, b, ":e5m10"), gs.qmatmul(a, b, ":bf16")
    found = gs.compare(":e5m10", ":bf16", a, b)
    assert found.shape == x.shape and found.elements == x.numel() and found.unit == "e8m7"
    assert found.equal == int((x == y).sum()) and found.share == found.equal / found.elements
    exponent = torch.floor(torch.log2(torch.maximum(x.abs(), y.abs()).double()))
    ulps = (x.double() - y.double()).abs() / torch.exp2(exponent - 7)
    assert found.largest == float(ulps.max()) and sum(count for _, count in found.ulps) == x.numel()
    assert sum(count for end, count in found.ulps if end <= 1) == int((ulps <= 1).sum())
    if found.first is not None:
        at = found.first.at
        assert at == (tuple((x != y).nonzero()[0].tolist()) if x.dim() else ())
        for value, trace, product in ((found.first.a, found.first.trace_a, x), (found.first.b, found.first.trace_b, y)):
            assert value == trace.value == float(product[at])
        step = found.first.step
        steps = found.first.trace_a.steps, found.first.trace_b.steps
        assert steps[0][step].value != steps[1][step].value
        assert all(p.value == q.value for p, q in zip(steps[0][:step], steps[1][:step], strict=True))


def test_specials_and_zeros_are_told_apart_by_bits():
    a, b = torch.tensor([[1e30], [math.nan], [0.0], [1.0]]), torch.tensor([[-1.0]])
    found = gs.compare(":fp32", "e4m3/sat * : fp32", a, b)
    assert found.elements == 4 and found.equal == 3 and found.first.at == (0, 0)
    found = gs.compare(":fp32", ":e5m10", a, b)
    assert found.largest == 0 and found.ulps == ((0.0, 3),) and found.unit == "e5m10"
    assert found.special == (("NaN in both", 1), ("infinite in the second", 1))
    minus = gs.compare(":fp32", "ufixed(8,4) * : fp32", torch.tensor([[-0.0]]), torch.tensor([[1.0]]))
    assert minus.equal in (0, 1) and minus.largest == 0


@pytest.mark.filterwarnings("ignore::gemmsim.FormatsWarning")
@pytest.mark.parametrize(
    ("values", "count", "what"),
    [
        ([400.0, 1.0, 300.0], 2, "NaN in the second"),
        ([math.nan, 1.0, 2.0], 1, "NaN in both"),
    ],
)
def test_what_is_no_number_in_one_result_has_no_distance(values, count, what):
    a, b = torch.tensor(values).reshape(-1, 1), torch.ones(1, 1)
    found = gs.compare("e4m3 : fp32", "e4m3fnuz : hw(cdna3, mfma, e4m3fnuz)", a, b)
    assert found.special == ((what, count),) and found.largest == 0
    assert sum(n for _, n in found.ulps) == 3 - (count if "both" not in what else 0)
    for text in (str(found), repr(found)):
        assert f"{count} of 3 are {what}" in text and "inf ulp" not in text
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["special"] == {what: count}


def test_infinities_have_no_distance_and_numbers_beside_them_do():
    a, b = torch.tensor([[1e30], [-1e30], [1.0009765625], [math.inf]]), torch.ones(1, 1)
    found = gs.compare(":fp32", ":e5m2 -> bf16", a, b, unit="e5m10")
    assert found.special == (("infinite in the second", 2), ("infinite in both", 1)) and found.largest == 1
    swapped = gs.compare(":e5m2", ":fp32", a, b)
    assert swapped.special == (("infinite in the first", 2), ("infinite in both", 1)) and "inf ulp" not in str(swapped)
    wide = torch.tensor([[1.7e308]], dtype=torch.float64)
    assert math.isfinite(gs.compare(":fp64", ":fp64/rtz", wide, torch.tensor([[0.99]], dtype=torch.float64)).largest)


def test_units_seeds_and_untraced_differences():
    a, b = torch.randn(8, 64), torch.randn(64, 8)
    coarse = gs.compare(":fp32", "hw(h100, wgmma, e4m3)", a, b, unit="e8m13", trace=False)
    fine = gs.compare(":fp32", "hw(h100, wgmma, e4m3)", a, b, trace=False)
    assert coarse.unit == "e8m13" and fine.unit == "e8m23" and fine.largest == 1024 * coarse.largest
    assert coarse.first.trace_a is None and coarse.first.step is None
    assert gs.compare("int8 : int(8)", "int8 : int(32)", a.mul(9).round(), b.mul(9).round()).unit == "fixed(8,0)"
    one = gs.compare(":bf16/sr8", ":bf16", a, b, seed=1)
    assert one == gs.compare(":bf16/sr8", ":bf16", a, b, seed=1) != gs.compare(":bf16/sr8", ":bf16", a, b, seed=2)
    assert_bitwise_equal(torch.tensor(one.first.a), gs.qmatmul(a, b, ":bf16/sr8", seed=1)[one.first.at])


def test_a_comparison_is_a_value_that_reads_well():
    a, b = torch.randn(8, 64), torch.randn(64, 8)
    found = gs.compare(":e5m10", ":bf16", a, b)
    assert hash(found) == hash(found) and "% of 64 equal" in repr(found)
    assert "the sums first differ at step" in str(found) and "in ulp of e8m7" in str(found)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["equal"] == found.equal and data["first"]["traces"]["a"]["value"] == found.first.a
    with pytest.raises(gs.SpecError):
        gs.compare(None, ":bf16", a, b)
    with pytest.raises(gs.ShapeError):
        gs.compare(":fp32", ":bf16", a, a)
    with pytest.raises(gs.FormatError):
        gs.compare(":fp32", ":bf16", a, b, unit="e4m3q")


@pytest.mark.filterwarnings("ignore::gemmsim.FormatsWarning")
def test_nan_of_operands_that_overflow_says_of_which_format_and_what_to_write():
    a, b = torch.tensor([[448.0, 1.0], [1.0, 241.0], [1.0, 2.0]]), torch.ones(2, 1)
    found = gs.compare("e4m3 : fp32", gs.acc.cdna3_fp8(), a, b)
    assert found.special == (("NaN in the second", 1),)  # 241 is rounded to 240
    overflow, advice = found.reasons
    assert overflow == "second: 1 of 6 elements of a (up to 448) overflow e4m3fnuz, whose largest is 240, to NaN"
    spec = advice.partition("saturate: ")[2].strip("'")
    assert advice.startswith("second: scale the operands, or") and gs.qmatmul(a, b, spec).isfinite().all()
    assert all(reason in str(found) and reason in found._repr_html_() for reason in (overflow,))
    assert json.loads(json.dumps(found.to_dict()))["reasons"] == [overflow, advice]
    swapped = gs.compare(gs.acc.cdna3_fp8(), "e4m3 : fp32", a, b)
    assert [reason.partition(":")[0] for reason in swapped.reasons] == ["first", "first"]


@pytest.mark.parametrize(
    ("spec", "a", "b", "want"),
    [
        ("e4m3 : fp32", [[math.nan, 1.0]], [[1.0], [math.inf]], ["1 elements of a are NaN", "1 elements of b are NaN"]),
        ("e5m2 : fp32", [[7e4, 1.0]], [[0.0], [1.0]], ["second: 1 of 2 elements of a .* to infinity", "scale the oper"]),
        ("binary8(3, saturate_infty) : fp32", [[7e9, 1.0]], [[0.0], [1.0]], ["second: 1 of 2 elements of a", "scale the operands$"]),
        (":chunked(1, fp16)", [[300.0, 300.0]], [[300.0], [-300.0]], [r"leaves the finite numbers at k = 0: add .* -> inf"]),
        (":fp16 -> e4m3", [[300.0, 0.0]], [[2.0], [1.0]], [r"leaves the finite numbers: output +600.0 = .* -> nan"]),
        (":fp16", [[1.0, 2.0]], [[1.0], [2.0]], []),
        (":fp16", [[300.0, 1.0]], [[300.0], [1.0]], []),  # infinite, and counted as such, is no NaN
    ],
)  # fmt: skip
def test_each_cause_of_nan_is_told(spec, a, b, want):
    found = gs.compare(":fp32", spec, torch.tensor(a), torch.tensor(b))
    assert len(found.reasons) == len(want)
    for reason, pattern in zip(found.reasons, want, strict=True):
        assert re.search(pattern, reason), reason


def test_errors_about_operands_are_those_of_compare():
    x = torch.ones(2, 3)
    with pytest.raises(gs.ShapeError, match="^compare: "):
        gs.compare(":fp32", ":bf16", x, x)
    with pytest.raises(gs.DTypeError, match="^compare: a has dtype torch.int64"):
        gs.compare(":fp32", ":bf16", x.long(), x.mT)
    with pytest.raises(gs.SeedError, match="^compare: seed=-1"):
        gs.compare(":fp32", ":bf16/sr", x, x.mT, seed=-1)
    with pytest.raises(gs.SpecError, match=r"spec_a is a Tensor; allowed: a spec.\n  Give the specs first"):
        gs.compare(x, x.mT, ":fp32", ":bf16")
