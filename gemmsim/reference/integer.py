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
    terms = [(int(p) >> one) >> accumulator.shift for p in dot.noted_products()]
    assert dot.ks is not None
    ks: Sequence[int | None] = dot.ks
    if accumulator.shift:
        for p, term, k in zip(dot.products, terms, dot.ks, strict=True):
            dot.note("shift", f"floor({{}} / 2^{accumulator.shift})", (p,), p, term << one, k=k)
    low = -(1 << accumulator.P - 1) if accumulator.signed else 0
    if accumulator.when == "end":
        terms, ks = [sum(terms)], [None]
    return _register(terms, low, accumulator.P, accumulator.overflow, dot, ks, one) << one


@implements(Fixed)
def _fixed(accumulator: Fixed, dot: Dot) -> Value:
    """s = F(s + R(p)), R to the grid 2^-frac without bounds."""
    grid = Rounder(Cast(FixedFormat(accumulator.P, accumulator.frac), accumulator.rounding), dot.unit)
    grid.limits = None
    step = -accumulator.frac - dot.unit
    low = -(1 << accumulator.P - 1)
    draws = dot.draws(accumulator.product_cast, Site.PRODUCT)
    s = 0
    assert dot.ks is not None
    for i, (p, R, k) in enumerate(zip(dot.products, draws, dot.ks, strict=True)):
        if type(p) is float and not math.isfinite(p):
            if p != p or accumulator.overflow == "wrap":
                return NAN
            # Past every finite sum, to that end.
            dot.tally.overflows += 1
            s = low if p < 0 else -low - 1
            dot.note("add", "past every finite sum: {}", (p,), p, s << step, k=k)
            continue
        term = int(grid(p, R)) >> step
        if dot.log is not None:
            formula = f"{dot.left[i]!r}{dot.times}{dot.right[i]!r}"
            dot.note("product", formula, (), p, term << step, accumulator.product_cast, k)
        s = _register([term], low, accumulator.P, accumulator.overflow, dot, [k], step, s)
    return s << step


def _register(
    terms: Sequence[int],
    low: int,
    width: int,
    overflow: str,
    dot: Dot,
    ks: Sequence[int | None],
    scale: int = 0,
    s: int = 0,
) -> int:
    """Sum of ``terms`` from ``s`` in a register of ``width`` bits whose lowest value is ``low``; counts its overflows.

    ``ks``: which terms these are, and ``scale``: bits between the register's unit and the element's, for the log.
    """
    high = low + (1 << width) - 1
    for term, k in zip(terms, ks, strict=True):
        before = s
        s += term
        exact = s
        if not low <= s <= high:
            dot.tally.overflows += 1
            s = min(max(s, low), high) if overflow == "saturate" else (s - low) % (1 << width) + low
        formula = "{} + {}" if s == exact else f"{{}} + {{}}, out of {width} bits ({overflow})"
        dot.note("add", formula, (before << scale, term << scale), exact << scale, s << scale, k=k)
    return s
