"""Registers in supernormal, old binary8 and block floating point formats, in double lanes, against the reference."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas, operand

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu

FORMATS = [
    "supernormal(4,3)",
    "supernormal(8,7)",
    "supernormal(3,2,2,1,saturate)",
    "supernormal(5,2,even_exponent)",
    "binary8(4,unsigned)",
    "binary8(3)/ftz",
    "bfp(8,1)",
    "bfp(3,1,asymmetric)",
    "bfp(12,1,inf)",
]
MODES = ["rne", "rna", "rtz", "ru", "rd", "ro", "sr4", "sr20"]
LANES = "irregular format: float64 lanes"


def product(rng: random.Random, text: str, **more: object) -> tuple[torch.Tensor, torch.Tensor, str]:
    """The library's result, the reference's, and what ran."""
    m, k, n, seed = rng.choice([1, 3, 8]), rng.choice([1, 9, 30]), rng.choice([1, 16, 21]), rng.randrange(1 << 40)
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    a, b = operand(rng, m, k, dtype), operand(rng, k, n, dtype)
    spec = gs.GemmSpec.parse(text)
    c = torch.randn(m, n, generator=torch.Generator().manual_seed(seed % 1000)) if "init" in text else None
    got = gs.qmatmul(a, b, spec, seed=seed, c=c, out_dtype=torch.float64)
    ran = str(gs.last_backend())
    left, right = a.double().tolist(), b.double().tolist()
    want = reference.gemm(left, right, spec, seed=seed, c=None if c is None else c.double().tolist())
    return got, torch.tensor(want, dtype=torch.float64), ran


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("fmt", FORMATS)
def test_products_are_the_references(fmt, isa):
    rng = random.Random(fmt)
    cpu.set_isa(isa)
    in_lanes = 0
    for mode in MODES:
        one, other = f"{fmt}/{mode}", f"{rng.choice(FORMATS)}/{rng.choice(MODES)}"
        texts = [f": {one}", f": mul={other}, add={one}", f": chunked(4, {one}, {other})", f": pairwise({one})"]
        texts += [f": interleaved(3, {one})", f": shuffled({one}, 5)", f": add={one}, init=c_last"]
        for text in texts:
            got, want, ran = product(rng, text)
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{text} {isa}")
            in_lanes += LANES in ran
    cpu.set_isa(isas()[0])
    assert in_lanes >= 20, "the vector kernel is hardly ever used"


@pytest.mark.parametrize(
    "text",
    [
        ": supernormal(4,3)/rnu",  # ties toward an infinity
        ": supernormal(4,3)/srb8",  # random bits of another kind
        ": binary8(4)/ftz/sr4",  # the share of a gap that is no power of two
        ": supernormal(8,7,7,7)",  # powers beyond 2^900
        ": interleaved(2, supernormal(4,3)/sr8)",  # draws by another index than the place
        ": kahan(supernormal(4,3))",
    ],
)
def test_what_lanes_cannot_do_is_computed_one_by_one(text):
    for i in range(6):
        got, want, ran = product(random.Random(i), text)
        assert_bitwise_equal(got, want, nan_is_nan=True, context=text)
        assert "scalar" in ran


def test_float64_operands_have_products_that_lanes_round():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 20, generator=g, dtype=torch.float64), torch.randn(20, 5, generator=g, dtype=torch.float64)
    got = gs.qmatmul(a, b, ": supernormal(4,3)")
    assert "scalar" in str(gs.last_backend())
    want = reference.gemm(a.tolist(), b.tolist(), ": supernormal(4,3)")
    assert_bitwise_equal(got, torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("fmt", ["float(p=26,emin=-126,emax=127)/clamp", "fixed(40,-100)", "ufixed(32,0)"])
@pytest.mark.parametrize("accumulator", ["fp32", "e5m10", "kahan(fp32)", "chunked(2, fp32)", "exact(e11m50)"])
def test_operands_whose_largest_value_is_no_float_are_not_put_into_float_lanes(fmt, accumulator):
    """Of float32 numbers only infinities, and what lies beyond the format, become such a value."""
    inf = float("inf")
    a, b = torch.tensor([[inf, 1.0], [-inf, 2.0], [3e38, 1.0]]), torch.tensor([[1.0, 0.5], [1.0, -2.0]])
    for text in (f"{fmt} * : {accumulator}", f"* {fmt} : {accumulator}", f"{fmt} : {accumulator}"):
        for isa in isas():
            cpu.set_isa(isa)
            got = gs.qmatmul(a, b, text, out_dtype=torch.float64)
            want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), text), dtype=torch.float64)
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{text} {isa}")
    cpu.set_isa(isas()[0])
