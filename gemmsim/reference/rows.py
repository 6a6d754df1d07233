"""Row operations by their definition (docs/reference/functional.md), one number at a time, in fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ..formats import FP32, Cast
from .dyadic import NAN
from .functions import apply_function
from .philox import element_draw
from .rounding import round_value

__all__ = ["Row", "row_log_softmax", "row_norm", "row_norm_grad", "row_softmax", "row_softmax_grad", "row_sum"]

#: Philox site of the first step; step i draws at SITE + i.
SITE = 64
_GROUP = 32


@dataclass
class Row:
    """A row of ``cols`` numbers whose steps round to ``casts`` (None: float32); ``order`` is that of its sums.

    Example:
        >>> gs.reference.row_sum(gs.reference.Row([gs.formats.parse_cast("bf16")], cols=300), [1.0] * 300)
        256.0
    """

    casts: Sequence[Cast | None]
    cols: int
    order: int = 1
    row: int = 0
    seed: int = 0
    carrier: Cast = field(default_factory=lambda: Cast(FP32))

    def _how(self, step: int, k: int) -> tuple[Cast, int | None]:
        cast = self.casts[step] or self.carrier
        if not cast.is_stochastic:
            return cast, None
        index = self.row * (self.cols + (self.order if self.order > 1 else 0)) + k
        return cast, element_draw(self.seed, index, SITE + step, cast.rounding.bits)

    def round(self, x: float | Fraction, step: int, k: int = 0) -> float:
        cast, draw = self._how(step, k)
        return round_value(x, cast, draw)

    def add(self, x: float, y: float, step: int, k: int = 0) -> float:
        total = x + y
        if not math.isfinite(x) or not math.isfinite(y) or (x == 0 and y == 0):
            return self.round(total, step, k)
        exact = Fraction(x) + Fraction(y)
        return self.round(exact if exact else 0.0, step, k)

    def mul(self, x: float, y: float, step: int, k: int = 0) -> float:
        if not math.isfinite(x) or not math.isfinite(y) or x == 0 or y == 0:
            return self.round(x * y, step, k)
        return self.round(Fraction(x) * Fraction(y), step, k)

    def div(self, x: float, y: float, step: int, k: int = 0) -> float:
        if math.isnan(x) or math.isnan(y):
            return self.round(NAN, step, k)
        if y == 0 and math.isfinite(x):
            sign = math.copysign(1.0, x) * math.copysign(1.0, y)
            return self.round(NAN if x == 0 else sign * math.inf, step, k)
        if not math.isfinite(x) or not math.isfinite(y) or x == 0:
            return self.round(x / y if y else math.copysign(1.0, y) * x, step, k)
        return self.round(Fraction(x) / Fraction(y), step, k)

    def root(self, x: float, step: int, k: int = 0) -> float:
        if math.isnan(x) or x < 0:
            return self.round(NAN, step, k)
        if x == 0 or math.isinf(x):
            return self.round(x, step, k)
        scaled = Fraction(x) * Fraction(4) ** 400
        whole = math.isqrt(scaled.numerator // scaled.denominator)
        exact = Fraction(whole, 1) if whole * whole == scaled else Fraction(2 * whole + 1, 2)
        return self.round(exact / Fraction(2) ** 400, step, k)

    def function(self, name: str, x: float, y: float, step: int, k: int = 0) -> float:
        cast, draw = self._how(step, k)
        return apply_function(name, x, y, cast, draw)


def row_sum(row: Row, terms: Sequence[float], step: int = 0) -> float:
    """The sum of ``terms`` in the row's order: 1 is ascending, n is the tree of n parts.

    Example:
        >>> bf16 = gs.formats.parse_cast("bf16")
        >>> [gs.reference.row_sum(gs.reference.Row([bf16], 300, order), [1.0] * 300) for order in (1, 8)]
        [256.0, 300.0]
    """
    if row.order <= 1:
        total = 0.0
        for k, term in enumerate(terms):
            total = row.add(total, term, step, k)
        return total
    parts = [0.0] * row.order
    for k, term in enumerate(terms):
        parts[k % row.order] = row.add(parts[k % row.order], term, step, k)
    at = len(terms)
    totals = []
    for first in range(0, row.order, _GROUP):
        group = parts[first : first + _GROUP]
        while len(group) > 1:
            half = len(group) // 2
            group = [row.add(group[i], group[i + half], step, at + i) for i in range(half)]
            at += half
        totals.append(group[0])
    result = totals[0]
    for other in totals[1:]:
        result = row.add(result, other, step, at)
        at += 1
    return result


def _largest(x: Sequence[float]) -> float:
    return NAN if any(v != v for v in x) else max(x)


def row_softmax(row: Row, x: Sequence[float]) -> list[float]:
    """exp(x - max) over their sum; casts: difference, exponential, sum, quotient.

    Example:
        >>> row = gs.reference.Row(4 * [gs.formats.parse_cast("e4m3")], cols=3)
        >>> gs.reference.row_softmax(row, [1.0, 2.0, 3.0])
        [0.09375, 0.25, 0.6875]
    """
    top = _largest(x)
    e = [row.function("exp", row.add(v, -top, 0, k), 0.0, 1, k) for k, v in enumerate(x)]
    total = row_sum(row, e, 2)
    return [row.div(v, total, 3, k) for k, v in enumerate(e)]


def row_log_softmax(row: Row, x: Sequence[float]) -> list[float]:
    """exp(o - l), l the logarithm of the sum; casts: difference, difference from l, logarithm, result.

    Example:
        >>> row = gs.reference.Row(4 * [gs.formats.parse_cast("bf16")], cols=3)
        >>> gs.reference.row_log_softmax(row, [1.0, 2.0, 3.0])
        [0.09033203125, 0.2451171875, 0.6640625]
    """
    top = _largest(x)
    o = [row.add(v, -top, 0, k) for k, v in enumerate(x)]
    total = o[0]
    for k in range(1, len(o)):
        total = row.function("log_add", total, o[k], 2, k)
    return [row.function("exp", row.add(v, -total, 1, k), 0.0, 3, k) for k, v in enumerate(o)]


def row_softmax_grad(row: Row, y: Sequence[float], g: Sequence[float]) -> list[float]:
    """(g - w) y with w the sum of y g; casts: product, sum, difference, result.

    Example:
        >>> row = gs.reference.Row(4 * [gs.formats.parse_cast("bf16")], cols=2)
        >>> gs.reference.row_softmax_grad(row, [0.25, 0.75], [1.0, 0.0])
        [0.1875, -0.1875]
    """
    w = row_sum(row, [row.mul(a, b, 0, k) for k, (a, b) in enumerate(zip(y, g, strict=True))], 1)
    return [row.mul(row.add(b, -w, 2, k), a, 3, k) for k, (a, b) in enumerate(zip(y, g, strict=True))]


def row_norm(
    row: Row, x: Sequence[float], weight: Sequence[float], bias: Sequence[float] | None, eps: float, centered: bool
) -> tuple[list[float], float, float]:
    """The normalised row, its mean and 1 / its standard deviation (casts: cutlass_kernels/rows/norm.h, NormStep).

    Example:
        >>> row = gs.reference.Row(16 * [None], cols=2)
        >>> gs.reference.row_norm(row, [1.0, 3.0], [1.0, 1.0], None, 0.0, centered=True)
        ([-1.0, 1.0], 2.0, 1.0)
    """
    count = float(row.cols)
    mean = row.div(row_sum(row, x, 0), count, 1) if centered else 0.0

    def center(k: int) -> float:
        return row.add(x[k], -mean, 2, k) if centered else x[k]

    squares = [row.mul(center(k), center(k), 3, k) for k in range(row.cols)]
    var = row.div(row_sum(row, squares, 4), count, 5)
    std = row.root(row.add(var, eps, 6), 7)
    y = []
    for k in range(row.cols):
        value = row.mul(weight[k], row.div(center(k), std, 8, k), 9, k)
        y.append(row.round(value, 10, k) if bias is None else row.add(value, bias[k], 10, k))
    return y, mean, row.div(1.0, std, 11)


def row_norm_grad(
    row: Row,
    x: Sequence[float],
    weight: Sequence[float] | None,
    mean: float,
    rstd: float,
    g: Sequence[float],
    centered: bool,
) -> tuple[list[float], list[float]]:
    """The gradient of the row and the terms of the weight's gradient.

    Casts: cutlass_kernels/rows/norm.h, NormGradStep.

    Example:
        >>> row = gs.reference.Row(16 * [None], cols=2)
        >>> gs.reference.row_norm_grad(row, [1.0, 3.0], None, 2.0, 1.0, [1.0, 0.5], centered=True)
        ([0.0, 0.0], [-1.0, 0.5])
    """
    count = float(row.cols)
    ks = range(row.cols)
    hat = [row.mul(row.add(x[k], -mean, 0, k) if centered else x[k], rstd, 1, k) for k in ks]
    n = list(g) if weight is None else [row.mul(weight[k], g[k], 2, k) for k in ks]
    first = row.div(row_sum(row, n, 3), count, 4) if centered else 0.0
    second = row.div(row_sum(row, [row.mul(hat[k], n[k], 5, k) for k in ks], 6), count, 7)
    dx = []
    for k in ks:
        left = row.add(n[k], -first, 8, k) if centered else n[k]
        dx.append(row.mul(row.add(left, -row.mul(hat[k], second, 9, k), 10, k), rstd, 11, k))
    return dx, [row.mul(hat[k], g[k], 12, k) for k in ks]
