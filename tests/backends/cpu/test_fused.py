"""Fused steps on the CPU: against the reference on every instruction set, and as the rows of the tables."""

from __future__ import annotations

import random

import pytest
import torch
from support.cpu import KINDS, assert_equals_reference, isas, operand
from support.fused import ROWS, TEXTS
from support.hardware import assert_same, operands

from gemmsim import acc
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu


def product(left, right, accumulator) -> list[list[float]]:
    a, b = (torch.tensor(x, dtype=torch.float64) for x in (left, right))
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
    cpu.gemm(a, b, GemmSpec.of(accumulator), out, 0)
    return out.tolist()


@pytest.mark.parametrize("row, one", ROWS, ids=str)
def test_every_row_of_the_tables_is_an_instance(row, one):
    for name in isas():
        cpu.set_isa(name)
        for seed, k in enumerate([1, row.instruction.k, 3 * row.instruction.k + 7]):
            given = operands(row.instruction, 11, 10, k, seed)
            for around in (lambda x: x, lambda x: acc.promote(x, 2 * row.instruction.k)):
                got, want = (product(given.left, given.right, around(x)) for x in (one, row))
                assert_same(got, want, one)


@pytest.mark.parametrize("text", TEXTS)
def test_steps_have_the_bits_of_the_reference(text):
    rng = random.Random(text)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for kind in KINDS:
            k = rng.choice([1, 16, 33, 70, 131])
            a, b = operand(rng, rng.choice([1, 9]), k, dtype, kind), operand(rng, k, rng.choice([1, 17]), dtype)
            assert_equals_reference(GemmSpec.of(text), a, b)


AROUND = [
    "chunked(20, {})", "chunked(128, {}, fp32)", "promote({}, 32)", "pairwise({}, 16)", "interleaved(3, {}, combine=pairwise)",
    "splitk(2, {}, bf16)", "shuffled({}, 5)", "chunked(9, {}, fp64)", "chunked(8, {}, fp32/sr8)", "chunked(33, promote({}, 8), bf16)",
]  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
def test_accumulators_around_them_have_the_bits_of_the_reference(around):
    rng = random.Random(around)
    for text in TEXTS[::3]:
        a, b = operand(rng, 5, 70, torch.float32, "wide"), operand(rng, 70, 9, torch.float32, "normal")
        assert_equals_reference(GemmSpec.of(around.format(text)), a.t().contiguous().t(), b, seed=3)


@pytest.mark.parametrize("kept", range(8, 61))
def test_every_number_of_kept_bits(kept):
    rng = random.Random(kept)
    a, b = operand(rng, 4, 48, torch.float32, "wide"), operand(rng, 48, 5, torch.float32, "normal")
    assert_equals_reference(GemmSpec.of(f"fused(16, {kept}, fp32/rtz)"), a, b)
    assert_equals_reference(GemmSpec.of(f"bf16 : fused(16, {kept}, e8m{max(1, kept % 24)}/rtz)"), a, b)


def test_few_bits_and_scales_taken_apart():
    spec = GemmSpec.of("mxfp8_e4m3 : scaled(fused(32, 13, e8m13/rtz, a=e4m3), fp32)")
    like = GemmSpec.of("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3), fp32)")
    from gemmsim import qmatmul

    a, b = torch.randn(9, 96), torch.randn(96, 7)
    assert torch.equal(qmatmul(a, b, spec), qmatmul(a, b, like))
