"""int8, uint8 and float8 tensors as operands: the bits of the same numbers in float32, and refusals of other formats."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.product.int8_fp8_operands import NARROW

#: A spec that takes each dtype, and one more operand format.
SPECS = {
    torch.int8: ("int8 : int(20)", ":int(32)", "int8 : e5m10", "int8 * e4m3 : fp32"),
    torch.uint8: ("uint8 * int8 : int(20, saturate)", "uint8 : fixed(24, 8)", ":int(16)"),
    torch.float8_e4m3fn: ("e4m3 : e5m10", ":fp32", "e4m3 * bf16 : kahan(bf16)", "hw(hopper, wgmma, e4m3)"),
    torch.float8_e5m2: ("e5m2 : fp32", "e5m2/sr8 * : chunked(8, e5m10)"),
    torch.float8_e4m3fnuz: ("e4m3fnuz : fp32", "hw(cdna3, mfma, e4m3fnuz)"),
    torch.float8_e5m2fnuz: ("e5m2fnuz : bf16 -> e4m3",),
    torch.float8_e8m0fnu: ("e8m0 * : fp32",),
}


def every_code(dtype, *shape):
    """A tensor with every finite code, in any order."""
    codes = torch.arange(256).to(torch.uint8).view(dtype)
    values = codes.float()
    codes = codes[values.isfinite()]
    g = torch.Generator().manual_seed(1)
    return codes.view(torch.uint8)[torch.randint(0, len(codes), shape, generator=g)].view(dtype)


CASES = [(dtype, spec) for dtype, specs in SPECS.items() for spec in specs]


@pytest.mark.parametrize(("dtype", "spec"), CASES, ids=str)
def test_products_are_those_of_the_same_numbers_in_float32(dtype, spec):
    a = every_code(dtype, 5, 40)
    b = every_code(torch.int8, 40, 6) if "int(" in spec else torch.randn(40, 6)
    wide = b.float()
    want = gs.qmatmul(a.float(), wide, spec, seed=3)
    for got in (gs.qmatmul(a, b, spec, seed=3), gs.qmm(a, b, spec, seed=3)):
        assert got.dtype is torch.float32
        assert_bitwise_equal(got, want)
    assert_bitwise_equal(gs.qlinear(a, wide.mT.contiguous(), None, spec, seed=3), want)
    assert_bitwise_equal(
        gs.qmatmul(a[None, :, ::2], wide[::2], spec, seed=3)[0], gs.qmatmul(a[:, ::2].float(), wide[::2], spec, seed=3)
    )
    at = (2, 3)
    assert_bitwise_equal(torch.tensor(gs.trace(a, b, spec, at=at, seed=3).value), want[at])


def test_both_operands_and_the_right_one():
    a, b = every_code(torch.float8_e4m3fn, 4, 32), every_code(torch.float8_e5m2, 32, 3)
    assert_bitwise_equal(gs.qmatmul(a, b, "e4m3 * e5m2 : fp32"), gs.qmatmul(a.float(), b.float(), "e4m3 * e5m2 : fp32"))
    x, w = every_code(torch.int8, 4, 32), every_code(torch.int8, 3, 32)
    want = gs.qlinear(x.float(), w.float(), torch.ones(3), "int8 : int(18)")
    assert_bitwise_equal(gs.qlinear(x, w, torch.ones(3), "int8 : int(18)"), want)
    counts = gs.count_overflows(x, w.mT, "int8 : int(12)")
    assert torch.equal(counts, gs.count_overflows(x.float(), w.float().mT, "int8 : int(12)")) and bool(counts.any())
    assert gs.compare("int8 : int(12)", "int8 : int(32)", x, w.mT).elements == 12


def test_dtypes_of_results():
    a, spec = every_code(torch.float8_e4m3fn, 4, 32), "e4m3 : fp32"
    for dtype, want in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert gs.qmatmul(a, torch.ones(32, 2, dtype=dtype), spec).dtype is want
    assert gs.qmatmul(a, a.mT, spec, out_dtype=torch.float16).dtype is torch.float16


def test_the_other_operand_has_its_gradient():
    a, w = every_code(torch.float8_e4m3fn, 4, 32), torch.randn(3, 32, requires_grad=True)
    gs.qlinear(a, w, None, "e4m3 : fp32").sum().backward()
    got, w.grad = w.grad, None
    gs.qlinear(a.float(), w, None, "e4m3 : fp32").sum().backward()
    assert_bitwise_equal(got, w.grad)
    with pytest.raises(gs.GradError, match="gradient of a, a torch.float8_e4m3fn tensor"):
        gs.qmatmul(a.requires_grad_(), w.mT, "e4m3 : fp32")


def test_compiled_and_mapped():
    a, b = every_code(torch.int8, 4, 32), every_code(torch.int8, 32, 3)
    want = gs.qmatmul(a, b, "int8 : int(20)")
    compiled = torch.compile(lambda x, y: gs.qmatmul(x, y, "int8 : int(20)"), fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(a, b), want)
    assert_bitwise_equal(torch.vmap(lambda x: gs.qmatmul(x[None], b, "int8 : int(20)")[0])(a), want)


@pytest.mark.parametrize(
    ("dtype", "spec", "words"),
    [
        (torch.int8, "e4m3 : fp32", "in e4m3"),
        (torch.int8, ":fp32", "as given, without a format"),
        (torch.int8, "uint8 : int(20)", r"in ufixed\(8,0\)"),
        (torch.uint8, "e4m3 : fp32", "in e4m3"),
        (torch.float8_e4m3fn, "e5m2 : fp32", "in e5m2"),
        (torch.float8_e4m3fn, "e4m3fnuz : fp32", "in e4m3fnuz"),
        (torch.float8_e4m3fn, "mxfp8_e4m3 : fp32", "in mxfp8_e4m3"),
        (torch.int8, None, "PyTorch's own"),
        (torch.int8, gs.QAffineFormats(fprop=":fp32", input_quant="e4m3"), "quantiser"),
    ],
    ids=str,
)
def test_another_format_is_refused(dtype, spec, words):
    a, b = every_code(dtype, 4, 32), torch.ones(32, 3)
    for call in (lambda: gs.qmatmul(a, b, spec), lambda: gs.qmm(a, b, spec), lambda: gs.qlinear(a, b.mT, None, spec)):
        with pytest.raises(gs.DTypeError, match=f"(?s)has dtype {dtype}.*{words}.*Convert it first"):
            call()


def test_quantisers_to_the_same_format_take_it():
    a, w = every_code(torch.float8_e4m3fn, 4, 32), torch.randn(3, 32)
    formats = gs.QAffineFormats(fprop=":fp32", input_quant="e4m3")
    assert_bitwise_equal(gs.qlinear(a, w, None, formats), gs.qlinear(a.float(), w, None, formats))


def test_other_integers_and_the_dtypes_listed():
    with pytest.raises(gs.DTypeError, match="torch.int16"):
        gs.qmatmul(torch.ones(2, 3, dtype=torch.int16), torch.ones(3, 2), ":int(20)")
    assert set(NARROW) == set(SPECS)
