"""Fused steps in the GPU's kernels, run on the host: every carrier of their sums, and orders around them."""

from __future__ import annotations

import random

import torch
from support import assert_bitwise_equal
from support.cpu import KINDS, operand
from support.cuda_gemm import compile_on_host, host_gemm, sources_of
from support.fused import ROWS, TEXTS

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

AROUND = [
    "chunked(20, {}, fp32)",
    "promote({}, 48)",
    "pairwise({}, 16)",
    "interleaved(3, {})",
    "chunked(8, {}, fp32/sr8)",
]


def check(texts: list[str], shapes: list[tuple[int, int, int]], rng: random.Random) -> None:
    calls = []
    for text in texts:
        dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        for i, (m, k, n) in enumerate(shapes):
            pair = operand(rng, m, k, dtype, KINDS[i % len(KINDS)]), operand(rng, k, n, dtype, None if k else "normal")
            calls.append((*pair, GemmSpec.of(text), i))
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got, want = (torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64) for _ in range(2))
        host_gemm(a, b, spec, got, seed)
        cpu.gemm(a, b, spec, want, seed)
        assert_bitwise_equal(got, want, context=f"{spec}, {a.dtype} {tuple(a.shape)}x{tuple(b.shape)}")


SHAPES = [(2, 0, 3), (3, 17, 33), (9, 70, 5), (20, 33, 18), (1, 130, 3), (5, 64, 40), (4, 96, 9)]


def test_every_carrier_of_a_step():
    check(TEXTS, SHAPES, random.Random(1))


def test_orders_around_them():
    rng = random.Random(2)
    check([around.format(text) for around in AROUND for text in rng.sample(TEXTS, 2)], SHAPES[:4], rng)


def test_rows_of_the_tables():
    check([str(one) for _, one in ROWS[::9]], SHAPES[:3], random.Random(3))
