"""Runs of an order of summation whose sums are cut by their bits, a tile at a time (cutlass_kernels/cpu/product/summation_orders.h)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cpu import any_operands, assert_equals_reference, assert_isas_agree, normal, shortened

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec

ORDERS = [
    "chunked(64, {})",
    "chunked(33, {})",
    "interleaved(2, {})",
    "interleaved(2, {}, combine=pairwise)",
    "pairwise({}, 32)",
    "splitk(2, {}, {})",
    "shuffled({}, 5)",
    "chunked(100, chunked(40, {}))",
    "interleaved(2, chunked(32, {}))",
]
REGISTERS = ["e5m10", "e4m3", "e6m9", "bf16", "e5m10/rtz", "e5m10/rna", "e5m10/sr4", "e5m10/sr16", "e5m10/sat"]


@pytest.mark.parametrize("rows, k, columns", [(8, 100, 33), (7, 129, 16), (24, 70, 17)])
@pytest.mark.parametrize("register", REGISTERS)
@pytest.mark.parametrize("order", ORDERS)
def test_orders(order, register, rows, k, columns):
    a, b = shortened(normal(rows, k, seed=k), 0.01, 1) / 4, normal(k, columns, seed=columns)
    assert_equals_reference(GemmSpec.of(":" + order.replace("{}", register)), a, b, seed=k)


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("name, bits", [("e5m10", 11), ("e5m7", 8)])
def test_midpoints_in_all_runs(name, bits, first):
    """Every ninth term leads one sum of its run to a midpoint; others have all bits."""
    register, terms, run = GemmSpec.of(f":{name}"), 120, 40
    a, b = normal(8, terms, seed=first) * 2.0**-3, normal(terms, 32, seed=bits)
    for n, k in enumerate(range(first + 1, terms, 9)):
        row, column, begin = (n + first) % 8, (5 * n + 11 * first) % 32, k // run * run
        if k == begin:
            continue
        s = reference.gemm(a[row : row + 1, begin:k].tolist(), b[begin:k, column : column + 1].tolist(), register)
        exponent = torch.frexp(torch.tensor(s[0][0], dtype=torch.float64))[1].item() - 1
        b[k, column] = 1.0
        a[row, k] = (-1) ** n * 2.0 ** (exponent - bits)
    a = torch.cat([a, normal(16, terms, seed=1)])  # fewer rows go without lowest bits
    assert_equals_reference(GemmSpec.of(f":chunked({run}, {name})"), a, b)


@pytest.mark.parametrize("register", REGISTERS)
@pytest.mark.parametrize("order", ORDERS)
def test_many_tiles(order, register):
    assert_isas_agree(
        ":" + order.replace("{}", register), shortened(normal(200, 300, seed=1), 0.02, 3), normal(300, 70, seed=2)
    )


@pytest.mark.parametrize("register", ["e5m10", "e5m10/rtz", "e5m10/rna", "e5m10/sr12"])
@pytest.mark.parametrize("order", ["chunked(40, {})", "interleaved(3, {})", "pairwise({}, 32)", "splitk(4, {}, fp32)"])
@pytest.mark.parametrize("where", ["first columns", "last columns", "first rows", "last rows", "last terms"])
def test_small_sums_that_a_guess_does_not_expect(order, register, where):
    """Where too many are found, the tile is computed again, of panels that are not sunk any more, and so are those after it."""
    a, b = normal(160, 200, seed=1), normal(200, 160, seed=2)
    part = slice(None, 90) if where.startswith("first") else slice(-90, None)
    if "columns" in where:
        b[:, part] *= 2.0**-16
    elif "rows" in where:
        a[part] *= 2.0**-17
        a[0], a[-1], a[::8] = 1.0, 1.0, 1.0  # rows of which the guess is made
    else:
        b[part] *= 2.0**-9
        a[:, part] *= 2.0**-9
    assert_isas_agree(":" + order.replace("{}", register), a, b)


@pytest.mark.parametrize("special", [torch.inf, torch.nan, 1e30])
@pytest.mark.parametrize("order", ORDERS)
def test_specials_and_overflow(order, special):
    a, b = normal(16, 80, seed=5), normal(80, 16, seed=6)
    a[3, 20] = special
    assert_equals_reference(GemmSpec.of(":" + order.replace("{}", "e5m10")), a, b)


@pytest.mark.parametrize("totals", ["fp32", "e5m7/rtz", "e5m10/sr8", "e4m3/sat"])
def test_totals_of_another_format(totals):
    spec = f":splitk(2, e5m10, {totals})"
    assert_equals_reference(GemmSpec.of(spec), normal(16, 90, seed=1), normal(90, 18, seed=2), seed=4)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(1, 140), st.sampled_from(ORDERS), st.sampled_from(REGISTERS), st.integers(-16, 2), st.integers(0, 3)
)  # fmt: skip
def test_any_data(seed, k, order, register, scale, kind):
    a, b = any_operands(seed, k, kind)
    assert_equals_reference(GemmSpec.of(":" + order.replace("{}", register)), a * 2.0**scale, b, seed=seed)
