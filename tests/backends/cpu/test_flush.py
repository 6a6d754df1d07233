"""Registers without subnormals equal the reference bit for bit: every mode, sums and products around the smallest normal."""

from __future__ import annotations

import random

import pytest
import torch
from support.cpu import assert_equals_reference

from gemmsim import GemmSpec
from gemmsim.backends import cpu

FORMATS = [
    "e5m10/ftz",
    "e4m3/ftz",
    "e5m2/ftz",
    "e3m2/ftz",
    "e6m5/ftz",
    "e4m7b10/ftz",
    "e8m7/ftz",
    "e2m5/ftz",
    "e6m9/ftz",
]
MODES = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/sr8", "/sr3", "/sr13", "/ro"]
SHAPES = [(1, 1, 1), (3, 9, 5), (2, 17, 33), (9, 24, 4), (2, 40, 18)]


def register(rng: random.Random) -> tuple[str, str]:
    fmt = rng.choice(FORMATS)
    return fmt, fmt + rng.choice(MODES) + rng.choice(["", "", "/sat"])


def accumulator(rng: random.Random) -> tuple[str, str]:
    fmt, add = register(rng)
    run = add
    if rng.random() < 0.35:
        mul = register(rng)[1] if rng.random() < 0.6 else add
        run = f"sequential({add}, mul={mul if rng.random() < 0.8 else 'e5m10'})"
    if rng.random() < 0.2:
        inside = run[len("sequential(") : -1] if run.startswith("sequential") else run
        return fmt, f"sequential({inside}, init={rng.choice(['c_first', 'c_last'])})"
    forms = [run, run, f"chunked({rng.choice([1, 2, 8])}, {run})", f"pairwise({run}, {rng.choice([1, 2, 3, 5])})"]
    forms += [f"interleaved({rng.choice([3, 9])}, {run})", f"kahan({add})"]
    return fmt, rng.choice(forms)


def spec_of(rng: random.Random) -> tuple[str, GemmSpec] | None:
    fmt, text = accumulator(rng)
    tail = rng.choice(["", "", "", ", arithmetic=fp32"])
    try:
        spec = GemmSpec.of(f" : {text}{tail}")
    except ValueError:
        return None
    return (fmt, spec) if cpu.refuses(spec) is None else None


def numbers(g: torch.Generator, shape: tuple[int, int], exponent: float, kind: int) -> torch.Tensor:
    """Around 2^exponent: normal, or few significant bits (ties), with zeros of both signs."""
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    if kind == 1:
        x = torch.randint(-4, 5, shape, generator=g).double() / 4
    if kind == 2:
        x = x.abs()
    x = x * 2.0**exponent
    where = torch.randint(0, 12, shape, generator=g)
    return torch.where(
        where == 0, torch.zeros(()).double(), torch.where(where == 1, -torch.zeros(()).double(), x)
    ).float()


def compare(rng: random.Random) -> bool:
    found = spec_of(rng)
    if found is None:
        return False
    fmt, spec = found
    lowest = smallest_exponent(fmt)
    m, k, n = rng.choice(SHAPES)
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    half = rng.choice([lowest - 2, lowest - 1, lowest, lowest + 2]) / 2
    a, b = numbers(g, (m, k), half, rng.randrange(3)), numbers(g, (k, n), half, rng.randrange(3))
    c = numbers(g, (m, n), lowest, 1) if "init=c" in str(spec) else None
    seed = rng.randrange(1 << 40)
    assert_equals_reference(spec, a, b, seed, c)
    return True


def smallest_exponent(fmt: str) -> int:
    return GemmSpec.of(f" : {fmt}").accumulator.add.format.emin


@pytest.mark.parametrize("start", range(8))
def test_random_registers_without_subnormals(start):
    rng = random.Random(4200 + start)
    assert sum(compare(rng) for _ in range(120)) > 60


@pytest.mark.parametrize("mode", ["rne", "rtz", "ru", "rd", "rna", "sr8"])
def test_no_slow_kernel_rounds_them(mode):
    a, b = torch.randn(8, 64), torch.randn(64, 32)
    run = cpu.gemm(a, b, GemmSpec.of(f" : e5m10/ftz/{mode}"), torch.empty(8, 32), 0)
    assert not cpu.isa().startswith("avx512") or ", any mode" not in str(run) and ", stochastic" not in str(run), str(
        run
    )
