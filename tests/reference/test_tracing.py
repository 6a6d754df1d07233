"""Traces: the last value is the element of qmatmul, bit for bit, and each step's numbers are what it says."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal
from support.accumulators import CASES, operands

import gemmsim as gs
from gemmsim.arithmetic import constructors
from gemmsim.arithmetic.custom import Custom, Swapped
from gemmsim.arithmetic.lookup import table as table_of
from gemmsim.reference import TraceStep

MORE = [
    *("e4m3 * e5m2 : e5m10 -> bf16", "bf16 : fp32 -> e4m3/sat", "e4m3/sr8 * bf16/sr8 : e5m10/sr8 -> e5m2/sr8"),
    *("mxfp8_e4m3 : fp32", "mxfp4 * mxfp8_e5m2 : scaled(e5m10)", "nvfp4 : scaled(chunked(4, bf16), fp32)"),
    *(
        "nvfp4/tensor : scaled(fp32)",
        "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
        "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
    ),
    *(
        "mxfp4 : hw(blackwell, mxf4, e2m1)",
        "bfp(8,16) : e5m10",
        "bfp(8,tensor)/sr8 : fp32",
        ":hw(ampere, mma, f64, out=f64)",
    ),
    *("e4m3 : hw(hopper, mma, e4m3)",),  # whose words have braces
    *(":hw(cdna1, mfma, bf16)", ":hw(cdna2, mfma, f16)", ":promote(hw(hopper, wgmma, e4m3), 64)", "int8 : int(20)"),
    *("fixed(8,4) : fixed(16, 8)", ":sequential(e5m10, seed=3)", ":e5m10/sr8, arithmetic=fp32"),
]


def check(a, b, spec, at, **more):
    want = gs.qmatmul(a, b, spec, **more)
    found = gs.trace(a, b, spec, at=at, **more)
    assert found.at == tuple(at)
    assert_bitwise_equal(torch.tensor(found.value, dtype=want.dtype), want[tuple(at)])
    for step in found.steps:
        consistent(step)
    return found


def consistent(step: TraceStep):
    """What is exact is not changed, and what is rounded has a rule that does it."""
    if step.cast is None and step.kind in ("product", "combine"):
        assert not step.is_rounded, step
    if step.kind == "product" and " (table) " not in step.text:
        x, _, y = step.text.partition(" * ")
        product = float(x) * float(y)
        if math.isfinite(product) and product:
            assert step.exact == Fraction(float(x)) * Fraction(float(y))
    if step.kind == "add" and "2^" not in step.text and step.text.count(" + ") == 1 and ":" not in step.text:
        x, y = (float(word.partition(",")[0]) for word in step.text.split(" + "))
        if isinstance(step.exact, Fraction) and abs(x) < 1e30 and abs(y) < 1e30:
            assert isinstance(step.value, Fraction) or step.exact == Fraction(x) + Fraction(y), step


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_last_value_is_that_of_the_product(case):
    for wide in (False, True):
        a, b = operands(case, 3, 37, 4, 5, wide)
        for at in ((0, 0), (2, 3)):
            check(a, b, case.text, at, seed=9)


@pytest.mark.parametrize("spec", MORE)
def test_operand_formats_outputs_and_instructions(spec):
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(3, 50, generator=g), torch.randn(50, 4, generator=g)
    if "int" in spec:
        a, b = (a * 30).round(), (b * 30).round()
    check(a, b, spec, (1, 2), seed=4)


def test_every_accumulator_is_traced_here():
    traced = " ".join([*(case.text for case in CASES), *MORE]) + " palette sequential lookup"
    ours = [name for name, kind in constructors().items() if not issubclass(kind, (Custom, Swapped))]
    assert [name for name in ours if name not in traced] == []


def test_products_from_a_table():
    """Its own numbers, finer than any product of the operands."""
    rows = [[round(x * y * 0.9) / 64 for y in range(16)] for x in range(16)]
    table = table_of(rows, "uint4")
    a, b = torch.randint(0, 16, (3, 20)).float(), torch.randint(0, 16, (20, 4)).float()
    for inner in ("fp32", "chunked(4, e5m10)", "exact(bf16)", "kahan(bf16)", "fixed(20, 3)"):
        found = check(a, b, gs.GemmSpec(accumulator=f"lookup({table}, {inner})"), (1, 2))
        assert next(step for step in found.steps if step.kind == "product").k == 0


def test_specials_and_empty_sums():
    for x in (math.nan, math.inf, -math.inf, -0.0, 1e38, 1e-44):
        for spec in (
            ":fp32",
            ":e5m10",
            ":kahan(bf16)",
            ":exact(fp32)",
            ":hw(hopper, wgmma, bf16)",
            "e4m3 : fixed(12, 4, rounding=rne)",
        ):
            check(torch.tensor([[x, 1.0, x]]), torch.tensor([[1.0], [x], [-1.0]]), spec, (0, 0))
    empty = gs.trace(torch.ones(2, 0), torch.ones(0, 3), "e4m3 : e5m10", at=(1, 2))
    assert empty.value == 0 and len(empty.steps) == 1 and empty.exact == 0


def test_shapes_batches_addends_and_palettes():
    a, b = torch.randn(2, 1, 3, 8), torch.randn(4, 8, 5)
    for spec in (":e5m10/sr8", "e4m3/sr8 : fp32"):
        check(a, b, spec, (1, 3, 2, 4), seed=5)
    check(a[0, 0], b[0, :, 0], ":bf16", (2,))
    check(a[0, 0, 0], b[0], ":bf16", (4,))
    check(a[0, 0, 0], b[0, :, 0], ":bf16", ())
    check(a.half(), b.half(), ":fp32", (0, 0, 0, 0))
    check(a.bfloat16(), b.half(), ":fp32", (0, 0, 0, 0))
    check(a[0, 0].double(), b[0], ":fp64", (0, 0))
    c = torch.randn(5)
    check(a[0, 0], b[0], ":sequential(e5m10, init=c_first)", (1, 2), c=c)
    check(a[0, 0], b[0], ":sequential(e5m10, init=c_last)", (1, 2), c=c)
    select = torch.randint(0, 2, (3, 5))
    check(a[0, 0], b[0], ":palette(bf16, e5m10)", (1, 2), select=select)
    assert gs.trace([1.0, 2.0], [3.0, 4.0], "fp32").value == 11.0
    assert gs.trace(a, b, ":bf16", at=(-1, -1, -1, -1)).at == (1, 3, 2, 4)


def test_a_trace_reads_well_and_keeps_its_numbers():
    found = gs.trace(torch.tensor([1.0, 0.3]), torch.tensor([0.1, 3.0]), "e4m3 : chunked(2, bf16)")
    text = str(found)
    assert "a = 1.0, b = 0.1015625, from 1.0 and 0.10000000149011612" in text
    assert "0.1015625 + 0.9375 = 1.0390625  (exact in e8m7)" in text and "k = 0 .. 1:" in text
    assert found.exact == Fraction(1.0390625) and found.roundings == 0
    assert json.loads(json.dumps(found.to_dict()))["steps"][-1]["value"] == found.value
    assert "steps" in repr(found) and hash(found) == hash(found)
    long = str(gs.trace(torch.ones(500), torch.ones(500), ":bf16"))
    assert "... " in long and len(long.splitlines()) < 70


def test_wrong_arguments_are_refused():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    with pytest.raises(gs.SpecError, match="trace without a spec"):
        gs.trace(a, b)
    with pytest.raises(IndexError, match=r"at=\(2, 0\)"):
        gs.trace(a, b, ":fp32", at=(2, 0))
    with pytest.raises(ValueError, match="a is None"):
        gs.trace(None, b, ":fp32")
    with pytest.raises(ValueError, match="Transpose"):
        gs.trace(a, a, ":fp32")
    with pytest.raises(ValueError, match="a number"):
        gs.trace(1.0, b, ":fp32")
    with pytest.raises(ValueError, match="broadcast"):
        gs.trace(torch.ones(2, 2, 3), torch.ones(3, 3, 4), ":fp32")
