"""Subnormal numbers around products, whatever ``torch.set_flush_denormal`` says.

The mode belongs to the calling thread alone: PyTorch's steps around a product, an added bias say, would flush in that
thread and not in the others, and results would depend on the number of threads. Kernels set the mode themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["are_flushed", "kept"]

#: The least float64 above zero, and what it is multiplied with: names, so that Python does not multiply beforehand.
_LEAST, _ONE = 5e-324, 1.0


def are_flushed() -> bool:
    """Whether this thread flushes subnormal numbers to zero."""
    return _LEAST * _ONE == 0.0


def kept(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)`` in a thread that flushes, without that; the mode is put back."""
    torch.set_flush_denormal(False)
    try:
        return function(*args, **kwargs)
    finally:
        torch.set_flush_denormal(True)
