"""PyTorch's dtypes, what kernels know of them, and which of them holds a format."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch

from gemmsim.formats import FixedFormat, Format
from gemmsim.lowering.abi_constants import CODES, FLOATS, INT16, INT32, DType, holds

__all__ = ["DTYPES", "NUMBERS", "KERNEL_DTYPES", "carrier_dtype", "fits"]

#: Dtypes of numbers.
DTYPES: Final[dict[torch.dtype, DType]] = {getattr(torch, one.name): one for one in FLOATS}
#: Those, and the dtypes of codes and of tables.
KERNEL_DTYPES: Final = DTYPES | {getattr(torch, one.name): one for one in (CODES, INT16, INT32)}
#: Their numbers in the C library.
NUMBERS: Final[dict[torch.dtype, int]] = {dtype: one.number for dtype, one in DTYPES.items()}


def fits(fmt: Format, dtype: torch.dtype) -> bool:
    """Whether ``dtype`` holds every value of ``fmt``; of an unbounded grid, every rounded value of ``dtype``."""
    if isinstance(fmt, FixedFormat) and not fmt.clamp:
        return DTYPES[dtype].quantum <= fmt.quantum_exponent <= 0
    return holds(DTYPES[dtype], fmt)


@lru_cache(maxsize=4096)
def carrier_dtype(fmt: Format, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which an operand of ``dtype`` keeps its exact value once rounded to ``fmt``.

    ``dtype`` itself if it holds every value of ``fmt``, else float32 if that does, else float64.
    """
    return next((d for d in (dtype, torch.float32) if fits(fmt, d)), torch.float64)
