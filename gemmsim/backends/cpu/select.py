"""The indices that choose a palette's member for each element."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import SelectError

__all__ = ["indices"]


def _stored(x: Tensor) -> Tensor:
    """``x`` with expanded (stride 0) dimensions cut to size 1: each stored element once."""
    for d in range(x.dim()):
        if x.stride(d) == 0 and x.shape[d] > 1:
            x = x.narrow(d, 0, 1)
    return x


def indices(select: Tensor, count: int) -> Tensor:
    """``select`` as uint8, in its shape, expanded where it is.

    Raises:
        SelectError: if it holds anything but 0 to ``count`` - 1.
    """
    stored = _stored(select)
    if stored.dtype != torch.uint8:
        stored = stored.to(torch.int64)
    if stored.numel():
        low, high = (int(x) for x in torch.aminmax(stored))
        if low < 0 or high >= count:
            raise SelectError(
                f"index {low if low < 0 else high} in select; allowed: 0 to {count - 1}, the palette's members.\n"
                "  Clamp select, or give the palette more members (eight at most)."
            )
    return stored.to(torch.uint8).expand(select.shape)
