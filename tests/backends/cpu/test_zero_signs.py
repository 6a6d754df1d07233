"""The sign of a sum that is zero: -0 where every term is a negative product below the format, else +0.

The kernels of short pairs and of chunks (cutlass_kernels/cpu/tiles/short_runs/short_runs.h) leave signs of zeros out and settle them at the end.
Rows of A are made of products that underflow, with and without one term that decides otherwise.
"""

from __future__ import annotations

import pytest
import torch
from support.cpu import assert_equals_reference

from gemmsim import GemmSpec, reference

#: A format, and exponents of a and b whose product is below half of its smallest number; kernels differ by format.
CASES = [
    ("e5m10", -20, -6),
    ("e4m3", -8, -4),
    ("e8m7", -80, -70),
    ("fp32", -90, -70),
    ("e6m9", -40, -12),
    ("binary8p3", -20, -20),
    ("e5m10/ftz", -20, -6),
    ("e5m10/rd", -20, -6),
    ("e5m10/ru", -20, -6),  # where a sum of two -0 in another mode than nearest may lose its sign
    ("e4m3/ru/sat", -8, -4),
    ("e11m40", -600, -540),
]
ORDERS = [
    *(f"pairwise({{f}}, {leaf})" for leaf in (1, 2, 3, 4, 5)),
    *(f"chunked({n}, {{f}})" for n in (1, 2, 3, 4, 8, 16)),
    *(f"interleaved({lanes}, {{f}}, combine=pairwise)" for lanes in (5, 9, 24)),
    "interleaved(9, {f})",
    "chunked(16, pairwise({f}))",
    "pairwise(chunked(2, {f}), 8)",
]
KS = (1, 2, 7, 8, 9, 16, 33)


def operands(k: int, ea: int, eb: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows: underflow below zero in every term; then one term that is positive, zero, -0, or a pair that cancels."""
    tiny = -(2.0**ea)
    rows = [[tiny] * k for _ in range(11)]
    for row, (place, value) in enumerate([(k - 1, -tiny), (0, -tiny), (k // 2, 0.0), (k - 1, -0.0), (0, 0.0)], 1):
        rows[row][place] = value
    rows[6] = [0.0] * k
    rows[7] = [-0.0] * k
    rows[8] = [-tiny] * k
    if k > 1:
        rows[9][0], rows[9][1] = 2.0 ** (-eb), -(2.0 ** (-eb))  # 1 - 1
        rows[10][k - 2], rows[10][k - 1] = -(2.0 ** (-eb)), 2.0 ** (-eb)
    b = torch.full((k, 35), 2.0**eb, dtype=dtype)
    b[:, 1] = 0.0
    b[:, 2] = -(2.0**eb)
    b[k // 3, 3] = 0.0
    b[k - 1, 4] = -(2.0**eb)
    b[0, 34] = -0.0
    return torch.tensor(rows, dtype=dtype), b


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt,ea,eb", CASES)
def test_zeros_have_the_references_signs(fmt, ea, eb, order):
    dtype = torch.float64 if fmt == "e11m40" else torch.float32
    for tail in ("", ", arithmetic=fp32") if dtype == torch.float32 else ("",):
        spec = GemmSpec.of(f" : {order.format(f=fmt)}{tail}")
        for k in KS:
            assert_equals_reference(spec, *operands(k, ea, eb, dtype))


@pytest.mark.parametrize("order", ORDERS)
def test_with_products_rounded_by_themselves(order):
    run = "sequential(e5m10, mul=e5m12)"
    spec = GemmSpec.of(f" : {order.format(f=run)}")
    for k in KS:
        assert_equals_reference(spec, *operands(k, -20, -6, torch.float32))


def test_the_rows_do_what_they_are_for():
    a, b = operands(9, -20, -6, torch.float32)
    signs = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(" : pairwise(e5m10)"))).signbit()
    assert signs[0, 0] and not signs[1:8, 0].any() and signs[8, 2] and not signs[9:, 0].any()
