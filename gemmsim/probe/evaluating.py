"""A tree of additions computed with roundings, for orders that no spec says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..formats import Cast, parse_cast
from ..ops import quantize
from .sum_tree import ADD, SumTree

__all__ = ["TreeArithmetic", "evaluate"]


@dataclass(frozen=True)
class TreeArithmetic:
    """How a tree rounds.

    Attributes:
        product: cast of each product; None where products are exact.
        add: cast of each addition.
        out: cast of the result, or None.
        begins: of two products that are added to each other, the one that is rounded as a sum first, because a running
            sum from 0 begins with it: 0 for the one with the lower number, 1 for the other one; None for neither.
    """

    product: str | None
    add: str
    out: str | None = None
    begins: int | None = None

    def __str__(self) -> str:
        product = "fused multiply-adds" if self.product is None else f"products rounded to {self.product}"
        out = "" if self.out is None else f", the result to {self.out}"
        return f"{product}, each sum to {self.add}{out}"


def evaluate(tree: SumTree, arithmetic: TreeArithmetic, a: Tensor, b: Tensor) -> Tensor | None:
    """The product of (M, K) and (K, N), float64 with values of float32 or narrower; None for a tree with steps of
    several addends."""
    if any(node.kind != ADD for node in tree.nodes):
        return None
    add = parse_cast(arithmetic.add)
    values: list[Tensor | None] = []
    for k in range(tree.K):
        exact = a[:, k, None] * b[None, k]
        values.append(exact if arithmetic.product is None else _rounded(exact, parse_cast(arithmetic.product)))
    if tree.K == 1:
        values[0] = _rounded(values[0], add)  # type: ignore[arg-type]
    for node in tree.nodes:
        x, y = (values[one] for one in sorted(node.addends))
        assert x is not None and y is not None
        if arithmetic.begins is not None and max(node.addends) < tree.K:
            x, y = (_rounded(x, add), y) if arithmetic.begins == 0 else (x, _rounded(y, add))
        values.append(_sum(x, y, add))
        for one in node.addends:
            values[one] = None  # no longer needed
    result = values[-1]
    assert result is not None
    return result if arithmetic.out is None else _rounded(result, parse_cast(arithmetic.out))


def _sum(x: Tensor, y: Tensor, cast: Cast) -> Tensor:
    """x + y rounded once: in float64 to odd first, which a second rounding to fewer bits does not see."""
    s = x + y
    z = s - x
    error = (x - (s - z)) + (y - z)
    bits = s.view(torch.int64)
    inexact = (error != 0) & error.isfinite() & s.isfinite() & (bits & 1 == 0)
    toward = torch.where((error > 0) == (s > 0), 1, -1)
    odd = torch.where(inexact, bits + toward, bits).view(torch.float64)
    return _rounded(odd, cast)


def _rounded(x: Tensor, cast: Cast) -> Tensor:
    for step in cast.steps:
        x = quantize(x, step)
    return x
