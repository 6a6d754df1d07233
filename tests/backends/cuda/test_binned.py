"""Registers by exponent on the GPU's kernels, run on the host, equal the CPU backend and the reference bit for bit."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import operand
from support.cuda_gemm import Call, compile_on_host, host_gemm, sources_of

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

SHAPES = [(1, 5, 3), (3, 17, 21), (9, 13, 5), (2, 60, 19)]
#: Registers of 64, 128 and 192 bits; every kind of rounding; inside other accumulators, where draws go on counting.
CASES = [
    (":binned(fp32)", torch.float32), ("e4m3 : binned(e5m2/sr8, carry=2)", torch.float32),
    (":binned(bf16/sr20, carry=30)", torch.float32), (":binned(e5m10/rtz, carry=53)", torch.float32),
    (":binned(fp64, carry=1)", torch.float64), (":binned(fp64/sr8, carry=18)", torch.float64),
    (":binned(bf16/sr8, carry=53)", torch.float64), (":binned(fp64, carry=19)", torch.float64),
    ("bf16*e2m1 : chunked(4, binned(e5m2/sr8, carry=1), bf16/sr8)", torch.bfloat16),
    (":shuffled(chunked(7, binned(e4m3/sat, carry=1), fp32), 3)", torch.float16),
    (":pairwise(binned(e5m10/ftz, carry=2), 4)", torch.float16), ("int16 : binned(e8m0, carry=1)", torch.bfloat16),
    ("fixed(8,4) : binned(fixed(12,4)) -> bf16", torch.float32),
]  # fmt: skip


def equals(calls: list[Call], by_reference: bool) -> None:
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got, want = (torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64) for _ in range(2))
        host_gemm(a, b, spec, got, seed)
        if by_reference:
            rows = reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=seed)
            want = torch.tensor(rows, dtype=torch.float64)
        else:
            cpu.gemm(a, b, spec, want, seed)
        assert_bitwise_equal(got, want, context=f"{spec}, {a.dtype} {tuple(a.shape)}, seed {seed}")


def test_binned_sums_equal_the_cpu_and_the_reference():
    rng = random.Random(20)
    calls = []
    for text, dtype in CASES:
        for m, k, n in SHAPES:
            x, y = operand(rng, m, k, dtype), operand(rng, k, n, dtype)
            calls.append((x, y, GemmSpec.of(text), rng.randrange(1 << 63)))
    equals(calls, by_reference=False)
    equals(calls, by_reference=True)


TOP, LOW, ODD = 1.7e308, 5e-324, 1.0 + 2.0**-52
EDGES = [
    [1.5] * 9,  # the register of exponent 0 is spilled at 2^2
    [-1.0] * 9,  # -4 is still inside
    [2.0, -1.0, -1.0, -1.0, 0.5, 1.0, 2.0, -2.0, 1.0],
    [TOP, LOW, -TOP, LOW, 1.0, -1.0, 0.0, -0.0, LOW],
    [ODD, -ODD, ODD, ODD, ODD, ODD, ODD, ODD, -1.0],
    [float("inf"), 1.0, 1.0, 1.0, 1.0, 1.0, float("-inf"), 1.0, 1.0],
    [1.0, 1.0, 1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0],
    [1.0, float("nan"), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    [-0.0] * 9,
]


@pytest.mark.parametrize("text", [":binned(fp64, carry=2)", ":binned(e5m2, carry=2)", ":binned(fp64, carry=53)"])
def test_the_edges_of_a_register(text):
    a = torch.tensor(EDGES, dtype=torch.float64)
    b = torch.tensor([[1.0, -1.0, ODD, TOP, LOW, 2.0**-537]] * 9, dtype=torch.float64)
    equals([(a, b, GemmSpec.of(text), 3)], by_reference=True)


@pytest.mark.parametrize("text", [":binned(fp32)", "e4m3 : binned(bf16, carry=1)"])
def test_every_finite_float32_finds_a_register(text):
    """The smallest and the largest product of the dtype, alone and together."""
    least, most = 2.0**-149, float.fromhex("0x1.fffffep127")
    a = torch.tensor([[least, most, -most, 448.0, 2.0**-9, 1.0]], dtype=torch.float32)
    equals([(a * x, a.mT * y, GemmSpec.of(text), 0) for x in (1, 0.5) for y in (1, -1)], by_reference=True)
