"""Operands beyond e4m3fnuz's largest value are NaN in products of CDNA3's FP8, of which one warning a process tells."""

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
    monkeypatch.setattr(operand_overflow, "_told", [])


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
    "conv": lambda x: gs.functional.qconv1d(x.reshape(2, 5, 1), torch.ones(3, 5, 1), spec=FP8),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_warning_says_how_many_and_what_to_write_and_comes_once(name):
    (text,) = warned(lambda: CALLS[name](LARGE))
    assert ("4 of " if name == "batch" else "2 of ") in text and "e4m3fnuz (240)" in text
    assert "e4m3fnuz/sat : " in text and gs.GemmSpec.parse(text.rpartition(": '")[2].rstrip("'."))
    assert warned(lambda: CALLS[name](LARGE)) == []


@pytest.mark.parametrize(
    ("x", "spec"),
    [
        (LARGE, "e4m3fnuz/sat : hw(cdna3, mfma, e4m3fnuz)"),
        (LARGE, "e4m3fnuz : fp32"),
        (LARGE, "hw(cdna3, mfma, bf16)"),
        (LARGE * 1e30, "hw(hopper, wgmma, e4m3)"),
        (LARGE.clamp(-240, 240), FP8),
        (torch.tensor([[float("nan"), 240, 1, float("-inf"), 0.0]]), FP8),
    ],
)
def test_who_is_not_warned(x, spec):
    assert warned(lambda: gs.qmatmul(x, ONES, spec)) == []


def test_bits_and_the_record_stay():
    with pytest.warns(gs.FormatsWarning):
        loud = gs.qmatmul(LARGE, ONES, FP8)
    ran = gs.last_backend()
    assert operand_overflow._told and ran.op == "matmul"
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


def test_products_on_a_gpu_are_looked_at_now_and_then(monkeypatch):
    """Looking waits for the GPU; an object stands for the result there."""

    class Elsewhere:
        is_meta, device = False, torch.device("xpu")
        asked = 0

        def isnan(self):
            Elsewhere.asked += 1
            return torch.zeros(1, dtype=torch.bool)

    monkeypatch.setattr(operand_overflow, "_products", 0)
    spec = gs.GemmSpec.parse(FP8)
    for _ in range(4096):
        operand_overflow.look(LARGE, ONES, spec, Elsewhere())
    assert Elsewhere.asked == 11 + 3, "1, 2, 4, ... 1024, then 2048, 3072, 4096"
