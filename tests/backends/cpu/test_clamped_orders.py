"""Orders of summation whose runs or totals overflow equal the reference bit for bit: saturation, infinities, NaN.

The kernel without clamps fails its check on such data, or is not tried; the one with clamps (cutlass_kernels/cpu/tiles/short_runs/short_runs.h)
takes over.
"""

from __future__ import annotations

import random

import pytest
import torch
from support.cpu import assert_equals_reference

from gemmsim import GemmSpec

FORMATS = ["e3m2", "e2m1", "e4m3", "ieee_e4m3", "e5m2", "e5m10", "e2m5", "e3m2/ftz", "ieee_e4m3/ftz", "binary8p3"]
ORDERS = [
    "chunked(1, {})", "chunked(2, {})", "chunked(8, {})", "pairwise({}, 1)", "pairwise({}, 2)", "pairwise({}, 3)",
    "interleaved(5, {})", "interleaved(9, {}, combine=pairwise)", "chunked(16, pairwise({}))", "splitk(2, pairwise({}, 2), fp32)",
]  # fmt: skip


def operands(rng: random.Random, largest: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums that reach the largest number now and then, some of one sign only."""
    m, k, n = rng.choice([(1, 3, 2), (9, 17, 35), (2, 40, 33), (3, 16, 4)])
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
    if rng.random() < 0.4:
        a, b = a.abs(), b.abs()
    if rng.random() < 0.3:
        a, b = (a * 2).round() / 2, (b * 2).round() / 2
    return a * (largest * rng.choice([0.02, 0.1, 0.3, 1.0, 3.0])), b


def compare(rng: random.Random) -> None:
    fmt = rng.choice(FORMATS) + rng.choice(["", "", "/sat"])
    run = fmt if rng.random() < 0.7 else f"sequential({fmt}, mul={rng.choice([fmt, 'e5m10', 'e3m2'])})"
    spec = GemmSpec.of(f" : {rng.choice(ORDERS).format(run)}{rng.choice(['', '', ', arithmetic=fp32'])}")
    assert_equals_reference(spec, *operands(rng, spec_largest(fmt)))


def spec_largest(fmt: str) -> float:
    return float(GemmSpec.of(f" : {fmt}").accumulator.add.format.max)


@pytest.mark.parametrize("start", range(6))
def test_random_orders_that_overflow(start):
    rng = random.Random(910 + start)
    for _ in range(100):
        compare(rng)
