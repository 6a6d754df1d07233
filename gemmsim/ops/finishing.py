"""What follows a product in the same call: a bias added to its result, and one more cast.

On a GPU they are the kernel's last step (cutlass_kernels/gemm/finish.h), elsewhere passes over the result; the bits are
the same. The result is rounded to a dtype to work in, the bias rounded to it, both added there, to nearest even; then
the cast; then the result's own dtype, as PyTorch converts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import Cast

from .casts import carrier_dtype, fits
from .errors import ShapeError, message

__all__ = ["Finish", "check_bias", "finish_of", "finished", "is_wide"]


@dataclass(frozen=True, eq=False)
class Finish:
    """``bias`` (N,) or none, the dtype ``work`` it is added in, and a deterministic ``cast`` or none."""

    bias: Tensor | None
    work: torch.dtype
    cast: Cast | None = None

    def apply(self, raw: Tensor, out: Tensor) -> None:
        """Write to ``out`` what becomes of ``raw``, of dtype ``work``, which may be ``out`` and is overwritten."""
        from . import kernels

        if self.bias is not None:
            raw.add_(self.bias.to(raw.dtype))
        if self.cast is not None:
            rounded = torch.empty_like(raw, dtype=carrier_dtype(self.cast.format, raw.dtype))
            kernels.quantize_into(raw, self.cast, rounded, None)
            raw = rounded
        if raw is not out:
            out.copy_(raw)


@lru_cache(maxsize=4096)
def is_wide(spec: GemmSpec) -> bool:
    """Whether float32 does not hold every result of ``spec``."""
    last = spec.accumulator.add_cast if spec.out is None else spec.out
    return not fits(last.format, torch.float32)


def finish_of(spec: GemmSpec, bias: Tensor | None, cast: Cast | None, dtype: torch.dtype) -> Finish | None:
    """What follows a product of ``spec`` whose result is of ``dtype``; None for nothing."""
    if bias is None and cast is None:
        return None
    return Finish(bias, torch.float64 if is_wide(spec) or dtype == torch.float64 else torch.float32, cast)


def finished(product: Callable[[Tensor], object], finish: Finish, out: Tensor) -> object:
    """Run ``product``, which writes into the tensor it is given, and what follows; returns what ran."""
    raw = out if out.dtype == finish.work and finish.cast is None else torch.empty_like(out, dtype=finish.work)
    run = product(raw)
    finish.apply(raw, out)
    return run


def check_bias(owner: str, bias: Tensor, columns: int) -> None:
    """``ShapeError`` unless ``bias`` is a number for each column."""
    if bias.dim() != 1 or bias.shape[0] != columns:
        asked = f"{owner}: bias {tuple(bias.shape)} of a product with {columns} columns"
        raise ShapeError(message(asked, f"a bias ({columns},)", "Reshape it."))
