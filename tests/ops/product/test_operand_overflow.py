"""Operands beyond the largest value of e4m3 and the fnuz formats are NaN, of which one warning a spec tells."""

from __future__ import annotations

import warnings

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import acc
from gemmsim.ops.product import operand_overflow

FP8 = "e4m3fnuz : hw(cdna3, mfma, e4m3fnuz)"
LARGE = torch.tensor([[1.0, 300.0, -248.0, 247.0, float("inf")], [1.0, 2.0, 3.0, 4.0, 5.0]])
ONES = torch.ones(5, 3)


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(operand_overflow, "_PRODUCTS", {})


def warned(call):
    """Texts of the warnings of ``call``."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(one.filename == __file__ and one.category is gs.FormatsWarning for one in found)
    return [str(one.message) for one in found]


CALLS = {
    "preset": lambda x: gs.qmatmul(x, ONES, acc.cdna3_fp8()),
    "spec": lambda x: gs.qmatmul(x, ONES, "hw(mi300x, mfma, e4m3fnuz)"),
    "promoted": lambda x: gs.qmatmul(x, ONES, acc.promote(acc.cdna3_fp8(), 128)),
    "second operand": lambda x: gs.qmatmul(ONES.mT, x.mT, FP8),
    "batch": lambda x: gs.qmatmul(x.expand(2, 2, 5), ONES, FP8),
    "bfloat16": lambda x: gs.qmatmul(x.bfloat16(), ONES.bfloat16(), FP8),
    "gradient": lambda x: gs.qmatmul(x.clone().requires_grad_(), ONES, FP8),
    "linear": lambda x: gs.functional.qlinear(x, ONES.mT.contiguous(), None, FP8),
    "any register": lambda x: gs.qmatmul(x, ONES, "e4m3fnuz : fp32"),
    "a result in it": lambda x: gs.qmatmul(x, ONES, "e4m3fnuz : bf16 -> e4m3fnuz"),
    "one of two formats": lambda x: gs.qmatmul(x, ONES, "e4m3fnuz * fp16 : fp32"),
    "conv": lambda x: gs.functional.qconv1d(x.reshape(2, 5, 1), torch.ones(3, 5, 1), spec=FP8),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_warning_says_how_many_and_what_to_write_and_comes_once(name):
    (text,) = warned(lambda: CALLS[name](LARGE))
    assert ("4 of " if name == "batch" else "2 of ") in text and "e4m3fnuz (240)" in text
    assert "'e4m3fnuz/sat " in text and gs.GemmSpec.parse(text.rpartition(": '")[2].rstrip("'."))
    assert warned(lambda: CALLS[name](LARGE)) == []


@pytest.mark.parametrize(
    ("x", "spec"),
    [
        (LARGE, "e4m3fnuz/sat : hw(cdna3, mfma, e4m3fnuz)"),
        (LARGE, "e4m3fnuz/rtz : fp32"),
        (LARGE, "fp16 : fp32 -> e4m3fnuz"),
        (LARGE, "hw(cdna3, mfma, bf16)"),
        (LARGE, "hw(hopper, wgmma, e4m3)"),
        (LARGE * 1e30, "e5m2 : fp32"),
        (LARGE * 1e30, "mxfp8_e4m3/b5 : fp32"),
        (-LARGE, "ue4m3 : fp32"),
        (LARGE.clamp(-240, 240), FP8),
        (torch.tensor([[float("nan"), 240, 1, float("-inf"), 0.0]]), FP8),
    ],
)
def test_who_is_not_warned(x, spec):
    assert warned(lambda: gs.qmatmul(x, ONES, spec)) == []


@pytest.mark.parametrize("spec", ["e4m3 : fp32", "e4m3 * e5m2 : chunked(4, bf16)", "hw(hopper, wgmma, e4m3)"])
def test_e4m3_is_told_of_at_its_own_largest_value(spec):
    """464 is a tie with 448 and rounds to it; beyond is NaN. The advice has the bits of saturating operands."""
    x = torch.tensor([[1.0, 464.0, -465.0, 300.0, 2.0]])
    (text,) = warned(lambda: gs.qmatmul(x, ONES, spec))
    assert "1 of 20" in text and "e4m3 (448) and became NaN" in text
    advised = text.rpartition(": '")[2].rstrip("'.")
    assert warned(lambda: gs.qmatmul(x, ONES, advised)) == []
    assert_bitwise_equal(gs.qmatmul(x, ONES, advised), gs.qmatmul(x.clamp(-448, 448), ONES, advised))


def test_each_spec_is_told_of_once_and_blocks_stay_in_the_advice():
    both = "e4m3 * mxfp4/b5 : fp32"
    said = [
        warned(lambda s=spec: gs.qmatmul(2 * LARGE, ONES, s)) for spec in ("e4m3 : fp32", both, "e4m3 : fp32", both)
    ]
    assert [len(one) for one in said] == [1, 1, 0, 0] and "'e4m3/sat * mxfp4/b5 : e8m23'" in said[1][0]


def test_products_are_looked_at_now_and_then():
    """The 3rd is not, the 4th is."""
    small = LARGE.clamp(-1, 1)
    assert [len(warned(lambda x=x: gs.qmatmul(x, ONES, FP8))) for x in (small, small, LARGE, LARGE)] == [0, 0, 0, 1]


def test_bits_and_the_record_stay():
    with pytest.warns(gs.FormatsWarning):
        loud = gs.qmatmul(LARGE, ONES, FP8)
    ran = gs.last_backend()
    assert operand_overflow._PRODUCTS == {gs.GemmSpec.parse(FP8).key: operand_overflow._DONE} and ran.op == "matmul"
    assert_bitwise_equal(loud, gs.qmatmul(LARGE, ONES, FP8))
    assert gs.last_backend() == ran


def test_tensors_without_data_are_not_looked_at():
    with torch._subclasses.FakeTensorMode():
        assert warned(lambda: gs.qmatmul(torch.full((2, 5), 300.0), torch.ones(5, 3), FP8)) == []
    assert warned(lambda: gs.qmatmul(LARGE.to("meta"), ONES.to("meta"), FP8)) == []


def test_compiled_code_warns_when_it_runs():
    compiled = torch.compile(lambda x: gs.qmatmul(x, ONES, FP8), backend="aot_eager", fullgraph=True)
    small = LARGE.clamp(-1, 1)
    assert warned(lambda: compiled(small)) == []
    with pytest.warns(gs.FormatsWarning, match="2 of 25"):
        compiled(LARGE)


def test_every_so_many_products_are_looked_at():
    """Looking takes a pass over the result, and waits for a GPU: 1, 2, 4, ... 1024, then 2048, 3072, 4096."""
    spec = gs.GemmSpec.parse(FP8)
    assert sum(operand_overflow.may_overflow(spec) for _ in range(4096)) == 11 + 3
    assert not any(operand_overflow.may_overflow(gs.GemmSpec.parse("e4m3/sat : fp32")) for _ in range(3))


def test_what_is_kept_of_specs_is_bounded(monkeypatch):
    monkeypatch.setattr(operand_overflow, "_MOST_SPECS", 3)
    specs = [gs.GemmSpec.parse(f"e4m3 : e8m{m}") for m in range(2, 12)]
    assert all(operand_overflow.may_overflow(spec) for spec in specs) and len(operand_overflow._PRODUCTS) <= 3
