"""Checks and converts the indices that choose a palette's member for each element."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import SelectError

from ..stored_elements import stored

__all__ = ["indices"]


def indices(select: Tensor, count: int) -> Tensor:
    """Return ``select`` as uint8 in its shape, with the same dimensions expanded.

    Raises:
        SelectError: if it holds anything but 0 to ``count`` - 1.
    """
    found = stored(select, select.dim())
    if found.dtype != torch.uint8:
        found = found.to(torch.int64)
    if found.numel():
        low, high = (int(x) for x in torch.aminmax(found))
        if low < 0 or high >= count:
            raise SelectError(
                f"index {low if low < 0 else high} in select; allowed: 0 to {count - 1}, the palette's members.\n"
                "  Clamp select, or give the palette more members (eight at most)."
            )
    return found.to(torch.uint8).expand(select.shape)
