"""Products from tables of codes: each is read from the table, and counts as an exact product from there on."""

from __future__ import annotations

import math
from dataclasses import replace

from ..arithmetic import Lookup
from ..arithmetic.lookup import ProductTable
from ..formats import Format
from .dot import Dot, implements, total
from .dyadic import Value

__all__ = ["looked_up"]


@implements(Lookup)
def _lookup(accumulator: Lookup, dot: Dot) -> Value:
    """What ``inner`` makes of the table's products."""
    return total(accumulator.inner, replace(dot, times=" (table) "))


def looked_up(products: ProductTable, rows: list[list[float]], columns: list[list[float]]) -> list[list[list[float]]]:
    """The products of each element of a's rows and b's columns, values of the table's formats."""
    left = [[_code(products.a, x) for x in row] for row in rows]
    right = [[_code(products.b, y) for y in column] for column in columns]
    return [[[_product(products, x, y) for x, y in zip(row, column, strict=True)] for column in right] for row in left]


def _code(fmt: Format, value: float) -> int | None:
    """The code of ``value``; None for a NaN that has none."""
    return None if math.isnan(value) and not fmt.is_representable(value) else fmt.encode(value)


def _product(products: ProductTable, x: int | None, y: int | None) -> float:
    return math.nan if x is None or y is None else products.product(x, y)
