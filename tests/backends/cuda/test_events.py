"""Events at additions that the GPU's kernels count, run on the host, are the reference's, beside the product's bits."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import LONG, assert_bitwise_equal
from support.cuda_gemm import Call, compile_on_host, cuda_gemm, host_events, sources_of, watching_sources_of
from torch import Tensor

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import SpecError, UnsupportedSpec
from gemmsim.backends import cpu

NAMES = ("swamped", "inexact", "underflow", "overflow")
#: Every kind of carrier, rounding, policy at the ends, and compensated sum.
REGISTERS = [
    "e5m10", "bf16", "fp32", "fp64", "e4m3", "e5m2/sat", "e4m7b10/rtz/sat/ftz", "e5m10/rtz", "e5m10/rna", "e5m10/ru",
    "e5m10/rd", "e5m10/ro", "e5m10/sr16", "e5m2/sr4", "bf16/sr16/sat", "e4m3/srb8", "e8m23/sr32", "fixed(16,8)",
    "fixed(12,4)/rtz", "e4m3fnuz", "supernormal(4,3)", "sequential(e5m10, mul=e5m10)",
    "sequential(bf16/sr8, mul=bf16/sr8)", "kahan(e5m10)", "neumaier(e5m10/sr8)", "two_sum(bf16)",
    "fast_two_sum(e5m10)", "kahan(fp64)", "kahan(e5m10, mul=bf16)", "two_sum(e4m3/rtz)",
]  # fmt: skip
ORDERS = [
    "{}", "chunked(4, {})", "pairwise({})", "pairwise({}, 3)", "interleaved(4, {})", "interleaved(3, {}, pairwise)",
    "splitk(3, {}, bf16)", "shuffled({}, 5)", "chunked(5, pairwise({}, 2), fp32)", "promote({}, 6)",
    "chunked(3, {}, e5m2/sr4)", "splitk(2, interleaved(3, {}), e5m10/rtz)", "shuffled(pairwise({}), 1)",
    "chunked(4, {}, fp64)", "pairwise(chunked(3, {}, e5m10/sr16), 6)",
]  # fmt: skip


def operands(rng: random.Random, m: int, k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Strided, among them ties, zeros, sums that end exactly, tiny and huge ones, and often what is not finite."""
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    scale = rng.choice([1.0, 0.01, 30.0, 2.0**-10, 200.0])
    a, b = (torch.randn(*shape, dtype=torch.float64, generator=g) * scale for shape in ((k, 2 * m), (n, k)))
    if rng.random() < 0.5:
        a, b = (a * 4).round() / 4, (b * 2).round() / 2
    if rng.random() < 0.3:
        a[0, 0], b[0, 1], b[-1, -1] = math.inf, rng.choice([math.nan, 3e38, 0.0]), -0.0
    if rng.random() < 0.2:
        a[:, 0] = a[:, 0].abs() * 2.0**20
    return a.to(dtype).t()[::2], b.to(dtype).t()


def calls_of(registers: list[str]) -> list[Call]:
    rng, calls = random.Random(str(registers)), []
    for number, register in enumerate(registers):
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16])
        for order in dict.fromkeys(["{}", *rng.sample(ORDERS, 5 if LONG else 2), ORDERS[number % len(ORDERS)]]):
            try:
                text = f"{rng.choice(['', 'e4m3', 'bf16', 'e4m3/sr4'])} : {order.format(register)}"
                spec = GemmSpec.of(text + rng.choice(["", " -> e5m2/sr4", " -> e4m3"]))
            except ValueError:  # totals without a format to meet in
                continue
            m, k, n = rng.choice([(1, 5, 3), (3, 17, 18), (9, 12, 5), (2, 40, 35)])
            calls.append((*operands(rng, m, k, n, dtype), spec, rng.randrange(1 << 63)))
    return calls


def check(a: Tensor, b: Tensor, spec: GemmSpec, seed: int, c: Tensor | None = None) -> Tensor:
    """Counts and value of the kernel against the CPU's, and counts against the reference's; the counts, summed."""
    m, n = a.shape[0], b.shape[1]
    out, value = torch.full((m, n), 3, dtype=a.dtype), torch.empty(m, n, dtype=a.dtype)
    counts, cpus = torch.full((4, m, n), 5, dtype=torch.int64), torch.zeros(4, m, n, dtype=torch.int64)  # are added to
    host_events(a, b, spec, out, counts, seed, c)
    cpu.count_events(a, b, spec, value, cpus, seed, c)
    assert_bitwise_equal(counts - 5, cpus, context=f"the CPU's counts of {spec} {tuple(a.shape)}")
    cpu.gemm(a, b, spec, value, seed, c)
    assert_bitwise_equal(out, value, context=f"value of {spec} {tuple(a.shape)}")
    addend = None if c is None else c.double().tolist()
    want = reference.count_events(a.double().tolist(), b.double().tolist(), spec, seed, addend)
    expected = torch.tensor([[[getattr(x, event) for x in row] for row in want] for event in NAMES])
    for event, got, right in zip(NAMES, counts - 5, expected, strict=True):
        assert_bitwise_equal(got, right, context=f"{event} of {spec} {tuple(a.shape)} {a.dtype}")
    return cpus.sum((1, 2))


