"""Fused steps of any length, cut and conversion, in Python's integers: the definition of ``Fused``, by its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ..arithmetic import Fused
from ..formats import Cast, FloatFormat
from .dot import Dot, implements, with_first_tile
from .dyadic import Value, add
from .rounding import Rounder

__all__: list[str] = []

#: Where every addend is zero.
_ANY_EXPONENT = 0


@implements(Fused)
def _fused(accumulator: Fused, dot: Dot) -> Value:
    """The register after the steps of n terms each, the last one filled up with zeros, from +0."""
    register: Value = 0
    dot = with_first_tile(accumulator.first, dot)
    for first in range(0, len(dot.products), accumulator.n):
        terms = range(first, min(first + accumulator.n, len(dot.products)))
        register = _step(accumulator, dot, terms, register)
    return register


def _step(accumulator: Fused, dot: Dot, terms: Sequence[int], register: Value) -> Value:
    """R_out of the sum of the products ``terms`` and the register, each cut; all in units of the dot."""
    addends = [*(dot.products[k] for k in terms), register]
    exact: Value = 0
    for x in addends:
        exact = add(exact, x)
    if any(isinstance(x, float) and not math.isfinite(x) for x in addends):
        value = _conversion(accumulator, dot.unit)(exact)
        return _told(accumulator, dot, terms, register, exact, value, "NaN or infinity decides")
    whole = [int(x) for x in addends]  # -0.0 is a zero, too
    words = "nothing truncated"
    if accumulator.kept is not None:
        largest = max(_exponents(accumulator, dot, terms, whole[-1]), default=_ANY_EXPONENT)
        if accumulator.least is not None:
            largest = max(largest, accumulator.least)
        place = largest - accumulator.kept
        whole = [_cut(x, place - dot.unit) for x in whole]
        words = f"largest exponent {largest}, addends truncated below 2^{place}"
    value = _conversion(accumulator, dot.unit)(sum(whole)) if sum(whole) else 0
    value = 0 if value == 0 else value  # never -0
    return _told(accumulator, dot, terms, register, exact, value, words)


def _exponents(accumulator: Fused, dot: Dot, terms: Sequence[int], register: int) -> list[int]:
    """Of the products, operand by operand, and of the register; of those that are not zero."""
    a, b = accumulator.operand_formats
    out = accumulator.out.format
    assert isinstance(out, FloatFormat)
    pairs = ((dot.left[k], dot.right[k]) for k in terms)
    found = [_exponent(x, a) + _exponent(y, b) for x, y in pairs if x and y]
    return [*found, max(abs(register).bit_length() - 1 + dot.unit, out.emin)] if register else found


def _exponent(x: float, fmt: FloatFormat) -> int:
    return max(math.frexp(x)[1] - 1, fmt.emin)


def _cut(x: int, bits: int) -> int:
    """``x`` without its lowest ``bits``, toward zero."""
    if bits <= 0:
        return x
    kept = abs(x) >> bits << bits
    return -kept if x < 0 else kept


@lru_cache(maxsize=1024)
def _rounder(cast: Cast, unit: int, unbounded: bool) -> Rounder:
    """Of ``cast``; ``unbounded``: past the largest value lies what infinity is there, in every rounding."""
    made = Rounder(cast, unit)
    if unbounded:
        made.overflows = made.infinities
    return made


def _conversion(accumulator: Fused, unit: int) -> Rounder:
    return _rounder(accumulator.out, unit, accumulator.is_unbounded_past_the_end)


def _told(
    accumulator: Fused, dot: Dot, terms: Sequence[int], register: Value, exact: Value, value: Value, words: str
) -> Value:
    """``value``, after the log of ``dot`` was told of the step."""
    if dot.log is not None and dot.ks is not None:
        for k in (k for k in terms if dot.ks[k] is not None):
            p = dot.products[k]
            dot.note("product", f"{dot.left[k]!r} * {dot.right[k]!r}", (), p, p, None, dot.ks[k])
        formula = f"accumulator {{}} and {len(terms)} products: {words}"
        dot.note("instruction", formula, (register,), exact, value, accumulator.out)
    return value
