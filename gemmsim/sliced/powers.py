"""Exact scaling by powers of two beyond the exponents of one float64."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["power_of_two", "scale"]

#: What one factor may shift by while a significand in [1/2, 1) stays a normal number.
_STEP = 1000


def power_of_two(exponent: Tensor) -> Tensor:
    """``2.0**exponent`` in float64 for integers from -1022 to 1023, from its bits (``torch.pow`` rounds)."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)


def scale(x: Tensor, exponent: Tensor) -> Tensor:
    """``x * 2**exponent`` in float64, rounded once: ``exponent`` holds integers of any size that broadcast to x.

    Zeros, NaN and infinities stay; overflow is infinite, underflow to nearest even.
    """
    significand, own = torch.frexp(x.to(torch.float64))
    total = own.to(torch.int64) + exponent
    first = total.clamp(-_STEP, _STEP)
    # the first product is exact, since its result is normal; the second one rounds
    return significand * power_of_two(first) * power_of_two((total - first).clamp(-_STEP, _STEP))
