"""Products from a table of codes; what ``gemmsim.arithmetic.Lookup`` says."""

from __future__ import annotations

from dataclasses import replace

from ..arithmetic import Lookup
from ..formats import FP32, Cast
from .dot import Dot, implements, total
from .dyadic import Value, lowest_exponent, to_units
from .rounding import rounder

__all__: list[str] = []


@implements(Lookup)
def _lookup(accumulator: Lookup, dot: Dot) -> Value:
    """The inner accumulator over ``products[code of a][code of b]``."""
    table = accumulator.products
    found = [table.product(table.a.encode(x), table.b.encode(y)) for x, y in zip(dot.left, dot.right, strict=True)]
    unit = min(dot.unit, lowest_exponent(found, dot.unit))
    carrier = None if dot.carrier is None else rounder(Cast(FP32), unit)
    products = [to_units(x, unit) for x in found]
    inside = replace(dot, products=products, unit=unit, carrier=carrier, times=" (table) ")
    value = total(accumulator.inner, inside)
    return value >> (dot.unit - unit) if type(value) is int else value
