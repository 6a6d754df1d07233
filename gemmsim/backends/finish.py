"""What follows a product in the same call: a bias added to its result, and one more cast.

On a GPU they are the kernel's last step (cutlass_kernels/gemm/finish.h), elsewhere passes over the result; the bits are
the same. The result is rounded to a dtype to work in, the bias rounded to it, both added there, to nearest even; then
the cast; then the result's own dtype, as PyTorch converts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from gemmsim.formats import Cast
from gemmsim.lowering.numbers import Site

from .convert import cast_into
from .dtypes import carrier_dtype

__all__ = ["Finish", "followed"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class Finish:
    """``bias`` (N,) or none, the dtype ``work`` it is added in, and a deterministic ``cast`` or none.

    ``work``: float32 or float64.
    """

    bias: Tensor | None
    work: torch.dtype
    cast: Cast | None = None

    def apply(self, raw: Tensor, out: Tensor) -> None:
        """Write to ``out`` what becomes of ``raw``, of dtype ``work``, which may be ``out`` and is overwritten."""
        if self.bias is not None:
            raw.add_(self.bias.to(raw.dtype))
        if self.cast is not None:
            rounded = torch.empty_like(raw, dtype=carrier_dtype(self.cast.format, raw.dtype))
            cast_into(raw, self.cast, rounded, 0, Site.QUANTIZE)
            raw = rounded
        if raw is not out:
            out.copy_(raw)


def followed(product: Callable[[Tensor], _Result], finish: Finish | None, out: Tensor) -> _Result:
    """Run ``product``, which writes into the tensor it is given, and what follows; its result."""
    if finish is None:
        return product(out)
    raw = out if out.dtype == finish.work and finish.cast is None else torch.empty_like(out, dtype=finish.work)
    result = product(raw)
    finish.apply(raw, out)
    return result
