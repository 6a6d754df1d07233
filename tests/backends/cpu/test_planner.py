"""Which kernel the planner takes for which spec and data, and that each of them gives the reference's bits.

The first column of kernels is for machines that round in a direction (AVX-512; AVX2 and NEON in tiles), the second for
the others.
"""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

F, D = "float32 lanes", "float64 lanes"
SCALAR = "scalar"


def normal(scale: float = 1.0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    a, b = torch.randn(9, 40, generator=g) * scale, torch.randn(40, 35, generator=g) * scale
    return a.to(dtype), b.to(dtype)


def whole(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest numbers of int8, whose sums leave float32's integers, but for a register that ends before."""
    g = torch.Generator().manual_seed(6)
    signs = torch.randint(0, 5, (4, k), generator=g).clamp(max=1) * 2.0 - 1
    return signs * torch.randint(120, 128, (4, k), generator=g), torch.full((k, 35), 127.0)


def with_inf() -> tuple[torch.Tensor, torch.Tensor]:
    a, b = normal()
    a[1, 2] = math.inf
    return a, b


CASES = [
    (":fp32", normal(), f"{F}, fma, native", None),
    (":fp64", normal(dtype=torch.float64), f"{D}, fma, native", None),
    (":mul=fp32, add=fp32", normal(), f"{F}, mul, add, native", None),
    ("e4m3 : e5m10", normal(), f"{F}, fma, round", None),
    (":e5m10", normal(), f"{F}, fma to odd, round+subnormals", f"{D}, fma to odd, round+subnormals"),
    ("bf16 : e5m10", normal(), f"{F}, fma to odd, round+subnormals", None),
    (":e5m10, arithmetic=fp32", normal(), f"{F}, fma, round+subnormals", None),
    ("e4m3 : e3m2/sat", normal(), f"{F}, fma, round+saturate", None),
    ("e5m10 : e3m2/sat", normal(), f"{F}, fma to odd, round+saturate", None),
    ("e4m3 : ieee_e3m2", normal(), f"{F}, fma, round+overflow", None),
    ("e5m10 : ieee_e3m2", normal(), f"{F}, fma to odd, round+overflow", None),
    ("e4m3 : e5m10", with_inf(), f"{F}, fma, any mode", None),
    ("int8 : e5m10", whole(1500), f"{F}, fma, round+overflow", None),
    ("int8 : e8m10", whole(1500), f"{F}, fma to odd, round", None),
    ("e4m3 : e5m10/rtz", normal(), f"{F}, fma to odd, directed", f"{F}, fma to odd, any mode"),
    ("e4m3 : ieee_e3m2/ru", normal(), f"{F}, fma, directed+overflow", f"{F}, fma, any mode"),
    ("e5m10 : ieee_e3m2/ru", normal(), f"{F}, fma to odd, directed+overflow", f"{F}, fma to odd, any mode"),
    (":e5m10/sr8", normal(), f"{F}, fma to odd, directed", f"{D}, fma to odd, stochastic"),
    (":e5m10/sr16", normal(), f"{F}, fma to odd, directed", f"{D}, fma to odd, stochastic"),
    (":e8m16/sr16", normal(), f"{D}, fma to odd, directed", f"{D}, fma to odd, stochastic"),
    (":e5m10/ftz", normal(), f"{F}, fma to odd, round+flush", f"{D}, fma to odd, round+flush"),
    (":e5m10/ftz/rtz", normal(), f"{F}, fma to odd, directed", f"{D}, fma to odd, any mode"),
    ("e4m3 : chunked(8, ieee_e3m2)", normal(), f"{F}, fma, round+overflow", None),
    ("e5m10 : chunked(8, ieee_e3m2)", normal(), f"{F}, fma to odd, round+overflow", None),
    (":mul=e5m10, add=e5m10/sr8", normal(), f"{F}, mul, add to odd, stochastic", f"{D}, mul, add, stochastic"),
    ("e4m3 : mul=e5m7, add=e5m10", normal(), f"{F}, mul, add, round", None),
    (":mul=e5m7/rtz, add=e5m10/rtz", normal(), f"{F}, mul, add to odd, directed", f"{D}, mul, add, any mode"),
    (":e8m22", normal(), f"{D}, fma to odd, round", None),
    (":fixed(32,12)", normal(), f"{D}, fma to odd, round+subnormals", None),
    (":fixed(32,28)", normal(), f"{D}, fma to odd, round+saturate", None),
    (":binary8p1", normal(), SCALAR, None),
    (":e11m51", normal(), SCALAR, None),
    (":e5m10/srb8", normal(), SCALAR, None),
]


@pytest.mark.parametrize(("text", "data", "directed", "plain"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_planner_takes_the_expected_kernel_and_its_bits_are_the_references(text, data, directed, plain):
    a, b = data
    spec = GemmSpec.of(text)
    want = torch.tensor(reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=9), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(len(a), 35, dtype=torch.float64)
        run = cpu.gemm(a, b, spec, out, 9)
        assert_bitwise_equal(out, want, context=f"{text} on {name}")
        expected = plain if name == "baseline" and plain is not None else directed
        # binary16 from its numbers needs no kernel of ours where the processor has it (test_binary16.py)
        own = name == "avx512fp16" and "binary16" in run.how.names
        assert own or expected in {how.split(": ")[-1] for how in run.how.names}, f"{name}: {run}"


def test_products_below_the_carriers_smallest_number_are_not_taken_for_exact():
    a, b = torch.tensor([[2.0**-74 * (1 + 2.0**-12)]]), torch.tensor([[2.0**-74]])
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(1, 1, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(":e8m21"), out)  # just above half of the smallest quantum, 2^-147
        assert_bitwise_equal(out, torch.full_like(out, 2.0**-147), context=name)


def test_report_says_what_was_proved_and_left_out():
    a, b = normal()
    out = torch.empty(9, 35)
    text = str(cpu.gemm(a, b, GemmSpec.of("e4m3 : e5m10"), out))
    assert text.startswith(f"cpu/{cpu.isa()}: ")
    for claim in ("no overflow possible", "no underflow possible", "steps exact"):
        assert claim in text
    assert "no overflow possible" not in str(cpu.gemm(a * 1e4, b, GemmSpec.of(":e5m10"), out))


@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 64])
@pytest.mark.parametrize("text", ["e4m3 : ieee_e4m3", "e4m3 : e5m2", "e2m1 : ieee_e3m2", "e5m2 : e5m2/rtz"])
def test_the_no_overflow_proof_holds_at_its_edge(text, k):
    """Sums that end just below, on and above the largest value, whatever the planner concludes from their bound."""
    spec = GemmSpec.of(text)
    top = spec.accumulator.add.format.max
    ends = [top * f / k for f in (0.9, 1 - 2**-4, 1.0, 1 + 2**-5, 1 + 2**-3, 1.5)]
    a = torch.tensor([[e] * k for e in ends] + [[-e] * k for e in ends])
    b = torch.ones(k, 2)
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec))
    out = torch.empty(len(a), 2)
    for name in isas():
        cpu.set_isa(name)
        for row in range(len(a)):  # one by one: each row is planned from its own data
            cpu.gemm(a[row : row + 1], b, spec, out[row : row + 1])
        assert_bitwise_equal(out, want, context=f"{text} k={k} on {name}")


