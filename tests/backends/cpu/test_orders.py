"""Orders of summation and compensated sums on the CPU equal the reference bit for bit, on every instruction set.

Accumulators are nested at random: chunks, pairs, lanes, slices, permutations around plain, compensated and exact runs,
with deterministic and stochastic casts in every place.
"""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas, operand

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

FORMATS = """e5m10 e5m2 e4m3 ieee_e4m3 e8m7 tf32 e6m9 e3m2 fp32 e5m21 fp64 e11m40 fixed(16,8) e5m10/ftz binary8p3
binary8p1 e8m13""".split()
MODES = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/sr8", "/sr20"]
SHAPES = [(1, 5, 3), (3, 17, 33), (9, 12, 5), (2, 40, 35), (8, 8, 8)]


def cast(rng: random.Random) -> str:
    return rng.choice(FORMATS) + rng.choice(MODES) + rng.choice(["", "", "/sat"])


def run_of(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.15:
        return f"exact({cast(rng)})"
    if draw < 0.5:
        name = rng.choice(["kahan", "neumaier", "two_sum", "fast_two_sum"])
        return f"{name}({cast(rng)}" + (f", mul={cast(rng)})" if rng.random() < 0.3 else ")")
    return cast(rng) if draw < 0.8 else f"sequential({cast(rng)}, mul={cast(rng)})"


def accumulator(rng: random.Random, depth: int = 0) -> str:
    if depth >= 2 or rng.random() < (0.5 if depth else 0.15):
        return run_of(rng)
    inner = accumulator(rng, depth + 1)
    outer = f", {cast(rng)}" if rng.random() < 0.5 else ""
    pairs = ", combine=pairwise" if rng.random() < 0.5 else ""
    forms = [
        f"chunked({rng.choice([1, 2, 3, 8, 100])}, {inner}{outer})",
        f"promote({inner}, {rng.choice([1, 4, 5])}, {cast(rng)})",
        f"pairwise({inner}, {rng.choice([1, 2, 3, 7])})",
        f"interleaved({rng.choice([1, 2, 4, 5, 64])}, {inner}{pairs})",
        f"splitk({rng.choice([1, 2, 3, 7])}, {inner}, {cast(rng)})",
    ]
    if depth == 0:
        forms.append(f"shuffled({inner}, {rng.randrange(100)})")
    return rng.choice(forms)


def random_spec(rng: random.Random) -> GemmSpec | None:
    text = f"{rng.choice(['', '', 'e4m3', 'e5m2'])} : {accumulator(rng)}"
    if rng.random() < 0.15:
        text += ", arithmetic=fp32"
    try:
        spec = GemmSpec.of(text)
    except ValueError:
        return None
    return spec if cpu.refuses(spec) is None else None


def check(spec: GemmSpec, a: torch.Tensor, b: torch.Tensor, seed: int) -> None:
    want = reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=seed)
    expected = torch.tensor(want, dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.full(expected.shape, 7.0, dtype=torch.float64)
        run = cpu.gemm(a, b, spec, out, seed)
        assert_bitwise_equal(out, expected, context=f"{spec} on {name}, {a.dtype} {tuple(a.shape)}: {run}")


@pytest.mark.parametrize("start", range(6))
def test_random_accumulators_equal_the_reference(start):
    rng = random.Random(start)
    done = 0
    while done < 150:
        spec = random_spec(rng)
        if spec is None:
            continue
        m, k, n = rng.choice(SHAPES)
        dtype = rng.choice([torch.float32] * 4 + [torch.float64, torch.bfloat16])
        check(spec, operand(rng, m, k, dtype), operand(rng, k, n, dtype), rng.randrange(1 << 63))
        done += 1


SAME = [
    (":chunked(1000, e5m10)", ":e5m10"),
    (":splitk(1, e5m10, e5m10)", ":e5m10"),
    (":interleaved(1, e5m10)", ":e5m10"),
    (":pairwise(e5m10, 1000)", ":e5m10"),
    (":promote(e5m10, 16, fp32)", ":chunked(16, e5m10, fp32)"),
    (":interleaved(64, e5m10, combine=pairwise)", ":pairwise(e5m10)"),
    ("e4m3 : exact(fp64)", "e4m3 : fp64"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_identities(one, other):
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(19, 64, generator=g), torch.randn(64, 37, generator=g)
    results = []
    for text in (one, other):
        out = torch.empty(19, 37, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(text), out)
        results.append(out)
    assert_bitwise_equal(results[0], results[1], context=f"{one} and {other}")


def test_the_exact_sum_does_not_depend_on_the_order():
    g = torch.Generator().manual_seed(2)
    a = torch.randn(5, 200, generator=g) * torch.exp2(torch.randint(-60, 60, (5, 200), generator=g))
    b = torch.randn(200, 7, generator=g) * torch.exp2(torch.randint(-60, 60, (200, 7), generator=g))
    spec, order = GemmSpec.of(":exact(fp32)"), torch.randperm(200, generator=g)
    one, other = torch.empty(5, 7), torch.empty(5, 7)
    cpu.gemm(a, b, spec, one)
    cpu.gemm(a[:, order], b[order], spec, other)
    assert_bitwise_equal(one, other)


@pytest.mark.parametrize(
    "text", [":chunked(8, e5m2/sr8, e6m9/sr8)", ":pairwise(e5m10/sr8, 3)", ":kahan(bf16)", ":exact(fp32)"]
)
def test_threads_and_rows(text):
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(70, 53, generator=g), torch.randn(53, 90, generator=g)
    threads, spec = torch.get_num_threads(), GemmSpec.of(text)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        out = torch.empty(70, 90)
        cpu.gemm(a, b, spec, out, 5)
        results.append(out)
    torch.set_num_threads(threads)
    part = torch.empty(9, 90)
    cpu.gemm(a[:9], b, spec, part, 5)
    for other in (results[1], results[2]):
        assert_bitwise_equal(other, results[0], context=text)
    assert_bitwise_equal(part, results[0][:9], context=f"{text} first rows")


@pytest.mark.parametrize(
    "text",
    ["chunked(8, e5m10/sr8)", "pairwise(e5m10/sr8)", "interleaved(4, e6m5/sr13)", "splitk(2, e4m3/sr8, e4m3/sr8)"],
)
def test_stochastic_orders_run_in_vectors(text):
    a, b = torch.randn(8, 64), torch.randn(64, 32)
    run = cpu.gemm(a, b, GemmSpec.of(f" : {text}"), torch.empty(8, 32), 0)
    assert "scalar" not in str(run), str(run)


@pytest.mark.parametrize("text", ["chunked(8, {})", "pairwise({})", "interleaved(4, {})"])
def test_an_overflow_that_is_nan_does_not_keep_orders_from_their_kernel(text):
    """e4m3's overflow is NaN, which is unlike itself: run and totals still have one cast, and the values are the same."""
    a, b = torch.randn(4, 64) / 8, torch.randn(64, 32) / 8
    results = []
    for fmt in ("e4m3", "e4m3/sat"):
        results.append(torch.empty(4, 32))
        cpu.gemm(a, b, GemmSpec.of(f" : {text.format(fmt)}"), results[-1], 0)
    assert_bitwise_equal(*results)
