"""``hw`` on the CPU: every choice of an instruction against ``gemmsim.hardware.mma``, nested ones against the reference.

On every instruction set of the machine; values with the sign of zero, NaN as a class.
"""

from __future__ import annotations

import pytest
import torch
from support.cpu import isas
from support.hardware import assert_same, choices, operands, values_by_mma

from gemmsim import acc, reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

CHOICES = choices()


def product(left, right, accumulator) -> list[list[float]]:
    a, b = (torch.tensor(x, dtype=torch.float64) for x in (left, right))
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
    cpu.gemm(a, b, GemmSpec.of(accumulator), out, 0)
    return out.tolist()


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_every_choice_agrees_with_mma(accumulator, isa):
    cpu.set_isa(isa)
    row = accumulator.instruction
    for seed, k in enumerate([1, row.k, 3 * row.k + max(1, row.k // 2 - 1)]):
        given = operands(row, 11, 10, k, seed)
        assert_same(
            product(given.left, given.right, accumulator), values_by_mma(row, given.a, given.b, 10), accumulator
        )


AROUND = [
    lambda one: acc.chunked(50, one),
    lambda one: acc.promote(one, 7),
    lambda one: acc.pairwise(one, 16),
    lambda one: acc.interleaved(3, one, "pairwise"),
    lambda one: acc.splitk(2, one, "bf16"),
    lambda one: acc.chunked(8, one, "fp64"),
    lambda one: acc.promote(one, 20, "fixed(48,20)"),
    lambda one: acc.shuffled(one, 5),
    lambda one: acc.shuffled(acc.promote(acc.chunked(20, one, "fp16"), 33), 1),
]


@pytest.mark.parametrize("which", range(len(AROUND)))
@pytest.mark.parametrize("accumulator", CHOICES[::11], ids=str)
def test_accumulators_around_it_agree_with_the_reference(accumulator, which):
    outer = AROUND[which](accumulator)
    given = operands(accumulator.instruction, 6, 7, 70, which)
    assert_same(product(given.left, given.right, outer), reference.gemm(given.left, given.right, outer), outer)
