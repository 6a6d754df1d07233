"""What kernels know of a table of products: its shape, and what its numbers are like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch

from gemmsim.arithmetic import ProductTable
from gemmsim.lowering.cast_numbers import CastNumbers, described

from ...product_tables import facts_of

__all__ = ["NOT_SHORT", "NOT_WHOLE", "TableFacts", "table_facts"]

#: gemmsim::NOT_SHORT and NOT_WHOLE: what stands for NaN among whole numbers.
NOT_SHORT: Final = -(2**15)
NOT_WHOLE: Final = -(2**31)
#: Largest table that blocks copy into shared memory: 65 x 65 double numbers, or 257 x 17 float ones. Every architecture
#: has room for that beside a block's buffers.
_MOST_SHARED = 40 * 1024
#: Facts are rounded up to a multiple of this, so that tables which differ little share kernels;
#: all whole numbers count as multiples of 1.
_STEP = 4


@dataclass(frozen=True)
class TableFacts:
    """Rows and columns, with those of NaN; of finite products the significand bits, the exponent of the quantum, and
    of a power of two that is larger than all. ``is_short``: whether all are integers of 16 bits but NOT_SHORT."""

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
        """Whether float holds all products."""
        return self.p <= 24 and self.top <= 128 and self.quantum >= -149

    def is_shared(self, dtype: torch.dtype) -> bool:
        """Whether each block has a copy of its own of entries of ``dtype``."""
        return self.entries * dtype.itemsize <= _MOST_SHARED

    def casts(self) -> tuple[CastNumbers, CastNumbers]:
        """gemmsim::Cast of 1 and of the products; that their largest is finite is all that is said of it."""
        return described(1, 0, 0, -1.0, 1.0), described(self.p, self.quantum, self.top - 1, -1.0, 1.0)

    def __str__(self) -> str:
        return f"table of {self.rows}x{self.columns} ({self.p} bits from 2^{self.quantum} to 2^{self.top})"


def _up(x: int, *limits: int) -> int:
    """``x`` rounded up to a multiple of the step, but not past a limit that it keeps."""
    rounded = -(-x // _STEP) * _STEP
    return min([rounded, *(limit for limit in limits if limit >= x)])


@lru_cache(maxsize=256)
def table_facts(products: ProductTable) -> TableFacts:
    """Those of ``products``."""
    known = facts_of(products)
    rows, columns = products.shape
    p, top = _up(known.p, 24, 53), _up(known.emax + 1, 30, 128, 1024)
    quantum = -_up(-known.quantum, 0, 149, 1074)
    if quantum >= 0:
        p, quantum = max(p, min(top, 24)), 0
    short = products.is_integer and known.low > NOT_SHORT and known.high < -NOT_SHORT
    return TableFacts(rows + 1, columns + 1, p, quantum, top, short)
