"""Tables of products as backends read them, with an extra row and column for a NaN that a format has no code for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import ProductTable

__all__ = ["TableFacts", "facts_of", "values_of"]


@dataclass(frozen=True)
class TableFacts:
    """Bounds of all finite products: significant bits, exponents of the lowest bit and of the largest number, range."""

    p: int
    quantum: int
    emax: int
    low: float
    high: float


@lru_cache(maxsize=64)
def values_of(table: ProductTable) -> Tensor:
    """Return a float64 tensor (rows + 1, columns + 1) on the CPU. The last row and column are NaN.

    Callers must not write to it.
    """
    rows, columns = table.shape
    own = torch.frombuffer(bytearray(table.data), dtype=torch.float64).view(rows, columns)
    values = torch.full((rows + 1, columns + 1), math.nan, dtype=torch.float64)
    values[:rows, :columns] = own
    return values


@lru_cache(maxsize=64)
def facts_of(table: ProductTable) -> TableFacts:
    """Return the bounds of the table's finite products. A table of zeros alone has those of 1."""
    finite = sorted({value for value in table.products if math.isfinite(value)}) or [0.0]
    p, quantum = 1, 1023
    for value in finite:
        numerator, denominator = value.as_integer_ratio()
        if numerator:
            zeros = (numerator & -numerator).bit_length() - 1
            p = max(p, abs(numerator >> zeros).bit_length())
            quantum = min(quantum, zeros - denominator.bit_length() + 1)
    largest = max(finite[-1], -finite[0])
    emax = math.frexp(largest)[1] - 1 if largest else 0
    return TableFacts(p, min(quantum, emax), emax, finite[0], finite[-1])
