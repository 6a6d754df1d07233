"""What kernels know of a table of products at compile time: its shape, and bounds of its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch

from gemmsim.arithmetic import ProductTable
from gemmsim.lowering.cast_numbers import CastNumbers, described

from ...product_tables import facts_of

__all__ = ["NOT_SHORT", "NOT_WHOLE", "TableFacts", "table_facts"]

#: gemmsim::NOT_SHORT and NOT_WHOLE: the integers that represent NaN.
NOT_SHORT: Final = -(2**15)
NOT_WHOLE: Final = -(2**31)
#: Largest table that blocks copy into shared memory: 65 x 65 double numbers, or 257 x 17 float ones. Every architecture
#: has room for it in addition to a block's buffers.
_MOST_SHARED = 40 * 1024
#: Bounds are rounded up to a multiple of this, so that tables which differ little share kernels. Tables of
#: integers always have the quantum 1.
_STEP = 4


@dataclass(frozen=True)
class TableFacts:
    """Rows and columns, including those of NaN, and bounds of the finite products.

    ``p`` is the number of significand bits, ``quantum`` the exponent of the quantum, and ``top`` that of a power of two
    above all products. ``is_short``: all are integers of 16 bits other than NOT_SHORT.
    """

    rows: int
    columns: int
    p: int
    quantum: int
    top: int
    is_short: bool

    @property
    def entries(self) -> int:
        """Rows times columns."""
        return self.rows * self.columns

    @property
    def fits_float(self) -> bool:
        """Whether float represents all products."""
        return self.p <= 24 and self.top <= 128 and self.quantum >= -149

    def is_shared(self, dtype: torch.dtype) -> bool:
        """Whether each block has a copy of the entries of ``dtype``."""
        return self.entries * dtype.itemsize <= _MOST_SHARED

    def casts(self) -> tuple[CastNumbers, CastNumbers]:
        """Return the gemmsim::Cast of 1 and of the products; it only says that the largest product is finite."""
        return described(1, 0, 0, -1.0, 1.0), described(self.p, self.quantum, self.top - 1, -1.0, 1.0)

    def __str__(self) -> str:
        return f"table of {self.rows}x{self.columns} ({self.p} bits from 2^{self.quantum} to 2^{self.top})"


def _up(x: int, *limits: int) -> int:
    """Return ``x`` rounded up to a multiple of the step, but not past a limit that ``x`` does not exceed."""
    rounded = -(-x // _STEP) * _STEP
    return min([rounded, *(limit for limit in limits if limit >= x)])


@lru_cache(maxsize=256)
def table_facts(products: ProductTable) -> TableFacts:
    """Return the bounds of ``products``."""
    known = facts_of(products)
    rows, columns = products.shape
    p, top = _up(known.p, 24, 53), _up(known.emax + 1, 30, 128, 1024)
    quantum = -_up(-known.quantum, 0, 149, 1074)
    if quantum >= 0:
        p, quantum = max(p, min(top, 24)), 0
    short = products.is_integer and known.low > NOT_SHORT and known.high < -NOT_SHORT
    return TableFacts(rows + 1, columns + 1, p, quantum, top, short)
