"""What follows a product: which ``Finish`` a call asks for, and its errors."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.dtypes import fits
from gemmsim.backends.epilogue import Finish
from gemmsim.formats import Cast

from ..errors import ShapeError, message

__all__ = ["check_bias", "finish_of", "is_wide"]


@lru_cache(maxsize=4096)
def is_wide(spec: GemmSpec) -> bool:
    """Whether float32 does not hold every result of ``spec``."""
    last = spec.accumulator.add_cast if spec.out is None else spec.out
    return not fits(last.format, torch.float32)


def finish_of(spec: GemmSpec, bias: Tensor | None, cast: Cast | None, dtype: torch.dtype) -> Finish | None:
    """What follows a product of ``spec`` whose result is of ``dtype``; None for nothing."""
    if bias is None and cast is None:
        return None
    return Finish(bias, torch.float64 if is_wide(spec) or dtype == torch.float64 else torch.float32, cast)


def check_bias(owner: str, bias: Tensor, columns: int) -> None:
    """``ShapeError`` unless ``bias`` is a number for each column."""
    if bias.dim() != 1 or bias.shape[0] != columns:
        asked = f"{owner}: bias {tuple(bias.shape)} of a product with {columns} columns"
        raise ShapeError(message(asked, f"a bias ({columns},)", "Reshape it."))