@pytest.mark.parametrize("part", range(5))
def test_counts_equal_the_references_and_values_the_products(part):
    calls = calls_of(REGISTERS[part::5])
    compile_on_host(watching_sources_of(calls))
    assert sum(int(check(*call).sum()) for call in calls) > 1000


@pytest.mark.parametrize("init", ["c_first", "c_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addend(init, dtype):
    g = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(*shape, generator=g) for shape in ((5, 20), (20, 7), (5, 7)))
    c[0, 0], c[1, 1], c[2, 2] = -0.0, 1e6, math.inf
    specs = [GemmSpec.of(f": sequential({add}, init={init})") for add in ("e5m10", "e5m2/sr4", "bf16/rtz")]
    calls = [(a, b, spec, 3) for spec in specs]
    compile_on_host(watching_sources_of(calls, c.to(dtype)))
    for call in calls:
        check(*call, c.to(dtype))
    with pytest.raises(SpecError, match="init="):
        check(a, b, GemmSpec.of("e5m10"), 3, c)


def test_sums_at_the_edges_of_what_is_seen():
    terms = [
        (1.0, 2.0), (2048.0, 1.0), (2048.0, -0.0), (2.0**-24,), (2.0**-25,), (1.5 * 2.0**-24,), (2.0**-14 - 2.0**-26,),
        (2.0**-14, -(2.0**-40)), (-(2.0**-14), 2.0**-40), (2.0**-14, 2.0**-40), (60000.0, 60000.0, 1.0),
        (-65504.0, -15.0), (65504.0, 16.0), (65504.0, 15.99), (math.inf, 1.0), (math.nan, 1.0), (3e38, 3e38),
        (3e38, -3e38), (1e30, -1e30), (2.0**-149, -(2.0**-149)), (1.0, 2.0**-149), (-0.0, -0.0), (1.0, -1.0, 3e-8),
    ]  # fmt: skip
    a = torch.tensor([(*row, 0.0, 0.0)[:3] for row in terms])
    names = ["e5m10", "e5m10/sat", "e5m10/ru", "e4m3", "fp32", "bf16/rtz", "e5m10/sr8", "fixed(16,8)", "kahan(e5m10)"]
    calls = [(a, torch.ones(3, 1), GemmSpec.of(f":{name}"), 11) for name in names]
    compile_on_host(watching_sources_of(calls))
    assert torch.stack([check(*call) for call in calls]).sum(0).gt(20).all()


def test_batches_have_their_own_counts_and_rows():
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 3, 24, 6, generator=g).transpose(-1, -2)[..., ::2], torch.randn(24, 10, generator=g)[::2, ::2]
    spec, b = GemmSpec.of("chunked(4, e5m10/sr8)"), b.expand(2, 3, 12, 5)
    out, counts = torch.empty(2, 3, 6, 5), torch.zeros(4, 2, 3, 6, 5, dtype=torch.int64)
    host_events(a, b, spec, out, counts, 5)
    other, want = torch.empty_like(out), torch.zeros_like(counts)
    cpu.count_events(a, b, spec, other, want, 5)
    assert_bitwise_equal(out, other)
    assert_bitwise_equal(counts, want)


def test_what_is_empty_and_what_is_refused():
    counts = torch.full((4, 2, 3), 7, dtype=torch.int64)
    out = torch.empty(2, 3)
    host_events(torch.empty(2, 0), torch.empty(0, 3), GemmSpec.of("pairwise(e5m10)"), out, counts)
    assert counts.eq(7).all() and out.eq(0).all()
    host_events(torch.empty(0, 4), torch.empty(4, 3), GemmSpec.of("e5m10"), out[:0], counts[:, :0])
    for text in ("exact(fp32)", "int8 : int(24)", "hw(hopper, wgmma, bf16)", "palette(e5m10, bf16)"):
        with pytest.raises(UnsupportedSpec, match="allowed: accumulators in a format, kahan"):
            host_events(torch.ones(2, 32), torch.ones(32, 3), GemmSpec.of(text), out, counts)


def test_other_kernels_have_the_text_they_had():
    a, b = torch.ones(4, 8), torch.ones(8, 4)
    (plain,) = sources_of([(a, b, GemmSpec.of("e5m10"), 0)])
    (watching,) = watching_sources_of([(a, b, GemmSpec.of("e5m10"), 0)])
    assert ".counted" in watching.text and ".counted" not in plain.text
    assert watching.name.startswith("events of ") and watching.shared_bytes > 0
    assert cuda_gemm.refuses(GemmSpec.of("e5m10")) is None
