"""Rows that the float lanes may not compute: one number of one operand is outside their ground, its neighbours are not.

The lanes notice such rows and leave them to the doubles (rows_narrow.cpp); float64 tensors never reach the lanes. Fails if
results beyond a format, masks or numbers of more bits go unnoticed. Data out of range is looked for before the steps as
well: that only saves the attempt, because the steps notice it, too.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from torch import Tensor

from gemmsim.ops.rowwise.operators import row_norm_grad_op, row_norm_op, row_softmax_grad_op, row_softmax_op, row_sum_op

ROWS, COLS = 19, 21  # more than sixteen rows, columns beyond whole vectors
INF, NAN = float("inf"), float("nan")
#: Both ends of the ground, just inside and just outside; what float32 has besides.
ODD = [
    2.0**60,
    2.0**60 + 2.0**37,
    2.0**-60,
    2.0**-60 - 2.0**-84,
    2.0**-61,
    2.0**-126,
    2.0**-149,
    1e38,
    INF,
    -INF,
    NAN,
    -0.0,
]
FORMATS = ["e5m10", "e5m10/sat", "e4m3", "e6m13", "fixed(14,6,symmetric)"]


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half().float()


def with_one(t: Tensor, number: float, column: int) -> Tensor:
    """``number`` in the second row (or the only one) at ``column``."""
    changed = t.clone()
    changed.view(-1, t.shape[-1])[min(1, t.dim() - 1), column] = number
    return changed


def softmax(x: Tensor, y: Tensor, g: Tensor, fmt: str) -> list[Tensor]:
    casts = ";".join([fmt] * 4)
    return [row_softmax_op(x, casts, 1, False, None, 0), row_softmax_grad_op(y, g, casts, 8, None, 0)]


def norm(x: Tensor, w: Tensor, b: Tensor, fmt: str) -> list[Tensor]:
    return [*row_norm_op(x, w, b, ";".join([fmt] * 12), 1e-5, 1, True, None, 0), row_sum_op(x, fmt, 1, None, 0)]


def norm_grad(x: Tensor, w: Tensor, m: Tensor, r: Tensor, g: Tensor, fmt: str) -> list[Tensor]:
    return [*row_norm_grad_op(x, w, m, r, g, ";".join([fmt] * 13), 1, True, None, 0)]


def operands(function) -> list[Tensor]:
    if function is softmax:
        return [2 * numbers(0, ROWS, COLS), numbers(1, ROWS, COLS).abs(), numbers(2, ROWS, COLS)]
    if function is norm:
        return [numbers(3, ROWS, COLS), numbers(4, COLS), numbers(5, COLS)]
    return [
        numbers(6, ROWS, COLS),
        numbers(7, COLS),
        numbers(8, ROWS) / 4,
        numbers(9, ROWS).abs(),
        numbers(10, ROWS, COLS),
    ]


def check(function, tensors: list[Tensor], fmt: str, context: object) -> None:
    got, want = function(*tensors, fmt), function(*[t.double() for t in tensors], fmt)
    for g, w in zip(got, want, strict=True):
        assert_bitwise_equal(g, w.float(), nan_is_nan=True, context=f"{fmt} {context}")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("function", [softmax, norm, norm_grad], ids=lambda f: f.__name__)
def test_one_number_outside_the_ground(function, fmt):
    tensors = operands(function)
    for which, operand in enumerate(tensors):
        for number in ODD:
            for column in (3, COLS - 1):
                changed = list(tensors)
                changed[which] = with_one(operand, number, min(column, operand.shape[-1] - 1))
                check(function, changed, fmt, (which, number, column))


@pytest.mark.parametrize("fmt", ["e4m3", "e4m3/sat", "e5m10", "e5m10/sat", "e3m4", "fixed(8,4,symmetric)"])
@pytest.mark.parametrize("function", [softmax, norm, norm_grad], ids=lambda f: f.__name__)
def test_results_beyond_the_format(function, fmt):
    """Ordinary numbers whose differences, products, quotients or sums are too large for a step."""
    for scale in (2.0**3, 2.0**7, 2.0**13, 2.0**30):
        for which, operand in enumerate(operands(function)):
            tensors = operands(function)
            tensors[which] = operand * scale
            check(function, tensors, fmt, (which, scale))


@pytest.mark.parametrize(
    "offset", ["e5m10", "e5m10/sat", "e4m3", "e4m3/sat", "e3m4", "e3m4/sat", "fixed(14,6,symmetric)"]
)
def test_masked_rows(offset):
    """-inf among numbers, beside the largest ones of the ground, beside NaN and +inf, alone; formats too short for it."""
    hidden = torch.ones(ROWS, COLS, dtype=torch.bool).triu(1)  # the first row: one number
    for scale in (1.0, 64.0, 2.0**19, 2.0**21, 2.0**40, 2.0**100):
        for extra in (None, NAN, INF, 2.0**61, -(2.0**61), 2.0**-70):
            x = (scale * numbers(11, ROWS, COLS)).masked_fill(hidden, -INF)
            x = x if extra is None else with_one(x, extra, 0)
            for rest in ("e5m10", "e4m3"):
                casts = f"{offset};{rest};{rest};{rest}"
                got = row_softmax_op(x, casts, 1, False, None, 0)
                want = row_softmax_op(x.double(), casts, 1, False, None, 0).float()
                assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{casts} {scale} {extra}")


@pytest.mark.parametrize("number", [0.5, 2.0**40, -(2.0**40), 2.0**59, 2.0**62, INF, NAN])
def test_one_number_among_masked_ones(number):
    """Beside 2^40, the number that would stand in for -inf is 2^40 itself; two rows have no number at all."""
    x = torch.full((2 * ROWS, COLS), -INF)
    x[:16, 5], x[18:, 0] = number, number
    casts = "e5m10;e5m10;e5m10;e5m10"
    want = row_softmax_op(x.double(), casts, 1, False, None, 0).float()
    assert_bitwise_equal(row_softmax_op(x, casts, 1, False, None, 0), want, nan_is_nan=True)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_of_more_bits_than_the_format(sign):
    """1 + 2^-11 + 2^-34 is above a tie of e5m10; the nearest of 24 bits is the tie."""
    x = torch.zeros(ROWS, COLS)
    x[2, :2] = sign * torch.tensor([1.0, 2.0**-11 + 2.0**-34])
    assert row_sum_op(x, "e5m10", 1, None, 0)[2] == sign * (1 + 2.0**-10)
    check(norm, [x, *operands(norm)[1:]], "e5m10", "norm")
    x[2, :2] = torch.tensor([1.0, -(2.0**-11) - 2.0**-34])
    check(softmax, [x, *operands(softmax)[1:]], "e5m10", "softmax")
    mean = torch.full((ROWS,), -1.0)
    tensors = operands(norm_grad)
    check(norm_grad, [-x, tensors[1], mean, *tensors[3:]], "e5m10", "norm_grad")
