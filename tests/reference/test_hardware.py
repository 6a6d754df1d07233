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
from support_hardware import assert_same, by_mma, choices, number, operands, same, values_by_mma

from gemmsim import acc, hardware
from gemmsim.reference import gemm
from gemmsim.reference.dyadic import lowest_exponent, multiply, to_float, to_units
from gemmsim.reference.hardware import chain

CHOICES = choices()


def test_every_way_to_sum_is_among_the_choices():
    models = {type(one.instruction.model) for one in CHOICES}
    assert models == {
        hardware.FusedBlock,
        hardware.ScaledGroups,
        hardware.PairwiseTree,
        hardware.FlooredSum,
        hardware.FmaChain,
    }
    assert {one.op for one in CHOICES} == set(hardware.OPS) and {one.arch for one in CHOICES} == set(
        hardware.ARCHITECTURES
    )


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_products_agree_with_mma(accumulator):
    row = accumulator.instruction
    seen = []
    for seed, k in enumerate([1, row.k, 2 * row.k + max(1, row.k // 2 - 1)]):
        given = operands(row, 5, 5, k, seed)
        got = gemm(given.left, given.right, accumulator)
        assert_same(got, values_by_mma(row, given.a, given.b, 5), accumulator)
        seen += [x for line in got for x in line]
    assert sum(map(math.isfinite, seen)) > len(seen) // 3, "too few finite results to tell anything"


def test_nothing_to_sum_is_plus_zero():
    for accumulator in CHOICES:
        (line,) = gemm([[]], np.zeros((0, 2)), accumulator)
        assert line == [0.0, 0.0] and math.copysign(1, line[0]) == 1


@lru_cache(maxsize=1)
def vectors():
    return np.load(GOLDEN / "mmasim_public.npz")


@lru_cache(maxsize=1)
def cases() -> tuple[dict, ...]:
    return tuple(json.loads(bytes(vectors()["meta"]))["cases"])


def unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


def unpacked(codes: np.ndarray, kind: hardware.Operand, axis: int) -> np.ndarray:
    if kind.packed == 1:
        return codes
    pair = np.stack((codes & 15, codes >> 4), axis=axis + 1 if axis >= 0 else codes.ndim)
    shape = list(codes.shape)
    shape[axis] *= 2
    return pair.reshape(shape)


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
        unit_b = lowest_exponent(right)
        unit = min(lowest_exponent(left) + unit_b, lowest_exponent([start]), d_kind.format.quantum_exponent)
        products = [multiply(to_units(x, unit - unit_b), to_units(y, unit_b)) for x, y in zip(left, right, strict=True)]
        got = to_float(chain(row, left, right, products, to_units(start, unit), unit), unit)
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
