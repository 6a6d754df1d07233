"""Exact and integer registers inside orders of summation: ordinary products where these are exact, the same bits."""

from __future__ import annotations

import random

import pytest
import torch
from support.cpu import assert_equals_reference, operand

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

SPECS = [
    "e4m3 : chunked(8, exact(fp32))",
    "e4m3 : chunked(5, exact(e5m10/rtz), e6m9)",
    "e4m3 : pairwise(exact(e5m10/sr8), 4)",
    "e5m2 : interleaved(3, exact(bf16), pairwise)",
    "e4m3 : splitk(4, exact(fp64), e5m10)",
    "e4m3 : chunked(16, chunked(4, exact(fp32), fp32), bf16)",
    "e4m3 : chunked(4, exact(e6m5/ftz))",
    "e4m3 : chunked(4, exact(fixed(16,6)), fixed(24,3))",
    "e4m3 : shuffled(chunked(6, exact(e5m10), e4m3/sat), 3)",
    "e4m3 : chunked(8, binned(fp32), e5m10)",
    "int4 : chunked(8, chunked(8, int(20, overflow=saturate), e8m0), e5m10/rtz)",
    "int4 : chunked(2, exact(e8m0), fp32)",
    "int8 : chunked(8, chunked(2, int(20), e4m3/sat), fp32)",
    "int8 : chunked(4, int(20), fixed(24,0))",
    "int8 : chunked(4, int(12, overflow=wrap), fixed(20,0))",
    "int8 : chunked(9, int(24), fixed(16,-6))",
    "int8 : pairwise(int(18, overflow=saturate), 4)",
    "uint8 : chunked(4, int(16, signed=false, overflow=wrap), fp32)",
    "e4m3 : chunked(4, fixed(24, 18, rounding=rne), fp32)",
    "e4m3 : chunked(4, fixed(16, 4, rounding=rtz), fixed(24,4))",
]


@pytest.mark.parametrize("text", SPECS)
def test_runs_have_the_bits_of_the_reference(text):
    spec, rng = GemmSpec.parse(text), random.Random(text)
    for _ in range(4):
        m, k, n = rng.choice([(1, 1, 1), (9, 37, 5), (3, 16, 18)])
        kinds = ["small", "normal"] if spec.accumulator.integer_operands else ["normal", "wide", "special", "relu"]
        a, b = (operand(rng, *shape, torch.float32, rng.choice(kinds)) for shape in ((m, k), (k, n)))
        if spec.accumulator.integer_operands:
            a, b = (a * 40).round(), (b * 40).round()
        assert_equals_reference(spec, a, b, seed=3)


def test_sums_that_just_fit_a_double_and_that_do_not():
    """16 products of up to 2^49 - ... and lowest bit 1: sums of 2^53 units and more are not left to the machine."""
    for top, fits in ((2**24 - 1, True), (2**25 - 1, False)):
        a = torch.tensor([[float(top)] * 15 + [1.0], [3.0] * 16], dtype=torch.float64)
        b = torch.tensor([[float(top)] * 15 + [1.0]], dtype=torch.float64).t().contiguous()
        spec = GemmSpec.parse(":chunked(16, exact(fp64/rd), fp64)")
        assert_equals_reference(spec, a, b)
        out = torch.empty(2, 1, dtype=torch.float64)
        assert ("exact in float64" in str(cpu.gemm(a, b, spec, out))) == fits


@pytest.mark.parametrize("text", ["e4m3 : chunked(64, exact(fp32))", "int8 : chunked(4, int(20), fixed(24,0))"])
def test_last_backend_says_that_the_machine_multiplied(text):
    gs.qmatmul(torch.ones(8, 128), torch.ones(128, 8), text)
    plan = gs.last_backend().plan
    assert "exact in float64" in plan or "integers in the carrier" in plan


def test_the_palette_keeps_its_members_apart():
    a, b = torch.randn(9, 20), torch.randn(20, 7)
    members = ["chunked(4, exact(e5m10))", "e5m10", "chunked(4, int(20), fp32)"]
    select = torch.randint(0, 2, (9, 7), dtype=torch.uint8)
    got = gs.qmatmul(a, b, f"e4m3 : palette({members[0]}, {members[1]})", select=select)
    ways = [gs.qmatmul(a, b, f"e4m3 : {member}") for member in members[:2]]
    assert torch.equal(got, torch.where(select == 0, *ways))


@pytest.mark.parametrize(
    "text",
    [
        ":chunked(8, chunked(2, fp32, e5m10), fixed(32,0))",
        ":chunked(8, e5m10, fixed(32,0))",
        ":chunked(4, sequential(fp32, mul=e5m10), fixed(32,0))",
        ":chunked(8, pairwise(e5m10, 2), e8m7/clamp)",
        "int4 : chunked(8, chunked(2, int(20, overflow=wrap, signed=false), e5m10/srb6), fixed(30,2))",
    ],
)
def test_a_total_that_overflowed_inside_is_clamped_outside(text):
    """Its products alone would not have left the outer format: infinities come from the inner one."""
    spec = GemmSpec.parse(text)
    a, b = (torch.full(shape, 300.0) for shape in ((9, 16), (16, 18)))
    if spec.accumulator.integer_operands:
        a, b = torch.full((9, 16), -3.0), torch.full((16, 18), 2.0)
    assert_equals_reference(spec, a, b, seed=2)
