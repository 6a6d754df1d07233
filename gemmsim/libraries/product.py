"""One product as a library computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..ops import qmatmul
from .errors import UnknownPlan, library_error

if TYPE_CHECKING:
    from torch import Tensor

    from .plan import Plan

__all__ = ["dtype_of", "matmul"]

_DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def dtype_of(name: str) -> torch.dtype | None:
    """The dtype that holds the format of this name; None where torch has none."""
    return _DTYPES.get(name)


def matmul(library: str, plan: Callable[..., Plan], a: Tensor, b: Tensor, out_dtype: Any, **asked: Any) -> Tensor:
    """``Library.matmul``: the plan by shapes and dtypes, the product, one conversion to the output's dtype.

    Raises:
        UnknownPlan, LibraryError: as ``Library.matmul``.
    """
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, torch.Tensor):
            raise library_error(f"matmul: {name} is a {type(x).__name__}", "tensors", "Give two matrices.")
    if a.dim() > 2 or b.dim() > 2:
        raise UnknownPlan(
            f"{library}: batched operands of shapes {tuple(a.shape)} and {tuple(b.shape)}",
            "products of two matrices",
            "Multiply one matrix at a time if that is the measured call.",
        )
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or a.device != b.device:
        shapes = f"{tuple(a.shape)} on {a.device} and {tuple(b.shape)} on {b.device}"
        raise library_error(f"matmul: shapes {shapes}", "M x K and K x N on one device", "Reshape or move an operand.")
    (M, K), N = a.shape, b.shape[1]
    if M and N and K:
        found = plan(M, N, K, a.dtype, b.dtype, out_dtype, **asked)
    else:  # no library is called; a plan of any shape checks the formats
        found = plan(16, 16, 16, a.dtype, b.dtype, out_dtype, assume="chain")
    made = dtype_of(found.call.out)
    if made is None:
        raise library_error(f"matmul: out_dtype={out_dtype!r}", ", ".join(_DTYPES), "Leave it out.")
    return qmatmul(a.to(torch.float32), b.to(torch.float32), found.spec).to(made)
