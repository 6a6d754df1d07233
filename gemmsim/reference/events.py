"""What happens at the additions of a product, by definition: each exact sum beside what it was rounded to."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ..arithmetic import GemmSpec, SpecLike
from ..formats import Cast
from .dot import total
from .dyadic import Value
from .gemm import _dots, _Place, _prepare
from .rounding import Rounder

__all__ = ["EventCounts", "count_events"]


class EventCounts(NamedTuple):
    """The counts of one element, as ``gemmsim.ops.Events`` defines them; ``additions``: the number of all additions.

    Example:
        >>> gs.reference.count_events([[1.0] * 300], [[1.0]] * 300, ":bf16")[0][0]
        EventCounts(swamped=44, inexact=44, underflow=0, overflow=0, additions=300)
    """

    swamped: int = 0
    inexact: int = 0
    underflow: int = 0
    overflow: int = 0
    additions: int = 0


def count_events(
    a: Any, b: Any, spec: SpecLike, seed: int = 0, c: Any = None, *, row0: int = 0
) -> list[list[EventCounts]]:
    """The events at the additions of each element of the product. Arguments as ``gemm``.

    Raises:
        ValueError, SpecError, UnsupportedSpec: as ``gemm``.

    Example:
        >>> gs.reference.count_events([[1.0] * 300], [[1.0]] * 300, ":bf16")[0][0].swamped  # stagnates at 256
        44
    """
    counts: list[list[EventCounts]] = []
    for line in _dots(_prepare(a, b, GemmSpec.of(spec), seed, c, None, _Place(row0))):
        counts.append([])
        for which, dot in line:
            counter = _Counter()
            dot.log, dot.watch = counter, counter.watch
            total(which, dot)
            counts[-1].append(EventCounts(**counter.found))
    return counts


class _Counter:
    """The log of an element that keeps counts, and what looks at its roundings."""

    def __init__(self) -> None:
        self.found = dict.fromkeys(EventCounts._fields, 0)
        self._left_range = False

    def watch(self, rounding: Rounder) -> Callable[[Value, int], Value]:
        """``rounding``, which also tells whether the result, its exponent unbounded, is beyond the format."""
        unbounded = copy.copy(rounding)
        unbounded.limits = None

        def rounded(x: Value, R: int = 0) -> Value:
            free, limits = unbounded(x, R), rounding.limits
            finite = type(x) is int and limits is not None
            self._left_range = finite and not -limits[1] <= free <= limits[0]  # type: ignore[index]
            return rounding(x, R)

        return rounded

    def __call__(
        self, kind: str, k: int | None, formula: str, given: Sequence[Value], exact: Value, value: Value,
        cast: Cast | None, unit: int, run: tuple[str, ...],
    ) -> None:  # fmt: skip
        """One step of the element."""
        if cast is None or not _is_addition(kind, formula, given):
            return
        self.found["additions"] += 1
        register, term = given
        if not (_is_finite(register) and _is_finite(term)):
            return
        least = Fraction(cast.format.smallest_normal) / Fraction(2) ** unit
        self.found["swamped"] += value == register and term != 0
        if value != exact:
            self.found["inexact"] += 1
            self.found["underflow"] += 0 < abs(exact) < least
            self.found["overflow"] += self._left_range


def _is_finite(x: Value) -> bool:
    return type(x) is int or math.isfinite(x)


def _is_addition(kind: str, formula: str, given: Sequence[Value]) -> bool:
    """Whether a step adds to a register: of a compensated sum's only those named ``t``, and the last, do."""
    if len(given) != 2 or kind not in ("add", "combine"):
        return False
    return kind == "combine" or formula.startswith(("{} + {}", "t = "))
