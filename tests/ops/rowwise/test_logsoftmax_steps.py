"""The logarithm of softmax against its definition, one number and one rounding at a time: each step, random bits too."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.formats import parse_cast
from gemmsim.ops.seeds import derive_seed
from gemmsim.reference import Row, row_sum

SEED = 11
#: Rows whose result the definition has to say by itself: hidden parts, a hidden row, infinities, NaN, zeros, one term.
SPECIAL_ROWS = [
    [0.5, -math.inf, 1.25, -math.inf, 3.0, -2.0, 0.0],
    [-math.inf] * 7,
    [1.0, math.inf, 0.0, -1.0, 2.0, 2.0, 2.0],
    [1.0, math.nan, 0.0, -1.0, 2.0, 2.0, 2.0],
    [0.0, -0.0, 0.0, -0.0, 0.0, 0.0, -0.0],
    [1e-40, -1e-40, 88.0, -88.0, 3e38, -3e38, 1.0],
]


class Steps:
    """The steps of one direction: number i draws what stream ``first + i`` of the seed gives."""

    def __init__(self, cast: str, first: int, order: int) -> None:
        self.cast, self.first, self.order = parse_cast(cast), first, order

    def row(self, step: int, index: int, cols: int = 1) -> Row:
        order = self.order if cols > 1 else 1
        return Row([self.cast], cols, order, index, seed=derive_seed(SEED, self.first + step))

    def sum(self, step: int, index: int, terms: list[float]) -> float:
        return row_sum(self.row(step, index, len(terms)), terms)


def forward(rows: list[list[float]], s: Steps) -> list[list[float]]:
    """y = c - log(sum of exp(c)), c = x - max."""
    found = []
    for i, x in enumerate(rows):
        top = math.nan if any(v != v for v in x) else max(x)
        at = [i * len(x) + k for k in range(len(x))]
        c = [s.row(0, n).add(v, -top, 0) for n, v in zip(at, x, strict=True)]
        e = [s.row(1, n).function("exp", v, 0.0, 0) for n, v in zip(at, c, strict=True)]
        total = s.row(3, i).function("log", s.sum(2, i, e), 0.0, 0)
        found.append([s.row(4, n).add(v, -total, 0) for n, v in zip(at, c, strict=True)])
    return found


def gradient(ys: list[list[float]], gs_: list[list[float]], s: Steps) -> list[list[float]]:
    """g - exp(y) t, t the sum of g."""
    found = []
    for i, (y, g) in enumerate(zip(ys, gs_, strict=True)):
        at = [i * len(y) + k for k in range(len(y))]
        total = s.sum(0, i, g)
        e = [s.row(1, n).function("exp", v, 0.0, 0) for n, v in zip(at, y, strict=True)]
        share = [s.row(2, n).mul(v, total, 0) for n, v in zip(at, e, strict=True)]
        found.append([s.row(3, n).add(v, -w, 0) for n, v, w in zip(at, g, share, strict=True)])
    return found


def randn(*shape: int, seed: int) -> torch.Tensor:
    return 3 * torch.randn(list(shape), generator=torch.Generator().manual_seed(seed))


def numbers(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).float()


@pytest.mark.parametrize("order", [1, 8])
@pytest.mark.parametrize(
    "cast", ["e5m10", "bf16", "e5m2/rtz", "e4m3/ru", "fixed(16,8)", "binary8p3", "bf16/ro", "e5m10/sr8", "e4m3/sr16"]
)
def test_every_step_is_the_definitions(cast, order):
    x = torch.cat([torch.tensor(SPECIAL_ROWS), randn(8, 7, seed=1)])
    g = randn(len(x), 7, seed=2)
    g[-1, 0], g[-2, 3], g[-3] = math.inf, math.nan, 0.0
    leaf = x.clone().requires_grad_()
    how = "sequential" if order == 1 else f"tree({order})"
    y = gs.qlogsoftmax(leaf, -1, cast, cast, order=how, seed=SEED)
    want = numbers(forward(x.tolist(), Steps(cast, 0, order)))
    assert_bitwise_equal(y.detach(), want, nan_is_nan=True, context=cast)
    (dx,) = torch.autograd.grad(y, leaf, g)
    grads = numbers(gradient(want.tolist(), g.tolist(), Steps(cast, 100, order)))
    assert_bitwise_equal(dx, grads, nan_is_nan=True, context=cast)
    assert want.isnan().any() and want.isfinite().any()
    assert want.isinf().any() or cast not in ("e5m10", "bf16")  # others have no infinity, or none survives


def test_other_dimensions_and_dtypes_are_the_same_rows():
    x = randn(3, 5, 4, seed=3).bfloat16()
    s = Steps("e5m2", 0, 1)
    rows = x.movedim(1, -1).reshape(-1, 5)
    want = numbers(forward(rows.tolist(), s)).reshape(3, 4, 5).movedim(-1, 1)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        found = gs.qlogsoftmax(x.to(dtype), 1, "e5m2", "e5m2")
        assert found.dtype == dtype
        assert_bitwise_equal(found.float().contiguous(), want.contiguous())
