"""Registers of binary16 from numbers of binary16: the processor's own steps, where it has them (cutlass_kernels/cpu/tiles/nearest/binary16.cpp)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cpu import assert_equals_reference, isas

from gemmsim import quantize
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

MODES = ["", "/rtz", "/ru", "/rd", "/rna", "/sat", "/ftz"]  # some that no step of the processor has
OPERANDS = ["e5m10", "e4m3", "e5m2", "e2m1", "bf16"]  # the last is not of binary16, but for some data


def normal(*shape: int, seed: int, fmt: str = "e5m10") -> torch.Tensor:
    return quantize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), fmt)


def every_finite() -> torch.Tensor:
    """Each finite number of binary16, as float32."""
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    x = bits.view(torch.float16).float()
    return x[x.isfinite()]


@pytest.mark.parametrize(
    "rows, k, columns", [(8, 70, 33), (7, 33, 64), (16, 5, 65), (24, 129, 17), (1, 300, 40), (3, 1, 1)]
)
@pytest.mark.parametrize("mode", MODES)
def test_shapes(mode, rows, k, columns):
    """Whole and broken tiles, odd numbers of terms, one panel of columns and two."""
    assert_equals_reference(GemmSpec.of(f":e5m10{mode}"), normal(rows, k, seed=k), normal(k, columns, seed=columns))


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("mode", ["", "/rtz"])
def test_operands(operand, mode):
    a, b = normal(9, 140, seed=1, fmt="fp32"), normal(140, 40, seed=2, fmt="fp32")
    assert_equals_reference(GemmSpec.of(f"{operand} : e5m10{mode}"), a, b)


def test_more_tiles_terms_and_panels_than_go_together():
    a, b, outs = normal(400, 1001, seed=1), normal(1001, 130, seed=2), {}
    for name in isas():
        cpu.set_isa(name)
        outs[name] = torch.empty(400, 130)
        cpu.gemm(a, b, GemmSpec.of(":e5m10"), outs[name], 0)
    for name, out in outs.items():
        assert_bitwise_equal(out, outs["baseline"], context=name)


@pytest.mark.parametrize("mode", MODES)
def test_every_number_once(mode):
    """One term: every finite number of the format by a factor that takes it below 2^-14, past the end and to all places between."""
    x = every_finite()
    factors = torch.tensor([1.0, -1.0, 2.0**-14, 3 * 2.0**-24, 1.5, 1023 * 2.0**-10, 65504.0, 0.0])[:, None]
    for name in isas():
        cpu.set_isa(name)
        got, want = torch.empty(8, len(x)), torch.empty(8, len(x))
        cpu.gemm(factors, x[None], GemmSpec.of(f":e5m10{mode}"), got, 0)
        # a product of eleven bits each is a number of float64, and a cast of it is rounded once
        want = quantize((factors.double() * x.double()) + 0.0, f"e5m10{mode}").float()
        assert_bitwise_equal(got + 0.0, want + 0.0, context=f"{mode}, {name}")


@pytest.mark.parametrize("mode", ["", "/rtz", "/ru"])
def test_sums_of_all_magnitudes(mode):
    """Down to 2^-24, on midpoints, back to zero of both signs."""
    g = torch.Generator().manual_seed(3)
    a = quantize(
        torch.randn(16, 200, generator=g) * torch.exp2(torch.randint(-12, 4, (16, 200), generator=g).float()), "e5m10"
    )
    b = quantize(
        torch.randn(200, 34, generator=g) * torch.exp2(torch.randint(-12, 1, (200, 34), generator=g).float()), "e5m10"
    )
    a[:, 100:] = -a[:, :100].flip(1)
    b[100:] = b[:100].flip(0)
    a[:, 150:160] = 0
    a[3, 190:], a[4, 190:] = 2.0**-24, -(2.0**-24)
    assert_equals_reference(GemmSpec.of(f":e5m10{mode}"), a, b)


@pytest.mark.parametrize("mode", ["", "/rtz", "/ru", "/sat"])
@pytest.mark.parametrize("large", [300.0, 3000.0])
def test_overflow(mode, large):
    """Infinities, and what comes of them and of their differences."""
    a, b = normal(8, 60, seed=5) * 1.0, normal(60, 40, seed=6)
    a[2] = quantize(a[2] * large, "e5m10")
    a[3], b[:, 5] = 65504.0, 1.0
    a[4, :30], a[4, 30:], b[:, 6] = 65504.0, -65504.0, 1.0
    assert_equals_reference(GemmSpec.of(f":e5m10{mode}"), a, b)


@pytest.mark.parametrize(
    "odd", [1 + 2.0**-11, 2.0**-25, 65536.0, torch.inf, torch.nan, -torch.inf, 2.0**-24, 65504.0, -0.0]
)
@pytest.mark.parametrize("where", ["a", "b"])
def test_one_number_that_binary16_has_or_has_not(odd, where):
    a, b = normal(8, 60, seed=5), normal(60, 40, seed=6)
    (a if where == "a" else b)[7, 3] = odd
    for mode in ("", "/rtz"):
        assert_equals_reference(GemmSpec.of(f":e5m10{mode}"), a, b)


def test_sums_of_float32_that_are_rounded_twice_are_another_meaning():
    """1 + 2^-10 and just less than half of the last place: float32 makes a midpoint of the sum, which is even above."""
    a = torch.tensor([[1 + 2.0**-10, 2.0**-11 * (1 + 2.0**-10)]] * 8)
    b = torch.tensor([[1.0] * 34, [1 - 2.0**-10] * 34])
    for arithmetic, want in ("", 1 + 2.0**-10), (", arithmetic=fp32", 1 + 2.0**-9):
        spec = GemmSpec.of(f":e5m10{arithmetic}")
        assert_equals_reference(spec, a, b)
        out = torch.empty(8, 34)
        cpu.gemm(a, b, spec, out, 0)
        assert (out == want).all()


def test_flushing_threads_get_the_same_sums():
    a, b, got, want = normal(8, 100, seed=1) * 2.0**-9, normal(100, 32, seed=2), torch.empty(8, 32), torch.empty(8, 32)
    b = quantize(b * 2.0**-6, "e5m10")
    cpu.set_isa(isas()[0])
    cpu.gemm(a, b, GemmSpec.of(":e5m10"), want, 0)
    torch.set_flush_denormal(True)
    try:
        cpu.gemm(a, b, GemmSpec.of(":e5m10"), got, 0)
    finally:
        torch.set_flush_denormal(False)
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batches", [1, 3])
def test_threads_and_batches(threads, batches):
    a, b = normal(batches, 40, 90, seed=1), normal(batches, 90, 70, seed=2)
    before = torch.get_num_threads()
    outs = {}
    try:
        torch.set_num_threads(threads)
        for name in isas():
            cpu.set_isa(name)
            outs[name] = torch.empty(batches, 40, 70, dtype=torch.float16)
            cpu.gemm(a, b, GemmSpec.of(":e5m10"), outs[name], 0)
    finally:
        torch.set_num_threads(before)
    for name, out in outs.items():
        assert_bitwise_equal(out, outs["baseline"], context=name)


def test_what_ran_is_said():
    a, b = normal(16, 64, seed=1), normal(64, 32, seed=2)
    for name in isas():
        cpu.set_isa(name)
        run = cpu.gemm(a, b, GemmSpec.of(":e5m10"), torch.empty(16, 32), 0)
        assert ("binary16" in run.how.names) == (name == "avx512fp16"), str(run)
        run = cpu.gemm(a + 2.0**-12, b, GemmSpec.of(":e5m10"), torch.empty(16, 32), 0)
        assert "binary16" not in str(run)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 90),
    st.sampled_from(["", "/rtz", "/ru"]),
    st.integers(-16, 12),
    st.integers(0, 2),
)
def test_any_data(seed, k, mode, scale, kind):
    a, b = normal(8, k, seed=seed), normal(k, 18, seed=seed + 1)
    if kind == 1:
        a = a * (normal(8, k, seed=seed + 2) > 0.5)
    elif kind == 2:
        a[:, k // 2 :] = -a[:, : k - k // 2].flip(1)
        b[k // 2 :] = b[: k - k // 2].flip(0)
    assert_equals_reference(GemmSpec.of(f":e5m10{mode}"), quantize(a * 2.0**scale, "e5m10"), b)
