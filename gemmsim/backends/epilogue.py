"""The epilogue of a product: a bias added to its result, and one more cast, in the same call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gemmsim.formats import Cast

__all__ = ["Finish"]


@dataclass(frozen=True, eq=False)
class Finish:
    """``bias`` (N,) or none, the dtype ``work`` in which it is added, and a deterministic ``cast`` or none.

    ``work`` is float32 or float64. On a GPU the kernel's epilogue applies them (gemm/simt/epilogue.h). Elsewhere they
    are passes over the result (``gemmsim.backends.epilogue_passes``). The bits are the same.
    """

    bias: Tensor | None
    work: torch.dtype
    cast: Cast | None = None
