"""What is stored of a tensor whose dimensions were expanded (stride 0)."""

from __future__ import annotations

from torch import Tensor

__all__ = ["stored"]


def stored(x: Tensor, dims: int) -> Tensor:
    """``x`` with those of its first ``dims`` dimensions that are expanded cut to size 1: each stored element once."""
    for d in range(dims):
        if x.stride(d) == 0 and x.shape[d] > 1:
            x = x.narrow(d, 0, 1)
    return x