def climbing(p: int, top: float, terms: int, share: float) -> list[float]:
    """Terms of which each takes a register of ``p`` bits to its next number, the last ones to the largest and beyond.

    Each is a ``share`` of a place, so that roundings add as much as they can to the sum of magnitudes.
    """
    values = [top]
    while len(values) < terms:
        below = math.nextafter(values[-1], 0)  # whose place is that of numbers next below
        values.append(values[-1] - 2.0 ** (math.frexp(below)[1] - p))
    values.reverse()
    places = [2.0 ** (math.frexp(v)[1] - p) for v in values]
    return [values[0], *(share * place for place in places[: terms - 1])]


@pytest.mark.parametrize("beyond", [0, 1, 3])
@pytest.mark.parametrize("terms", [6, 40, 90])
@pytest.mark.parametrize("text, share", [
    (":e5m1", 0.501), (":ieee_e5m2", 0.501), (":e6m3/sat", 0.501), (":e6m3/rna", 0.5), (":e5m2/rtz", 0.99), (":e6m3/ru", 0.001),
    (":e6m3/sr2", 0.25), (":e6m4/sr5", 0.04), (":e6m3/sr9", 0.3), (":ieee_e5m2, arithmetic=fp32", 0.5 - 2.0**-26),
    (":chunked(90, ieee_e5m2)", 0.501), (":chunked(3, e6m3)", 0.501), (":pairwise(ieee_e5m2)", 0.501), (":interleaved(4, e6m3)", 0.501),
    (":chunked(10, chunked(5, e6m4, outer=e6m1), outer=e6m5)", 0.501), (":mul=e6m4, add=e6m2", 0.501),
])  # fmt: skip
def test_the_no_overflow_proof_holds_where_roundings_add_most(text, share, terms, beyond):
    """Registers that climb number by number to the largest one, and ``beyond`` terms past it."""
    spec = GemmSpec.of(text)
    register = spec.accumulator
    while not hasattr(register, "add"):
        register = register.inner
    p, top = register.add.format.p, register.add.format.max
    climb = climbing(p, top, terms, share)
    last = [share * 2.0 ** (math.frexp(top)[1] - p)] * beyond
    a = torch.tensor([climb + last, [0.0] * beyond + climb, [-x for x in climb + last]], dtype=torch.float64)
    a, b = a.float(), torch.ones(a.shape[1], 3)
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, seed=4), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        for rows in (slice(0, 1), slice(1, 2), slice(0, 3)):
            out = torch.empty(len(a[rows]), 3, dtype=torch.float64)
            if "sr" in text and rows.start:
                continue  # whose draws are those of other rows
            cpu.gemm(a[rows], b, spec, out, 4)
            assert_bitwise_equal(out, want[rows], context=f"{text} on {name}")


@pytest.mark.parametrize("text, kind", [(":e8m10", "round"), (":chunked(64, e8m10)", "round"), (":pairwise(e8m10)", "round"),
                                        (":e8m10/sr8", "directed"), (":e8m10, arithmetic=fp32", "round")])  # fmt: skip
def test_long_sums_of_wide_formats_need_no_clamp(text, kind):
    """2^19 terms, for which (1 + u)^K is beyond any float."""
    g = torch.Generator().manual_seed(8)
    a, b = torch.rand(1, 2**19, generator=g), torch.rand(2**19, 1, generator=g)
    run = cpu.gemm(a, b, GemmSpec.of(text), torch.empty(1, 1, dtype=torch.float64), 3)
    assert "no overflow possible" in str(run)
    if cpu.isa() != "baseline":
        assert run.how.names[0].endswith(f", {kind}"), run
