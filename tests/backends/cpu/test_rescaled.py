"""Sums rounded by their bits wherever they lie, of values whose 2^emin is the least normal float (cutlass_kernels/cpu/tiles/nearest/rescaled.h)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cpu import any_operands, assert_equals_reference, assert_isas_agree, isas, normal

from gemmsim import quantize, reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

# To nearest even, toward zero, away, at random: of draws that floats hold whole and in part, of words of 32 bits.
NEAREST = [":e5m10", ":e4m3", ":e5m7", ":e6m9", ":e8m10", ":bf16", ":e2m4"]
MODES = ["/rtz", "/rna", "/ru", "/rd", "/sr4", "/sr12", "/sr16", "/sr20"]
SPECS = [
    *NEAREST, *[f":e5m10{m}" for m in MODES], ":e4m3/rtz", ":e4m3/rna", ":e4m3/ru", ":e4m3/rd", ":e4m3/sr8", ":e4m3/sr24", ":bf16/rtz", ":bf16/sr16", ":e8m2/sr3",
    ":e3m6/rtz", ":e5m12/rtz", ":e5m12/ru", ":e3m6/rd", ":e5m10/rtz, arithmetic=fp32",
    ":e5m10/sr12, arithmetic=fp32",
]  # fmt: skip


@pytest.mark.parametrize("rows, k, columns", [(8, 70, 33), (7, 33, 33), (16, 5, 32), (24, 130, 17), (8, 1, 31)])
@pytest.mark.parametrize("spec", SPECS)
def test_shapes(spec, rows, k, columns):
    assert_equals_reference(GemmSpec.of(spec), normal(rows, k, seed=k) / 4, normal(k, columns, seed=columns))


@pytest.mark.parametrize("rows, k, columns", [(128, 129, 32), (136, 300, 70), (264, 257, 33), (200, 2000, 32)])
@pytest.mark.parametrize(
    "spec",
    [
        ":e5m10",
        ":bf16",
        ":e5m10/rtz",
        ":e5m10/rna",
        ":e5m10/ru",
        ":e5m10/rd",
        ":e5m10/sr16",
        ":e5m10/sr12",
        ":e5m10/sr20",
    ],
)
def test_more_tiles_and_terms_than_go_together(spec, rows, k, columns):
    assert_isas_agree(spec, normal(rows, k, seed=k), normal(k, columns, seed=columns))


@pytest.mark.parametrize("scale", [-3, -6, -8, -10, -14, -20])
@pytest.mark.parametrize("spec", SPECS)
def test_small_sums_of_all_frequencies(spec, scale):
    """At last all are, and other kernels take over."""
    assert_equals_reference(
        GemmSpec.of(spec), normal(16, 150, seed=-scale) * 2.0**scale, normal(150, 16, seed=1 - scale)
    )


@pytest.mark.parametrize("spec, emin, bits", [(":e5m10{}", -14, 11), (":e4m3{}", -6, 4), (":bf16{}", -126, 8)])
@pytest.mark.parametrize("mode", ["", *MODES])
def test_sums_next_to_the_least_normal_number(spec, emin, bits, mode):
    """A row's sum is large, then small: anything beside 2^emin, its midpoints below and above, and the least subnormal; then large."""
    unit = 2.0 ** (emin - bits + 1)
    places = [0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 1.5, -1.5, 2.5, 0.5 + 2**-10, 0.5 - 2**-11, 2.0**-9]
    top = 2.0 ** (bits - 1)
    places += [
        top,
        -top,
        top - 0.5,
        top - 0.25,
        top - 1.5,
        -(top - 0.5),
        top + 0.5,
        top + 1.5,
        top - 2**-12,
        top + 2**-11,
    ]
    a, b = torch.zeros(24, 40), torch.ones(40, 33)
    b[:, 1::2] = -1.0
    for i, place in enumerate(places):
        a[i, i] = place * unit
        a[i, i + 1] = a[i, i] / 3
        a[i, 30:] = torch.tensor([1.0, 0.25, -0.125])[torch.arange(10) % 3] * 2.0 ** (emin + 4)
    assert_equals_reference(GemmSpec.of(spec.format(mode)), a, b)


