"""What follows a product in the same call: a bias added to its result, and one more cast."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gemmsim.formats import Cast

__all__ = ["Finish"]


@dataclass(frozen=True, eq=False)
class Finish:
    """``bias`` (N,) or none, the dtype ``work`` it is added in, and a deterministic ``cast`` or none.

    ``work``: float32 or float64. On a GPU they are the kernel's last step (gemm/simt/epilogue.h), elsewhere
    passes over the result (``gemmsim.backends.epilogue_passes``); the bits are the same.
    """

    bias: Tensor | None
    work: torch.dtype
    cast: Cast | None = None
