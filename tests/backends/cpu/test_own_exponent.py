"""Registers in block floating point: casts are those of a tensor of one element, products those of the reference."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas, operand

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu
from gemmsim.formats import parse_cast, parse_scalar

F32, F64 = torch.float32, torch.float64
FORMATS = [
    *(f"bfp({bits},1{options})" for bits in (1, 2, 4, 8) for options in ("", ",asymmetric", ",inf")),
    "bfp(3,1,asymmetric,inf)", "bfp(12,1,asymmetric)", "bfp(24,1)", "bfp(25,1,asymmetric)", "bfp(26,1)", "bfp(32,1,inf)",
]  # fmt: skip
MODES = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb5", "src5", "sr20", "sr32"]


def float32s(bits: int) -> torch.Tensor:
    """Codes, midpoints and quarters of steps and the neighbours of all these, at many exponents; subnormals; specials."""
    significands = {1.0, 1.25, 1.5, 1.75, 1.9, 2.0}
    step = 2.0 ** (2 - bits)
    codes = sorted({1 << max(bits - 2, 0), (1 << (bits - 1)) - 1, (1 << (bits - 1)) - 2, 3 << max(bits - 3, 0)})
    significands |= {(code + part) * step for code in codes for part in (0, 0.25, 0.5, 0.75)}
    found = [
        s * 2.0**e for s in significands for e in (-149, -148, -147, -140, -127, -126, -125, -1, 0, 1, 60, 126, 127)
    ]
    x = torch.tensor([v for v in found if v < 2.0**128] + [0.0, math.inf, math.nan], dtype=F64).to(F32)
    x = torch.cat([x, torch.arange(1, 70, dtype=torch.int32).view(F32)])
    every = torch.tensor(0.0), torch.tensor(math.inf)
    x = torch.cat([x, torch.nextafter(x, every[0]), torch.nextafter(x, every[1])])
    patterns = torch.randint(-(2**31), 2**31, (4000,), generator=torch.Generator().manual_seed(bits)).to(torch.int32)
    return torch.cat([x, -x, patterns.view(F32)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_register_is_a_tensor_of_one_element(name):
    x = float32s(parse_scalar(name).bits)
    for mode in MODES:
        cast = parse_cast(f"{name}/{mode}")
        want = gs.quantize(x, f"{name}/{mode}", seed=7)  # blocks of one, each on its own
        for isa in isas():
            cpu.set_isa(isa)
            got = torch.empty_like(x)
            cpu.quantize(x, cast, got, 7)
            assert_bitwise_equal(got, want, context=f"{cast} {isa}")
            cpu.quantize(got.clone(), parse_cast(name), got, 1)
            if cast.format.bits == 1:
                continue  # -2**e is half a step of its own exponent
            finite = want.isfinite() | want.isnan() | (cast.format.keep_infinity and want.isinf())
            assert_bitwise_equal(got[finite], want[finite], context=f"{cast} again")
    cpu.set_isa(isas()[0])


@pytest.mark.parametrize("name", FORMATS)
def test_casts_are_the_references(name):
    fine = torch.tensor(
        [2.0**-149, 2.0**-150, 2.0**-151, 1.5 * 2.0**-150, 2.0**-300, 5e-324, 2.0**128, 1.7e308], dtype=F64
    )
    fine = torch.cat([fine, torch.nextafter(fine, torch.tensor(0.0, dtype=F64)), fine * 0.75])
    near = float32s(parse_scalar(name).bits)[::5].double()
    x = torch.cat([fine, -fine, near, torch.nextafter(near, torch.tensor(math.inf, dtype=F64)), near * (1 + 2.0**-30)])
    for mode in MODES:
        cast = parse_cast(f"{name}/{mode}")
        want = torch.tensor(reference.quantize(x.tolist(), cast, seed=5), dtype=F64)
        for isa in isas():
            cpu.set_isa(isa)
            got = torch.empty_like(x)
            cpu.quantize(x, cast, got, 5)
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{cast} {isa}")
    cpu.set_isa(isas()[0])
    assert all(cast.format.is_representable(v) for v in want.tolist())


def test_there_is_no_carry():
    x = torch.tensor([[1.9, -1.9, 1.875, 0.99, 3.4e38, -3.4e38, -0.0, -1e-46]], dtype=F64)
    one = torch.ones(1, 1, dtype=F64)
    assert gs.qmatmul(x.T, one, ":bfp(4,1)").T.tolist()[0][:4] == [1.75, -1.75, 1.75, 0.875]
    assert gs.qmatmul(x.T, one, ":bfp(4,1,asymmetric)").T.tolist()[0][:4] == [1.75, -2.0, 1.75, 0.875]
    ends = gs.qmatmul(x.T, one, ":bfp(4,1,asymmetric)").T[0, 4:]
    assert ends[:2].tolist() == [1.75 * 2.0**127, -(2.0**128)] and not ends[2:].signbit().any()
    assert gs.qmatmul(x.T, one, ":bfp(1,1)").abs().max() == 0
    infinite = torch.tensor([[math.inf], [-math.inf], [math.nan]])
    assert gs.qmatmul(infinite, torch.ones(1, 1), ":bfp(4,1,inf)").T.tolist()[0][:2] == [math.inf, -math.inf]
    assert gs.qmatmul(infinite, torch.ones(1, 1), ":bfp(4,1)").T.tolist()[0][:2] == [1.75 * 2.0**127, -1.75 * 2.0**127]
    assert gs.qmatmul(infinite, torch.ones(1, 1), ":bfp(4,1)")[2].isnan().all()


SPECS = [
    ":bfp(8,1)",
    ":bfp(4,1,asymmetric)/rnd",
    ":bfp(8,1)/sr8",
    ":bfp(2,1)",
    ":bfp(1,1,asymmetric)/rd",
    ":bfp(30,1)",
    ":mul=bfp(8,1), add=bfp(12,1,inf)",
    ":mul=bfp(6,1)/sr8, add=e5m10",
    ":mul=e4m3, add=bfp(5,1,asymmetric)/ro",
    "bfp(8,16) : bfp(10,1) -> bfp(6,1)/sr4",
    "e4m3 : chunked(8, bfp(8,1), bfp(12,1))",
    ":chunked(5, e5m10, bfp(9,1)/sr8)",
    ":chunked(4, exact(bfp(8,1)), bfp(8,1,inf))",
    ":pairwise(bfp(8,1), 3)",
    ":interleaved(4, bfp(6,1), combine=pairwise)",
    ":splitk(3, bfp(8,1), fp32)",
    ":shuffled(bfp(8,1), 3)",
    ":kahan(bfp(8,1))",
    ":kahan(bfp(6,1)/sr8, mul=bfp(5,1))",
    ":neumaier(bfp(8,1,asymmetric))",
    ":two_sum(bfp(8,1))",
    ":fast_two_sum(bfp(8,1)/rtz)",
    ":exact(bfp(8,1))",
    ":binned(bfp(8,1))",
    ":promote(bfp(8,1), 8, bfp(16,1))",
    ":bfp(8,1), arithmetic=fp32",
    ":mul=bfp(8,1)/ru, add=bfp(8,1)/srb8, arithmetic=fp32",
    ":hw(hopper, wgmma, bf16) -> bfp(8,1)",
    "int8 : chunked(8, int(24), bfp(8,1))",
]


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_products_are_the_references(text, dtype):
    spec = gs.GemmSpec.parse(text)
    assert gs.GemmSpec.from_json(spec.to_json()) == spec and spec.explain()
    if "hw" in text and dtype == F64:
        pytest.skip("the instruction takes its own operands")
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(5, 37, generator=g).to(dtype), torch.randn(37, 4, generator=g).to(dtype)
    a[0, 3], a[1, 5], b[2, 1], a[2] = math.inf, math.nan, -0.0, a[2] * 1e5
    if text.startswith(("int", "bfp")):
        a.nan_to_num_(1, 1, 1)
    want = torch.tensor(reference.gemm(a, b, spec, seed=4), dtype=F64).to(dtype)
    for isa in isas():
        cpu.set_isa(isa)
        got = torch.empty(5, 4, dtype=dtype)
        cpu.gemm(a, b, spec, got, 4) if not spec.has_blocks else got.copy_(gs.qmatmul(a, b, spec, seed=4))
        assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{spec} {isa}")
    cpu.set_isa(isas()[0])


def test_random_data_of_all_kinds():
    rng = random.Random(5)
    for text in (
        ":bfp(8,1)",
        ":mul=bfp(5,1,asymmetric), add=bfp(9,1)/sr8",
        ":kahan(bfp(8,1,inf))",
        ":pairwise(bfp(8,1)/ro)",
    ):
        for _ in range(6):
            a, b = operand(rng, 3, 21, rng.choice([F32, F64, torch.float16])), operand(rng, 21, 3, F32)
            want = torch.tensor(reference.gemm(a, b, gs.GemmSpec.parse(text), seed=9), dtype=F64)
            got = torch.empty(3, 3, dtype=F64)
            cpu.gemm(a, b, gs.GemmSpec.parse(text), got, 9)
            assert_bitwise_equal(got, want, nan_is_nan=True, context=text)


def test_palettes_and_addends():
    g = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(*shape, generator=g) for shape in ((6, 20), (20, 5), (6, 5)))
    spec, select = ":palette(bfp(8,1), bfp(4,1)/sr8, fp32)", torch.arange(30).view(6, 5) % 3
    got = gs.qmatmul(a, b, spec, select=select, seed=3)
    for index, member in enumerate((":bfp(8,1)", ":bfp(4,1)/sr8", ":fp32")):
        want = torch.tensor(reference.gemm(a, b, gs.GemmSpec.parse(member), seed=3), dtype=F64).float()
        assert_bitwise_equal(got[select == index], want[select == index], context=member)
    first = gs.GemmSpec.parse(":sequential(bfp(8,1), init=c_first)")
    want = torch.tensor(reference.gemm(a, b, first, seed=0, c=c), dtype=F64).float()
    got = torch.empty(6, 5)
    cpu.gemm(a, b, first, got, 0, c)
    assert_bitwise_equal(got, want)


def test_row_operations_take_blocks_of_one():
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(2)) * 3
    want = gs.functional.qsoftmax(x, -1, "bfp(8,1)")
    for formats in (parse_cast("bfp(8,1)"), parse_scalar("bfp(8,1)"), gs.formats.BlockFloatFormat(8, 1)):
        assert_bitwise_equal(gs.functional.qsoftmax(x, -1, formats), want)
    with pytest.raises(gs.FormatError, match="neighbours"):
        gs.functional.qsoftmax(x, -1, "bfp(8,16)")


@pytest.mark.parametrize(
    "out", ["bfp(26,1)", "bfp(8,1,asymmetric)", "fixed(40,-100)", "float(p=26,emin=-126,emax=127)/clamp"]
)
def test_output_casts_whose_ends_are_no_floats(out):
    """The sum is in float lanes, an infinity or a large number; what the cast makes of it is no float."""
    a, b = torch.tensor([[3e38, 3e38], [3e38, 2e37], [1.0, 2.0]]), torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    spec = gs.GemmSpec.parse(f":fp32 -> {out}")
    want = torch.tensor(reference.gemm(a, b, spec), dtype=F64)
    for isa in isas():
        cpu.set_isa(isa)
        for dtype in (F64, F32):
            got = torch.empty(3, 2, dtype=dtype)
            cpu.gemm(a, b, spec, got, 0)
            assert_bitwise_equal(got, want.to(dtype), context=f"{spec} {isa}")
    cpu.set_isa(isas()[0])
