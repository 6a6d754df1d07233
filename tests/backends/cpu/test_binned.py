"""Registers by exponent (MGS) on the CPU equal the reference bit for bit, alone and inside other accumulators."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support.cpu import assert_equals_reference, operand

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

OUTS = [
    "fp32",
    "bf16",
    "e5m2",
    "e4m3",
    "e5m10/rtz",
    "e5m2/sr8",
    "bf16/sr20",
    "e5m10/ftz",
    "fixed(12,4)",
    "fp64",
    "e8m0",
]
OUTS += ["e5m2/sat", "binary8p3", "e4m3/rd"]
SHAPES = [(1, 5, 3), (3, 17, 33), (9, 12, 5), (2, 60, 35)]


def random_spec(rng: random.Random) -> GemmSpec:
    text = f"binned({rng.choice(OUTS)}, carry={rng.choice([1, 2, 2, 3, 4, 8, 30, 53])})"
    if rng.random() < 0.6:
        forms = [
            f"chunked({rng.choice([1, 3, 20])}, {text})",
            f"chunked(4, {text}, {rng.choice(OUTS)})",
            f"pairwise({text}, {rng.choice([1, 4])})",
            f"interleaved(4, {text}, combine={rng.choice(['sequential', 'pairwise'])})",
            f"splitk(3, {text}, {rng.choice(OUTS)})",
            f"shuffled(chunked(7, promote({text}, 3, e5m10/sr8), fp32), 3)",
        ]
        text = rng.choice(forms)
    return GemmSpec.of(f"{rng.choice(['', 'e4m3', 'e2m1'])} : {text}")


@pytest.mark.parametrize("start", range(3))
def test_random_binned_sums_equal_the_reference(start):
    rng = random.Random(start)
    for _ in range(150):
        m, k, n = rng.choice(SHAPES)
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16])
        spec, a, b = random_spec(rng), operand(rng, m, k, dtype), operand(rng, k, n, dtype)
        assert_equals_reference(spec, a, b, rng.randrange(1 << 63))


E, TOP, LOW = 1.0 + 2.0**-52, 1.7e308, 5e-324
EDGES = [
    [1.5] * 9,  # the register of exponent 0 spills at 2^2 with carry=2
    [-1.0] * 9,  # -4 is still inside
    [1.0, -1.0, -1.0, 1.0],
    [E, -E, E, E, E, E, 2.0**-60],  # 53 bits of significand, squared below
    [0.0, -0.0, 0.0],
    [-0.0],
    [TOP, TOP, -TOP, LOW],
    [LOW, LOW, -LOW],
    [math.inf, 1.0, 1.0, 1.0, 1.0, 1.0],
    [1.0, math.inf, -math.inf, 1.0],
    [1.0, math.nan, 2.0],
    [3.0, -math.inf, 3.0, 3.0, 3.0],
]


@pytest.mark.parametrize("out", ["e5m2/sr4", "fp64", "e4m3", "e8m0", "fixed(8,4)", "e5m2/sat"])
@pytest.mark.parametrize("carry", [1, 2, 53])
def test_edges(out, carry):
    spec = GemmSpec.of(f":binned({out}, carry={carry})")
    for row in EDGES:
        x = torch.tensor([row], dtype=torch.float64)
        assert_equals_reference(spec, x, torch.ones(len(row), 1, dtype=torch.float64), 3)
        assert_equals_reference(spec, x, x.mT.contiguous(), 3)


def test_a_wide_carry_delays_the_spills_and_a_narrow_one_rounds_more():
    a, b = torch.full((1, 1000), 1.0 + 2.0**-7), torch.ones(1000, 1)
    totals = {}
    for carry in (2, 12):
        out = torch.empty(1, 1, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(f":binned(bf16, carry={carry})"), out)
        totals[carry] = out.item()
    exact = 1000 * (1 + 2.0**-7)
    assert totals[12] == 1008.0 and abs(totals[2] - exact) > abs(totals[12] - exact)
