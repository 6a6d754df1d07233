"""The stored elements of a tensor with expanded dimensions (stride 0)."""

from __future__ import annotations

from torch import Tensor

__all__ = ["stored"]


def stored(x: Tensor, dims: int) -> Tensor:
    """Return ``x`` with each stored element once: expanded dimensions among the first ``dims`` get size 1."""
    for d in range(dims):
        if x.stride(d) == 0 and x.shape[d] > 1:
            x = x.narrow(d, 0, 1)
    return x
