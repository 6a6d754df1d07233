"""Products of block-format tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator
from gemmsim.ops import qmatmul

from .autograd import decoded_tensor
from .tensor import MXTensor

__all__ = ["product"]


def product(
    a: MXTensor, b: MXTensor, accumulator: str | Accumulator | None = "fp32", out_dtype: torch.dtype | None = None
) -> Tensor:
    """``torch.matmul(a, b)``: exact products of the values, summed along k as ``accumulator`` says.

    The result has ``out_dtype``, by default what the dtypes of ``a`` and ``b`` promote to. ``accumulator`` None is
    PyTorch's own product of the decoded tensors in the promoted dtype, whose order of summation is PyTorch's.
    No gradient. NaN blocks give NaN; other special values as in ``gemmsim.qmatmul``.
    """
    common = torch.promote_types(a.dtype, b.dtype)
    if accumulator is None:
        left, right = decoded_tensor(a, common), decoded_tensor(b, common)
        return torch.matmul(left, right).to(common if out_dtype is None else out_dtype)
    left, right = decoded_tensor(a, torch.float32), decoded_tensor(b, torch.float32)
    return qmatmul(left, right, f": {accumulator}", out_dtype=common if out_dtype is None else out_dtype)
