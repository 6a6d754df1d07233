"""The lowest integer of block floating point that is not symmetric."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["power_of_two", "with_lowest_integer"]


def power_of_two(exponent: Tensor) -> Tensor:
    """2**exponent in float64, from -1022 to 1023, written as bits: ``torch.ldexp`` takes powers in float32."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def with_lowest_integer(rounded: Tensor, x: Tensor, bits: int) -> Tensor:
    """``rounded``, its last dimension a block of symmetric integers, with -2**(bits-1) where that is as near to ``x``.

    With the step of a block from its largest finite magnitude, elements -(2**(bits-1) - 1) steps become one step less
    where ``x`` is half a step or more below them. float32; NaN and infinities stay.
    """
    found = rounded.float()
    largest = torch.where(found.isfinite(), found.abs(), 0.0).amax(-1, keepdim=True)
    _, exponent = torch.frexp(largest)
    step = power_of_two(exponent + 1 - bits)
    edge = -(2 ** (bits - 1) - 1) * step
    lower = (largest > 0) & (found.double() == edge) & (x.double() <= edge - step / 2)
    return torch.where(lower, (edge - step).float(), found)
