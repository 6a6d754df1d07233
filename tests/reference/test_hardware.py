"""The reference of ``hw`` against ``gemmsim.hardware.mma`` and the golden vectors: values, signs of zero, NaN as a class.

The two share the tables of parameters and nothing else: one is tensors of int64, the other Python's integers.
"""

from __future__ import annotations

import json
import math
import random
from functools import lru_cache

import numpy as np
import pytest
import torch
from support import GOLDEN, run_python
from support.hardware import assert_same, by_mma, choices, number, operands, registers, same, values_by_mma

from gemmsim import acc, hardware
from gemmsim.arithmetic import Accumulator
from gemmsim.reference import gemm
from gemmsim.reference.dyadic import lowest_exponent, multiply, to_float, to_units
from gemmsim.reference.hardware import chain

CHOICES = choices()


def test_every_way_to_sum_is_among_the_choices():
    models = {type(one.instruction.model) for one in CHOICES}
    assert models == {
        hardware.FusedBlock,
        hardware.ScaledGroups,
        hardware.TwoBlocks,
        hardware.ExactSum,
        hardware.PairwiseTree,
        hardware.FlooredSum,
        hardware.FmaChain,
    }
    assert {one.op for one in CHOICES} == set(hardware.OPS) - {"f8f6f4"} and {one.arch for one in CHOICES} == set(
        hardware.ARCHITECTURES
    )


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_products_agree_with_mma(accumulator):
    row = accumulator.instruction
    seen = []
    for seed, k in enumerate([1, row.k, 2 * row.k + max(1, row.k // 2 - 1)]):
        given = operands(row, 7, 7, k, seed)
        got = gemm(given.left, given.right, accumulator)
        assert_same(got, values_by_mma(row, given.a, given.b, 7), accumulator)
        seen += [x for line in got for x in line]
    assert sum(map(math.isfinite, seen)) > len(seen) // 3, "too few finite results to tell anything"


def test_nothing_to_sum_is_plus_zero():
    for accumulator in CHOICES:
        (line,) = gemm([[]], np.zeros((0, 2)), accumulator)
        assert line == [0.0, 0.0] and math.copysign(1, line[0]) == 1


def by_chain(row: hardware.Instruction, left: list[float], right: list[float], start: float) -> float:
    """One output of the reference from C = ``start``; whole instructions."""
    unit_b = lowest_exponent(right)
    unit = min(lowest_exponent(left) + unit_b, lowest_exponent([start]), row.operands[3].format.quantum_exponent)
    products = [multiply(to_units(x, unit - unit_b), to_units(y, unit_b)) for x, y in zip(left, right, strict=True)]
    return to_float(chain(row, left, right, products, to_units(start, unit), unit), unit)


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_instructions_from_any_register_agree_with_mma(accumulator):
    row = accumulator.instruction
    given, start = operands(row, 10, 5, row.k, 9), registers(row, 10, 5, 9)
    columns = [[line[j] for line in given.right] for j in range(5)]
    got = [
        [
            by_chain(row, line, column, row.operands[2].storage.decode(c))
            for column, c in zip(columns, codes, strict=True)
        ]
        for line, codes in zip(given.left, start, strict=True)
    ]
    assert_same(got, values_by_mma(row, given.a, given.b, 5, start), accumulator)


TINY, SMALL = 2.0**-24, 2.0**-14
#: (accumulator, a, b, result): what random operands seldom reach.
DIRECTED = [
    # CDNA2: -2^-127 is flushed to -0, and as the register to +0 before the next step.
    ("hw(cdna2, mfma, bf16)", [*[0.0] * 8, 2.0**-63, *[0.0] * 3, -1.5 * 2.0**-63], [2.0**-63] * 13, -0.0),
    ("hw(cdna2, mfma, bf16)", [2.0**-63, *[0.0] * 7, -1.5 * 2.0**-63, *[0.0] * 3, *[-(2.0**-80)] * 4], [2.0**-63] * 16, 0.0),
    ("hw(cdna1, mfma, bf16)", [2.0**-63, 0.0, -1.5 * 2.0**-63], [2.0**-63] * 3, -(2.0**-127)),
    # CDNA3: the total is floored, so what lies below a tie decides it: 1 - 2^-25 - 2^-45.
    ("hw(cdna3, mfma, bf16)", [1.0, *[0.0] * 7, -(2.0**-25), -(2.0**-45)], [1.0] * 10, 1 - 2.0**-24),
    ("hw(cdna3, mfma, bf16)", [1.0, *[0.0] * 7, -(2.0**-25)], [1.0] * 9, 1.0),
    # CDNA3 fp8: the register is floored, but dropped from 26 places below.
    ("hw(cdna3, mfma, e5m2fnuz)", [-(2.0**-12), *[0.0] * 31, 2.0**13], [1.0] * 33, 2.0**13 - 2.0**-11),
    ("hw(cdna3, mfma, e5m2fnuz)", [-(2.0**-13), *[0.0] * 31, 2.0**13], [1.0] * 33, 2.0**13),
    ("hw(cdna3, mfma, bf16)", [2.0**100, -(2.0**100)], [2.0**28, 2.0**27], math.inf),
    # A zero has no exponent, whatever it is multiplied by.
    ("hw(hopper, wgmma, bf16)", [2.0**-60, *[0.0] * 15, 0.0], [1.0, *[0.0] * 15, 2.0**100], 2.0**-60),
    ("hw(cdna3, mfma, bf16)", [2.0**-60, *[0.0] * 7, 0.0], [1.0, *[0.0] * 7, 2.0**100], 2.0**-60),
    # Nor has a zero register, but the largest exponent counts as -133 at least (binary16: -21; with F = 24 -132, -20).
    ("hw(hopper, wgmma, bf16)", [2.0**-76] * 8, [2.0**-76] * 8, 2.0**-149),
    ("hw(hopper, wgmma, bf16)", [2.0**-79] * 16, [2.0**-79] * 16, 0.0),
    ("hw(hopper, wgmma, f16, out=f16)", [2.0**-12, 2.0**-23], [2.0**-13, 2.0**-24], 0.0),
    ("hw(hopper, wgmma, f16, out=f16)", [2.0**-12, 2.0**-22], [2.0**-13, 2.0**-24], 2.0**-24),
    ("hw(ampere, mma, f16, out=f16)", [2.0**-12, 2.0**-22], [2.0**-13, 2.0**-23], 0.0),
    ("hw(ampere, mma, f16, out=f16)", [2.0**-12, 2.0**-20], [2.0**-13, 2.0**-24], 2.0**-24),
    # On CDNA3 a zero register has the exponent of subnormals: the sum is floored at 2^-157.
    ("hw(cdna3, mfma, bf16)", [2.0**-75, -(2.0**-80)], [2.0**-75, 2.0**-80], 0.0),
    # CDNA1: one rounding of the exact sum.
    ("hw(cdna1, mfma, f16)", [2.0**12, 0.5, -(2.0**12)], [2.0**13, 0.5, 2.0**13], 0.25),
    ("hw(cdna1, mfma, f16)", [2.0**15, -(2.0**-24), *[0.0] * 3, -(2.0**15)], [2.0**15, 2.0**-24, *[0.0] * 3, 2.0**15], 0.0),
    ("hw(cdna1, mfma, bf16)", [2.0**100, -(2.0**100), 2.0**-60], [1.0, 1.0, 2.0**-60], 2.0**-120),
    # Turing's m8n8k4 has Volta's F.
    ("hw(turing, mma, f16)", [-1.0, 1.0, 2.0**-12], [1.0, 1.0, 2.0**-12], 2.0**-24),
    # FP8 by mma.sync: c last, to nearest; two blocks of k mod 4; subnormals as binary16 has them.
    ("hw(hopper, mma, e4m3)", [1.0, *[0.0] * 31, 2.0**-9, *[0.0] * 31, 2.0**-9], [1.0, *[0.0] * 31, 1.5 * 2.0**-8, *[0.0] * 31, 2.0**-9], 1.0 + 1.5 * 2.0**-17 + 2.0**-18),
    ("hw(hopper, mma, e4m3)", [256.0, -256.0, 2.0**-6], [256.0, 256.0, 2.0**-6], 2.0**-12),
    ("hw(hopper, mma, e4m3)", [256.0, 2.0**-6, -256.0], [256.0, 2.0**-6, 256.0], 0.0),
    ("hw(hopper, mma, e4m3)", [16.0, *[0.0] * 3, 2.0**-9], [1.0, *[0.0] * 3, 2.0**-9], 16.0 + 2.0**-18),
    ("hw(blackwell, mma, e5m2, out=f16)", [57344.0, 57344.0, -57344.0, -57344.0], [1.0] * 4, math.inf),
    ("hw(blackwell, mma, e5m2, out=f16)", [57344.0, 0.0, 57344.0, *[0.0] * 29, -57344.0], [1.0] * 33, math.inf),
    ("hw(blackwell, mma, e5m2, out=f16)", [57344.0, 57344.0, *[0.0] * 30, -57344.0, -57344.0], [1.0] * 34, math.nan),
    # e8m13 keeps 13 fraction bits of a register that nothing is added to.
    ("hw(hopper, wgmma, e4m3)", [1.0, 2.0**-7], [1.0, 2.0**-7], 1.0),
    ("hw(hopper, wgmma, bf16)", [1.0, 2.0**-7], [1.0, 2.0**-7], 1 + 2.0**-14),
    # Not normalised: 2.25 has exponent 0, so that 2^-25 still counts.
    ("hw(hopper, wgmma, bf16)", [1.5, -1.5, 2.0**-25], [1.5, 1.5, 1.0], 2.0**-25),
    # Truncation goes to infinity past the largest number all the same.
    ("hw(hopper, wgmma, bf16)", [2.0**127, 2.0**127], [1.0, 1.0], math.inf),
    ("hw(hopper, wgmma, f16, out=f16)", [65504.0, 16.0], [1.0, 1.0], math.inf),
    ("hw(hopper, wgmma, f16, out=f16)", [65504.0, 15.0], [1.0, 1.0], 65504.0),
    ("hw(hopper, wgmma, f16, out=f16)", [TINY, TINY], [0.5, 1.0], 2 * TINY),
    ("hw(hopper, wgmma, f16)", [-TINY * 1, SMALL], [0.0, -0.0], 0.0),
]  # fmt: skip


@pytest.mark.parametrize("text, a, b, want", DIRECTED)
def test_single_rules(text, a, b, want):
    accumulator = Accumulator.parse(text)
    ((got,),) = gemm([a], [[x] for x in b], accumulator)
    assert same(got, want), (got.hex(), want.hex())
    row = accumulator.instruction
    codes = [[kind.storage.encode(x) for x in line] for line, kind in zip((a, b), row.operands[:2], strict=True)]
    assert_same([[got]], values_by_mma(row, [codes[0]], [[x] for x in codes[1]], 1), text)


@pytest.mark.parametrize("numbers, want", [([], 1.5 * 2.0**-35), ([1.0, -1.0], 2.0**-35), ([1.0], 1 + 2.0**-23)])
def test_groups_align_by_their_scales_unless_all_products_are_zero(numbers, want):
    row = acc.hw("blackwell", "mxf4nvf4", "e2m1").instruction
    left, right = [*numbers, *[0.0] * (64 - len(numbers))], [1.0] * 64
    codes = [[kind.storage.encode(x) for x in line] for line, kind in zip((left, right), row.operands[:2], strict=True)]
    c = 1.5 * 2.0**-35 if len(numbers) != 1 else 2.0**-23
    start = row.operands[2].storage.encode(c)
    got = values_by_mma(row, [codes[0]], [[x] for x in codes[1]], 1, [[start]])
    assert got == [[by_chain(row, left, right, c)]] == [[want]]


@lru_cache(maxsize=1)
def vectors():
    return np.load(GOLDEN / "mmasim_public.npz")


@lru_cache(maxsize=1)
def cases() -> tuple[dict, ...]:
    return tuple(json.loads(bytes(vectors()["meta"]))["cases"])


def unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("case", [case for case in cases() if not case["scale"]], ids=lambda case: case["id"])
def test_a_sample_of_the_golden_vectors(case):
    row = hardware.instruction(case["arch"], f"{case['unit']}.{case['instr']}")
    a_kind, b_kind, c_kind, d_kind = row.operands
    a, b, c, want = (unsigned(vectors()[f"{case['id']}_{name}"]) for name in "ABCD")
    rng = random.Random(case["id"])
    for _ in range(24):
        where = tuple(rng.randrange(size) for size in want.shape)
        *batch, i, j = where
        left = [number(int(code), a_kind) for code in a[(*batch, i)]]
        right = [number(int(code), b_kind) for code in b[(*batch, slice(None), j)]]
        start = c_kind.storage.decode(int(c[where]))
        got = by_chain(row, left, right, start)
        assert same(got, d_kind.storage.decode(int(want[where]))), (case["id"], where)


HOPPER = acc.hw("hopper", "wgmma", "e4m3", "e5m2")


def test_accumulators_around_it_see_each_run_as_a_chain_of_its_own():
    """By ``mma`` on each run and binary32 additions; runs of 5, 32 and 40 terms, the instruction's k being 32."""
    row = HOPPER.instruction
    given = operands(row, 5, 5, 77, 0)
    torch.manual_seed(0)

    def run(ks) -> torch.Tensor:
        a, b = [[line[k] for k in ks] for line in given.a], [given.b[k] for k in ks]
        return torch.tensor(values_by_mma(row, a, b, 5), dtype=torch.float32)

    def added(totals, start=0.0):
        s = torch.full((5, 5), start)
        for total in totals:
            s = s + total
        return s.tolist()

    def check(accumulator, want):
        assert_same(gemm(given.left, given.right, accumulator), want, accumulator)

    for n in (5, 32, 40):
        runs = [run(range(k, min(k + n, 77))) for k in range(0, 77, n)]
        check(acc.promote(HOPPER, n), added(runs))
        check(acc.chunked(n, HOPPER), added(runs))
    leaves = [run(range(k, min(k + 32, 77))) for k in range(0, 77, 32)]
    check(acc.pairwise(HOPPER, 32), ((leaves[0] + leaves[1]) + leaves[2]).tolist())
    check(acc.interleaved(3, HOPPER), added([run(range(lane, 77, 3)) for lane in range(3)]))
    check(acc.splitk(2, HOPPER, "fp32"), added([run(range(39)), run(range(39, 77))]))
    order = acc.shuffled(HOPPER, 5).order(77)
    check(acc.shuffled(HOPPER, 5), run(order).tolist())
    check(acc.promote(acc.shuffled(HOPPER, 5), 77), added([run(order)]))


def test_a_palette_of_it_and_of_a_format():
    given = operands(HOPPER.instruction, 5, 5, 40, 0)
    select = [[(i + j) % 2 for j in range(5)] for i in range(5)]
    members = [gemm(given.left, given.right, one) for one in (HOPPER, "e4m3 * e5m2 : e5m10")]
    want = [[members[select[i][j]][i][j] for j in range(5)] for i in range(5)]
    assert_same(gemm(given.left, given.right, acc.palette(HOPPER, "e5m10"), select=select), want, "palette")


def test_operands_are_cast_first():
    a, b = [[1.0 + 2.0**-11, 0.3]], [[1.0], [0.7]]
    assert gemm(a, b, acc.hw("hopper", "mma", "tf32")) == gemm(a, b, "tf32/rtz : hw(hopper, mma, tf32)")
    assert gemm([[1.0 + 2.0**-10 - 2.0**-20]], [[1.0]], acc.hw("hopper", "mma", "tf32")) == [[1.0]]
    assert gemm([[0.3]], [[1.0]], acc.hw("hopper", "wgmma", "e4m3")) == [[0.3125]]
    # Each operand rounds by itself; e2m1 stays as it is in e4m3.
    assert gemm([[0.3]], [[0.3]], "e2m1 * none : hw(hopper, wgmma, e4m3)".replace("none ", "")) == [[0.5 * 0.3125]]


def test_a_nan_stays_one_in_a_format_without_nan():
    assert math.isnan(gemm([[math.nan] + [0.0] * 40], [[0.0]] * 41, acc.hw("blackwell", "mxf4nvf4", "e2m1"))[0][0])
    # An infinity becomes the largest number there.
    assert gemm([[math.inf]], [[1.0]], acc.hw("blackwell", "mxf4nvf4", "e2m1")) == [[6.0]]


def test_the_reference_loads_no_torch():
    code = """
import sys
from gemmsim.reference import gemm
print(gemm([[1.5]], [[2.0]], ":hw(hopper, wgmma, bf16)"), "torch" in sys.modules)
"""
    assert run_python(code).stdout.split() == ["[[3.0]]", "False"]


def test_the_helper_pads_as_the_accumulator_says():
    row = HOPPER.instruction
    given = operands(row, 2, 2, 40, 0)
    filled = [[*line, *[0] * 24] for line in given.a]
    assert by_mma(row, given.a, given.b, 2) == by_mma(row, filled, [*given.b, *[[0, 0]] * 24], 2)
