"""Overflows that the GPU's kernels count, run on the host, are those of the CPU backend and of the reference."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import Call, compile_on_host, counting_sources_of, host_count

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.backends import cpu

INF, NAN = float("inf"), float("nan")
WHOLE = [
    "int8 : int(8)", "int4 : int(7, saturate)", "int8 : int(12, wrap, when=end)", ": int(24, saturate, when=end)",
    ": int(53, wrap)", "int8 : int(10, signed=false)", ": int(12, saturate, shift=3) -> e4m3", "int8 : interleaved(4, int(8, saturate))",
    "int8 : chunked(3, int(9, saturate), fp32)", "int8 : pairwise(int(8, saturate), 2)",
]  # fmt: skip
ANY = [
    ": fixed(8, 4, rounding=rne)", ": fixed(12, 4, rounding=sr8, overflow=wrap)", "e4m3/sr4 : fixed(6, 1, rounding=rtz)",
    "e4m3 : chunked(5, promote(fixed(5, 2, rounding=rna), 2, bf16), fp32)", ": splitk(3, fixed(8, 0, rounding=rd), fixed(6,1))",
    ": shuffled(chunked(7, fixed(7, 3, rounding=sr8), fp32), 3)", ": fixed(24, -3, rounding=rne, overflow=wrap)",
]  # fmt: skip
SHAPES = [(1, 5, 3), (3, 17, 33), (2, 40, 35)]


def calls_of(texts: list[str], whole: bool) -> list[Call]:
    rng, g = random.Random(30), torch.Generator().manual_seed(31)
    calls = []
    for text in texts:
        dtype = torch.float64 if text in (WHOLE[3], ANY[0]) else torch.float32
        for m, k, n in SHAPES:
            scale = rng.choice([1.0, 8.0, 100.0, 2.0**40])
            a, b = (torch.randn(*shape, generator=g, dtype=dtype) * scale for shape in ((m, k), (k, n)))
            if whole:
                a, b = a.round(), b.round()
            else:
                a[0, k // 2], b[0, 0], b[-1, -1] = rng.choice([INF, -INF]), rng.choice([NAN, 3e38, 0.0]), -0.0
            calls.append((a, b, GemmSpec.of(text), rng.randrange(1 << 63)))
    return calls


@pytest.mark.parametrize("whole", [True, False], ids=["int", "fixed"])
def test_counts_equal_the_cpus_and_the_references(whole):
    calls = calls_of(WHOLE if whole else ANY, whole)
    compile_on_host(counting_sources_of(calls))
    events = 0
    for a, b, spec, seed in calls:
        got, want = (torch.full((a.shape[0], b.shape[1]), 5, dtype=torch.int64) for _ in range(2))  # both add
        host_count(a, b, spec, got, seed)
        cpu.count_overflows(a, b, spec, want, seed)
        assert_bitwise_equal(got, want, context=f"{spec} {tuple(a.shape)}")
        counted = reference.count_overflows(a.double().tolist(), b.double().tolist(), spec, seed=seed)
        assert (got - 5).tolist() == counted, f"{spec} {tuple(a.shape)}"
        events += int((got - 5).sum())
    assert events > 1000


def test_fractions_of_an_int_register_count_minus_one():
    a = torch.tensor([[1.5, 100.0, 100.0], [100.0, 100.0, 100.0], [INF, 1.0, 1.0]])
    counts = torch.zeros(3, 1, dtype=torch.int64)
    for _ in range(2):
        host_count(a, torch.ones(3, 1), GemmSpec.of(":chunked(2, int(8, saturate), fp32)"), counts)
    assert counts.tolist() == [[-1], [2], [-1]]


def test_what_is_empty_and_what_has_no_register():
    counts = torch.ones(2, 3, dtype=torch.int64)
    host_count(torch.empty(2, 0), torch.empty(0, 3), GemmSpec.of(": int(8)"), counts)
    assert counts.eq(1).all()
    for text in (":e5m10", ":palette(int(8), e5m10)"):
        with pytest.raises(UnsupportedSpec, match=r"allowed: int\(...\), fixed"):
            host_count(torch.ones(2, 2), torch.ones(2, 3), GemmSpec.of(text), counts)
