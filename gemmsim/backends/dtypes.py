"""PyTorch's dtypes as kernels know them, and the choice of a dtype that represents a format."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch

from gemmsim.formats import FixedFormat, Format
from gemmsim.lowering.abi_constants import CODES, FLOATS, INT16, INT32, DType, holds

__all__ = ["DTYPES", "NUMBERS", "KERNEL_DTYPES", "carrier_dtype", "fits"]

#: The dtypes of numbers.
DTYPES: Final[dict[torch.dtype, DType]] = {getattr(torch, one.name): one for one in FLOATS}
#: The dtypes of numbers, of codes and of tables.
KERNEL_DTYPES: Final = DTYPES | {getattr(torch, one.name): one for one in (CODES, INT16, INT32)}
#: The number of each dtype in the C library.
NUMBERS: Final[dict[torch.dtype, int]] = {dtype: one.number for dtype, one in DTYPES.items()}


def fits(fmt: Format, dtype: torch.dtype) -> bool:
    """Whether ``dtype`` represents every value of ``fmt``.

    For an unbounded fixed-point format: whether ``dtype`` represents the rounded value of each of its own numbers.
    """
    if isinstance(fmt, FixedFormat) and not fmt.clamp:
        return DTYPES[dtype].quantum <= fmt.quantum_exponent <= 0
    return holds(DTYPES[dtype], fmt)


@lru_cache(maxsize=4096)
def carrier_dtype(fmt: Format, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which an operand of ``dtype`` keeps its exact value once rounded to ``fmt``.

    It is ``dtype`` itself if that represents every value of ``fmt``, else float32 if that does, else float64.
    """
    return next((d for d in (dtype, torch.float32) if fits(fmt, d)), torch.float64)