@pytest.mark.parametrize(
    "spec", [":e5m10", ":bf16", ":e5m10/rtz", ":e5m10/rna", ":e5m10/ru", ":e5m10/rd", ":bf16/ru", ":bf16/rd", ":e5m10/sr12", ":e5m10/sr16",
     ":e5m2fnuz", ":e5m2fnuz/rtz"],
)  # fmt: skip
def test_signs_of_sums_that_became_zero(spec):
    """A negative sum that underflows is -0 where the format has it, and stays so while products are -0."""
    tiny = 2.0**-149 if "bf16" in spec else 2.0**-60
    a = torch.zeros(8, 600)
    a[6:] = 1.0  # as far as a guess goes, few sums are small
    for i in range(6):
        a[i, 570 + i] = tiny
    a[4:6, 595] = 1.0  # some sums go on
    b = torch.full((600, 16), -1.0)
    b[:, 1::3] = 1.0
    b[585::7, 2::3] = 1.0  # +0, which ends it
    assert_equals_reference(GemmSpec.of(spec), a, b)


@pytest.mark.parametrize("frequent", [False, True])
@pytest.mark.parametrize("spec, bits", [(":e5m10", 11), (":bf16", 8), (":e4m3", 4)])
def test_midpoints(spec, bits, frequent):
    """Sums on midpoints and next to them, whose exact sums lie on both sides of what float32 has; seldom, and at every other step."""
    g, register = torch.Generator().manual_seed(bits), GemmSpec.of(spec)
    a, b = normal(16, 120, seed=bits), normal(120, 17, seed=1)
    a[:, 0], b[0] = 1.5, 1.0
    for k in range(3, 120, 2 if frequent else 17):
        s = torch.tensor(reference.gemm(a[:, :k].tolist(), b[:k, :1].tolist(), register))[:, 0].double()
        b[k, 0] = (1.0, 1 + 2.0**-23, 1 - 2.0**-24)[k % 3]
        a[:, k] = (
            torch.exp2(torch.frexp(s)[1].double() - 1 - bits) * torch.where(torch.rand(16, generator=g) < 0.5, -1, 1)
        ).float()
    assert_equals_reference(register, a, b)


@pytest.mark.parametrize("exponents", [(0, -40), (-40, 0), (-60, 40), (-100, 90), (-120, 100), (40, -140), (-70, -60)])
@pytest.mark.parametrize("spec", [":e5m10", ":e5m10/rtz", ":e5m10/sr16"])
def test_operands_that_can_and_cannot_be_sunk(spec, exponents):
    a, b = normal(8, 60, seed=5), normal(60, 16, seed=6)
    assert_equals_reference(GemmSpec.of(spec), a * 2.0 ** exponents[0], b * 2.0 ** exponents[1])


@pytest.mark.parametrize("emin", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("mode", ["", "/rtz", "/sr4", ", arithmetic=fp32"])
def test_formats_whose_least_normal_number_is_large(mode, emin):
    """Panels would be sunk by all that floats hold, or by more."""
    a, b = normal(8, 40, seed=7), normal(40, 17, seed=8)
    assert_equals_reference(GemmSpec.of(f":float(p=4, emin={emin}, emax=60){mode}"), a * 2.0**24, b)


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("spec", [":e5m10", ":e5m10/rtz", ":e5m10/sr16"])
def test_specials_and_overflow_take_other_kernels(spec, special):
    a, b = normal(8, 60, seed=5), normal(60, 16, seed=6)
    a[3, 20] = special
    a[5] *= 1e4
    assert_equals_reference(GemmSpec.of(spec), a, b)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("spec", [":e5m10", ":e5m10/rtz", ":e5m10/sr16", ":bf16/rtz"])
def test_the_callers_float_state(spec, flush):
    """Threads that flush subnormals get the same sums, and flush them after as before."""
    a, b = normal(8, 200, seed=1) * 2.0**-8, normal(200, 32, seed=2) * 2.0**-5
    cpu.set_isa(isas()[0])
    want, got, tiny = torch.empty(8, 32), torch.empty(8, 32), torch.tensor([1e-39])
    cpu.gemm(a, b, GemmSpec.of(spec), want, 0)
    torch.set_flush_denormal(flush)
    try:
        cpu.gemm(a, b, GemmSpec.of(spec), got, 0)
        flushes = (tiny * 0.5).item() == 0
    finally:
        torch.set_flush_denormal(False)
    assert_bitwise_equal(got, want, context=spec)
    assert flushes == flush


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 90), st.sampled_from(SPECS), st.integers(-16, 2), st.integers(0, 4))
def test_any_data(seed, k, spec, scale, kind):
    a, b = any_operands(seed, k, kind)
    if kind == 4:
        a, b = quantize(a, "e4m3"), quantize(b, "e3m2")
    assert_equals_reference(GemmSpec.of(spec), a * 2.0**scale, b)
