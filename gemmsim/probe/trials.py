"""Operands of several kinds, what a function makes of them, and whether a spec makes the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import GemmSpec, SpecError, UnsupportedSpec
from ..formats import FormatError
from ..ops import qmatmul
from .black_box import BlackBox
from .ranges import Ranges

__all__ = ["KINDS", "Difference", "Trial", "Trials", "same_bits"]

#: Kinds of operands.
KINDS = ("normal", "wide", "positive", "cancelling")
_INTEGER_KINDS = ("small integer", "large integer", "positive integer", "cancelling integer")
#: Outputs of each kind, and calls for it, at most.
_OUTPUTS, _CALLS = 512, 64


@dataclass(frozen=True, eq=False)
class Trial:
    """One call: the kind of operands, the operands as float64, and the result."""

    kind: str
    a: Tensor
    b: Tensor
    result: Tensor


@dataclass(frozen=True)
class Difference:
    """An output whose bits differ.

    Attributes:
        kind: of operands.
        at: position of the output.
        found: what the function gave.
        spec: what the spec gives.
        parts: (terms, function's sum, spec's sum) of these terms only, zeros elsewhere; the last row is the first one
            in which they differ.

    Example:
        >>> found = gs.identify(lambda a, b: gs.qmatmul(a, b, ":fp16"), 4, 4, 32, spec=":fp32")
        >>> found.difference.at, found.difference.found != found.difference.spec
        ((0, 0), True)
    """

    kind: str
    at: tuple[int, int]
    found: float
    spec: float
    parts: tuple[tuple[str, float, float], ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind} operands, output {list(self.at)}: {self.found!r} instead of {self.spec!r}"
        return text + "".join(f"\n    terms {terms}: {x!r} and {y!r}" for terms, x, y in self.parts[-3:])


def same_bits(x: Tensor, y: Tensor) -> Tensor:
    """Where two results have the same bits; all NaN count as one."""
    zeros = torch.signbit(x) == torch.signbit(y)
    return ((x == y) & ((x != 0) | zeros)) | (x.isnan() & y.isnan())


class Trials:
    """Results of a function for operands of four kinds, at the positions of one class."""

    def __init__(self, box: BlackBox, alike: np.ndarray, ranges: Ranges, seed: int, outputs: int = _OUTPUTS) -> None:
        self.box, self.ranges = box, ranges
        self.alike = torch.from_numpy(alike)
        g = np.random.default_rng(seed)
        kinds = _INTEGER_KINDS if ranges.integers else KINDS
        calls = max(1, min(_CALLS, -(-outputs // max(1, int(alike.sum())))))
        self.trials = [self._trial(kind, g) for _ in range(calls) for kind in kinds]
        self.kinds = kinds
        self._small = [self._part(one) for one in self.trials[: len(kinds) * min(calls, 16)]]

    def _trial(self, kind: str, g: np.random.Generator) -> Trial:
        M, N, K = self.box.shape
        draw = _integers if self.ranges.integers else _reals
        a, b = draw(kind, (M, K), (K, N), self.ranges, g)
        left, right = self.box.tensor(a), self.box.tensor(b)
        result = torch.from_numpy(np.array(self.box.raw(left, right)))
        return Trial(kind, left.to("cpu", torch.float64), right.to("cpu", torch.float64), result)

    def _part(self, one: Trial) -> tuple[Trial, Tensor]:
        """A few rows and columns of a trial, to refuse most candidates at little cost."""
        rows, columns = self.alike.any(1).nonzero()[:4, 0], self.alike.any(0).nonzero()[:4, 0]
        part = Trial(one.kind, one.a[rows], one.b[:, columns], one.result[rows][:, columns])
        return part, self.alike[rows][:, columns]

    @property
    def outputs(self) -> int:
        """How many outputs are compared."""
        return len(self.trials) * int(self.alike.sum())

    def agrees(self, compute: Callable[[Tensor, Tensor], Tensor | None]) -> bool:
        """Whether all bits are equal, a few outputs first."""
        for one, alike in self._small:
            found = compute(one.a, one.b)
            if found is None or not bool((same_bits(found, one.result) | ~alike).all()):
                return False
        return self.equal(compute) == self.outputs

    def equal(self, compute: Callable[[Tensor, Tensor], Tensor | None]) -> int:
        """How many outputs have the same bits."""
        total = 0
        for one in self.trials:
            found = compute(one.a, one.b)
            if found is not None:
                total += int((same_bits(found, one.result) & self.alike).sum())
        return total

    def by_spec(self, spec: GemmSpec | str) -> Callable[[Tensor, Tensor], Tensor | None]:
        """The product as ``qmatmul`` returns it in the dtype of the function's results; None for operands that it does
        not take."""
        dtype = self.box.results_in

        def compute(a: Tensor, b: Tensor) -> Tensor | None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = qmatmul(a, b, spec)
            except (SpecError, FormatError, UnsupportedSpec, ValueError):
                return None
            return found.to(dtype).double()

        return compute

    def difference(self, compute: Callable[[Tensor, Tensor], Tensor | None]) -> Difference | None:
        """The first output whose bits differ."""
        for one in self.trials:
            found = compute(one.a, one.b)
            if found is None:
                continue
            wrong = (~same_bits(found, one.result) & self.alike).nonzero()
            if len(wrong):
                m, n = (int(i) for i in wrong[0])
                parts = self._parts(one, compute, m, n)
                return Difference(one.kind, (m, n), float(one.result[m, n]), float(found[m, n]), tuple(parts))
        return None

    def _parts(
        self, one: Trial, compute: Callable[[Tensor, Tensor], Tensor | None], m: int, n: int
    ) -> list[tuple[str, float, float]]:
        """Both sums of the first 1, 2, 4, ... terms; where they part first, of each number of terms."""
        K = self.box.shape.K
        low, high = 0, K

        def both(count: int) -> tuple[float, float]:
            a = one.a.clone()
            a[:, count:] = 0
            found = compute(a[m : m + 1], one.b[:, n : n + 1])
            mine = self.box(a.numpy(), one.b.numpy())[m, n]
            return float(mine), float("nan") if found is None else float(found[0, 0])

        while high - low > 1:  # the sum of the first `high` terms differs
            middle = (low + high) // 2
            x, y = both(middle)
            low, high = (low, middle) if x != y and not (x != x and y != y) else (middle, high)
        return [(f"0:{count}", *both(count)) for count in sorted({max(1, high - 1), high})]


def _reals(
    kind: str, left: tuple[int, int], right: tuple[int, int], ranges: Ranges, g: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    if kind == "positive":
        return g.random(left) + 2.0**-10, g.random(right) + 2.0**-10
    a, b = g.standard_normal(left), g.standard_normal(right)
    if kind == "wide":
        a, b = a * np.exp2(_spread(left, ranges.a, g)), b * np.exp2(_spread(right, ranges.b, g))
    if kind == "cancelling" and left[1] > 1:
        # All terms but one cancel in pairs: what is left is the rounding of each addition, also in a narrow result.
        half, order = left[1] // 2, g.permutation(left[1])
        one, other = order[:half], order[half : 2 * half]
        a[:, other], b[other] = a[:, one], -b[one]
        a[:, order[2 * half :]] *= 2.0**-10
    return tuple(np.clip(x, -(2.0 ** one[1]), 2.0 ** one[1]) for x, one in ((a, ranges.a), (b, ranges.b)))  # type: ignore[return-value]


def _spread(shape: tuple[int, int], reach: tuple[int, int], g: np.random.Generator) -> np.ndarray:
    top = min(8.0, reach[1] - 3) if reach[1] > 4 else 0.0
    return g.uniform(min(top, max(-8.0, reach[0] + 2)), top, shape)


def _integers(
    kind: str, left: tuple[int, int], right: tuple[int, int], ranges: Ranges, g: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    large = 2 ** min(26, ranges.product[1] // 2 + 2) - 1
    tops = [
        min(2 ** (min(one[1], 26) + 1) - 1, large if kind.startswith("large") else 4) for one in (ranges.a, ranges.b)
    ]
    lows = [0 if kind.startswith("positive") else -top for top in tops]
    a, b = (g.integers(low, top + 1, s).astype(float) for low, top, s in zip(lows, tops, (left, right), strict=True))
    if kind.startswith("cancelling") and left[1] > 1:
        half = left[1] // 2
        a[:, half : 2 * half], b[half : 2 * half] = a[:, :half], -b[:half]
    return a, b
