"""Two's complement registers, in Python's integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..arithmetic import Fixed, Integer
from ..formats import Cast, FixedFormat
from .dot import Dot, implements
from .dyadic import NAN, Value
from .philox import Site
from .rounding import Rounder

__all__: list[str] = []


@implements(Integer)
def _integer(accumulator: Integer, dot: Dot) -> Value:
    """s = F(s + floor(p / 2^shift)), F at every addition or once."""
    # One in units; operands are integers, so the products are multiples of it.
    one = -dot.unit
    terms = [(int(p) >> one) >> accumulator.shift for p in dot.products]
    low = -(1 << accumulator.P - 1) if accumulator.signed else 0
    if accumulator.when == "end":
        terms = [sum(terms)]
    return _register(terms, low, accumulator.P, accumulator.overflow, dot) << one


@implements(Fixed)
def _fixed(accumulator: Fixed, dot: Dot) -> Value:
    """s = F(s + R(p)), R to the grid 2^-frac without bounds."""
    grid = Rounder(Cast(FixedFormat(accumulator.P, accumulator.frac), accumulator.rounding), dot.unit)
    grid.limits = None
    step = -accumulator.frac - dot.unit
    low = -(1 << accumulator.P - 1)
    draws = dot.draws(accumulator.product_cast, Site.PRODUCT)
    s = 0
    for p, R in zip(dot.products, draws, strict=True):
        if type(p) is float and not math.isfinite(p):
            if p != p or accumulator.overflow == "wrap":
                return NAN
            # Past every finite sum, to that end.
            dot.tally.overflows += 1
            s = low if p < 0 else -low - 1
            continue
        term = int(grid(p, R)) >> step
        s = _register([s, term], low, accumulator.P, accumulator.overflow, dot)
    return s << step


def _register(terms: Sequence[int], low: int, width: int, overflow: str, dot: Dot) -> int:
    """Sum of ``terms`` in a register of ``width`` bits that starts at ``low``; counts how often one left it."""
    high = low + (1 << width) - 1
    s = 0
    for term in terms:
        s += term
        if not low <= s <= high:
            dot.tally.overflows += 1
            s = min(max(s, low), high) if overflow == "saturate" else (s - low) % (1 << width) + low
    return s
