"""Tiles beside and below one another whose small sums the processor's flags tell of (cutlass_kernels/cpu/tiles/nearest/multi_tile.h)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cpu import any_operands, assert_equals_reference, normal

from gemmsim.arithmetic import GemmSpec

# Rounded after the carrier's own sums: because it is asked for, because products are short, because all is on a grid.
SPECS = [":e5m10, arithmetic=fp32", ":bf16, arithmetic=fp32", ":e4m3, arithmetic=fp32", ":e8m2, arithmetic=fp32",
         ":e6m13, arithmetic=fp32", "e4m3 : e5m10", "e5m2 : e5m10", "e2m1 : e5m4"]  # fmt: skip


@pytest.mark.parametrize(
    "rows, k, columns", [(8, 70, 16), (7, 33, 33), (16, 5, 32), (24, 64, 48), (31, 40, 17), (40, 9, 80), (8, 1, 31)]
)
@pytest.mark.parametrize("spec", SPECS)
def test_shapes(spec, rows, k, columns):
    """Whole and broken tiles, one, two and three below one another, odd and even numbers of panels."""
    assert_equals_reference(GemmSpec.of(spec), normal(rows, k, seed=k), normal(k, columns, seed=columns))


@pytest.mark.parametrize("k, columns", [(3, 16), (64, 48), (129, 33)])
@pytest.mark.parametrize("rows", [8, 16, 24, 48])
def test_the_carriers_own_register(rows, k, columns):
    """Sums that no format rounds, of any numbers, in one panel at a time and in two."""
    a, b = normal(rows, k, seed=k), normal(k, columns, seed=columns)
    assert_equals_reference(GemmSpec.of(":fp32"), a, b)
    a[1, 0], a[2, k // 2], b[k - 1, 3], b[0, 5] = torch.inf, torch.nan, -torch.inf, 3e38
    a[5], b[:, 7] = -0.0, 1e-40
    assert_equals_reference(GemmSpec.of(":fp32"), a, b)


@pytest.mark.parametrize("scale", [-3, -6, -8, -10, -14, -20])
@pytest.mark.parametrize("spec", SPECS)
def test_small_sums_of_all_frequencies(spec, scale):
    a, b = normal(16, 150, seed=-scale), normal(150, 16, seed=1 - scale)
    assert_equals_reference(GemmSpec.of(spec), a * 2.0**scale, b)


@pytest.mark.parametrize(
    "spec, emin", [(":e5m10, arithmetic=fp32", -14), (":e4m3, arithmetic=fp32", -6), ("e5m2 : e4m7", -6)]
)
def test_one_small_sum_in_each_row(spec, emin):
    """A row's sum is large, at term k small, and large again; k is anywhere in a look, and the small sum anything next to 2^emin."""
    rows, terms = 24, 300
    smalls = [0.0, 1.0, -1.0, 1 + 2**-9, 1 - 2**-9, 0.5, 0.75 + 2**-12, -(1 - 2**-20), 2**-30, 1 - 2**-24]
    where = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 39, 40, 63, 64, 100, 103, 104, 167, 168, 231, 232, 297, 298]
    a, b = torch.zeros(rows, terms), torch.ones(terms, 16)
    b[:, 1::2] = -1.0
    for i, k in enumerate(where):
        small = smalls[i % len(smalls)] * 2.0**emin
        a[i, k] = small
        a[i, k + 1 :] = torch.tensor([1.0, 0.25, -0.125])[torch.arange(terms - k - 1) % 3]
    assert_equals_reference(GemmSpec.of(spec), a, b)


@pytest.mark.parametrize("spec", [":e5m10, arithmetic=fp32", ":bf16, arithmetic=fp32", ":e5m2fnuz, arithmetic=fp32"])
def test_signs_of_sums_that_became_zero(spec):
    """A negative sum that underflows is -0 where the format has it, and stays so while products are -0."""
    tiny = 2.0**-60 if "bf16" not in spec else 2.0**-149
    a = torch.zeros(8, 600)
    for i in range(8):
        a[i, 570 + i] = tiny  # late: another kernel takes tiles of which too many terms are computed again
    a[4:, 595] = 1.0  # some sums go on
    b = torch.full((600, 16), -1.0)
    b[:, 1::3] = 1.0
    b[585::7, 2::3] = 1.0  # +0, which ends it
    assert_equals_reference(GemmSpec.of(spec), a, b)


@pytest.mark.parametrize("exponents", [(0, -40), (-40, 0), (-60, 40), (-100, 90), (-120, 100), (40, -140), (-70, -60)])
def test_operands_that_can_and_cannot_be_sunk(exponents):
    """The power of two that brings 2^emin to the least normal float is shared by both operands as their smallest elements allow."""
    a, b = normal(8, 60, seed=5), normal(60, 16, seed=6)
    assert_equals_reference(GemmSpec.of(":e5m10, arithmetic=fp32"), a * 2.0 ** exponents[0], b * 2.0 ** exponents[1])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 90), st.sampled_from(SPECS), st.integers(-16, 2), st.integers(0, 3))
def test_any_data(seed, k, spec, scale, kind):
    a, b = any_operands(seed, k, kind)
    assert_equals_reference(GemmSpec.of(spec), a * 2.0**scale, b)
