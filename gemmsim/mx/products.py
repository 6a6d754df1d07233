"""Products of block-format tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator
from gemmsim.ops import qmatmul

from .autograd import FromMX
from .convert import quantize
from .tensor import MXTensor

__all__ = ["encoded_product", "product"]


def product(
    a: MXTensor, b: MXTensor, accumulator: str | Accumulator | None = "fp32", out_dtype: torch.dtype | None = None
) -> Tensor:
    """``torch.matmul(a, b)``: exact products of the values, summed along k as ``accumulator`` says.

    The result has ``out_dtype``, by default what the dtypes of ``a`` and ``b`` promote to. ``accumulator`` None is
    PyTorch's own product of the decoded tensors in the promoted dtype, whose order of summation is PyTorch's.
    Gradients are those of ``gemmsim.qmatmul`` of the values. NaN blocks give NaN; other special values as there.
    """
    common = torch.promote_types(a.dtype, b.dtype)
    carrier = common if accumulator is None else torch.float32
    return _matmul(FromMX.apply(a, carrier), FromMX.apply(b, carrier), accumulator, out_dtype or common)


def encoded_product(
    a: Tensor,
    b: Tensor,
    a_format: str | None,
    b_format: str | None,
    accumulator: str | Accumulator | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """``product`` of plain tensors, each encoded along the sum first where a format is given. No gradient."""
    carrier = torch.promote_types(a.dtype, b.dtype) if accumulator is None else None
    a, b = a.detach(), b.detach()
    left = a if a_format is None else quantize(a, a_format, dim=-1, dtype=carrier or torch.float32)
    right = b if b_format is None else quantize(b, b_format, dim=-2, dtype=carrier or torch.float32)
    return _matmul(left, right, accumulator, out_dtype)


def _matmul(a: Tensor, b: Tensor, accumulator: str | Accumulator | None, dtype: torch.dtype) -> Tensor:
    if accumulator is None:
        common = torch.promote_types(a.dtype, b.dtype)
        return torch.matmul(a.to(common), b.to(common)).to(dtype)
    return qmatmul(a, b, f": {accumulator}", out_dtype=dtype)
