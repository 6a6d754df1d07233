"""Terms that cannot lead to midpoints, by their lowest set bits (cutlass_kernels/cpu/tiles/nearest/midpoint_filter.h)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cpu import assert_equals_reference, assert_isas_agree, isas, normal, shortened

from gemmsim import quantize, reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

FORMATS = [("e5m10", 11, -14), ("e4m3", 4, -6), ("e5m7", 8, -14), ("e6m9", 10, -30), ("e3m12", 13, -2)]


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("name, bits, emin", FORMATS)
def test_one_midpoint_in_one_place_of_a_tile(name, bits, emin, first):
    """Every ninth term leads one sum to a midpoint: whichever row, column and term of a vector it is. Others have all bits."""
    register, terms = GemmSpec.of(f":{name}"), 70
    a, b = normal(8, terms, seed=first) * 2.0**-3, normal(terms, 32, seed=bits)
    for n, k in enumerate(range(first + 1, terms, 9)):
        row, column = (n + first) % 8, (5 * n + 11 * first) % 32
        s = reference.gemm(a[row : row + 1, :k].tolist(), b[:k, column : column + 1].tolist(), register)[0][0]
        exponent = max(torch.frexp(torch.tensor(s, dtype=torch.float64))[1].item() - 1, emin)
        share = 2.0 ** ((n % 3 - 1) * 4)
        b[k, column] = share * (1, 3, 5)[n % 3]
        a[row, k] = (-1) ** n * 2.0 ** (exponent - bits) / share
    a = torch.cat([a, normal(16, terms, seed=1)])  # fewer rows go without lowest bits
    assert_equals_reference(register, a, b)


@pytest.mark.parametrize("below", [0, 1, 2])
@pytest.mark.parametrize(
    "name, bits, emin, scale",
    [
        ("e5m10", 11, -14, 0),
        ("e5m7", 8, -14, 0),
        ("e6m9", 10, -30, -3),
        ("float(p=12, emin=-20, emax=60)", 12, -20, -1),
    ],
)
def test_lowest_bits_at_half_the_quantum_and_below(name, bits, emin, scale, below):
    """A row of each panel is zero but for a product that is an odd multiple of half the quantum, or of less.

    Few sums are small: more would take other kernels.
    """
    rows, terms = 64, 100
    a, b = normal(rows, terms, seed=below) * 2.0**scale, normal(terms, 33, seed=bits) * 2.0**scale
    for n, row in enumerate(range(3, rows, 8)):
        k, share = 5 + 12 * n, 2.0 ** ((emin - bits) // 2 + n % 2)
        a[row], b[k] = 0, 0
        a[row, k] = (1, 3, -5, 7)[n % 4] * share
        b[k, 4 * n + 1] = (1, -3)[n // 4] * 2.0 ** (emin - bits - below) / share
    assert_equals_reference(GemmSpec.of(f":{name}"), a, b)


@pytest.mark.parametrize(
    "rows, k, columns", [(24, 15, 31), (27, 16, 32), (130, 17, 33), (264, 129, 65), (300, 513, 40)]
)
@pytest.mark.parametrize("share", [0.0, 0.002, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("spec", [":e5m10", ":e4m3", ":e6m9", ":e5m10/sat"])
def test_some_numbers_are_short(spec, rows, k, columns, share):
    a, b = shortened(normal(rows, k, seed=k), share, 1), shortened(normal(k, columns, seed=columns), share, 2)
    assert_isas_agree(spec, a / 4, b)


@pytest.mark.parametrize("spec", [":e5m10", ":e4m3"])
@pytest.mark.parametrize(
    "where", ["first columns", "last columns", "first rows", "last rows", "first terms", "last terms"]
)
def test_data_that_change_within_a_product(spec, where):
    """What is true of the first tile and the first terms is not of all."""
    a, b = normal(300, 300, seed=1) / 4, normal(300, 600, seed=2)
    part = slice(None, 200) if where.startswith("first") else slice(-200, None)
    if "columns" in where:
        b[:, part] = quantize(b[:, part].contiguous(), "e4m3")
        a = shortened(a, 0.5, 3)
    elif "rows" in where:
        a[part] = quantize(a[part].contiguous(), "e5m2")
    else:
        a[:, part], b[part] = quantize(a[:, part].contiguous(), "e5m10"), quantize(b[part].contiguous(), "e4m3")
    assert_isas_agree(spec, a, b)


@pytest.mark.parametrize("value", [0.0, -0.0, 2.0**-149, -(2.0**-127), 2.0**-126, 1.0, -2.0, 2.0**20, 3 * 2.0**-24])
def test_numbers_of_few_bits_among_others(value):
    """Zeros have no lowest bit, subnormal numbers none that counts, powers of two themselves."""
    a, b = normal(24, 80, seed=1) / 64, normal(80, 32, seed=2) / 8
    a[3, 7::10] = value
    b[4::10, 5] = value
    assert_equals_reference(GemmSpec.of(":e5m10"), a, b)


@pytest.mark.parametrize("scale", [-140, -100, -60, -30, -12, 0, 6, 12])
@pytest.mark.parametrize("name, bits, emin", FORMATS)
def test_operands_of_all_sizes(name, bits, emin, scale):
    a, b = shortened(normal(24, 100, seed=3), 0.1, 4) * 2.0**scale, normal(100, 20, seed=4)
    assert_equals_reference(GemmSpec.of(f":{name}"), a, b)


def test_threads_and_batches_have_their_own_lowest_bits():
    """Products enough for a batch of them per thread, and one of many blocks."""
    spec = GemmSpec.of(":e5m10")
    for shape in [(40, 24, 70, 40), (1, 700, 130, 200)]:
        batch, rows, k, columns = shape
        a = shortened(normal(batch, rows, k, seed=5), 0.05, 6) / 4
        b = shortened(normal(batch, k, columns, seed=6), 0.05, 7)
        outs = {}
        for name in isas():
            cpu.set_isa(name)
            before = torch.get_num_threads()
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                outs[name, threads] = torch.empty(batch, rows, columns)
                cpu.gemm(a, b, spec, outs[name, threads], 0)
            torch.set_num_threads(before)
        for what, out in outs.items():
            assert_bitwise_equal(out, outs["baseline", 1], context=f"{shape}, {what}")


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 90),
    st.sampled_from(FORMATS),
    st.integers(-16, 4),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_any_data(seed, k, form, scale, share):
    a, b = shortened(normal(24, k, seed=seed), share, seed), shortened(normal(k, 18, seed=seed + 1), share, seed + 2)
    assert_equals_reference(GemmSpec.of(f":{form[0]}"), a * 2.0**scale, b)
