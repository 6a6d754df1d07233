"""Products of block-format tensors, as PyTorch's operators and the layers call them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.ops import qmatmul
from gemmsim.ops.errors import GradError, message
from gemmsim.ops.forward_mode import applied
from gemmsim.ops.lazy_dynamo import allow_in_graph

from .arguments import block_of
from .autograd import decoded_tensor
from .block_matmul import matmul
from .convert import quantize
from .tensor import MXTensor

__all__ = ["encoded_product", "product", "spec_of_product"]


@lru_cache(maxsize=4096)
def spec_of_product(a_format: str | None, b_format: str | None, accumulator: str) -> GemmSpec:
    """The spec of operands in these block formats (None: as they are).

    Raises:
        FormatError, SpecError: for names that mean nothing or do not go together.
    """
    formats = [None if name is None else block_of(name) for name in (a_format, b_format)]
    return GemmSpec(formats[0], formats[1], accumulator=Accumulator.parse(accumulator))


@allow_in_graph
class _Product(torch.autograd.Function):
    """The product of two block-format tensors, which has no gradient."""

    @staticmethod
    def forward(ctx: Any, a: MXTensor, b: MXTensor, accumulator: str | None, dtype: torch.dtype) -> Tensor:
        """``a @ b``."""
        common = torch.promote_types(a.dtype, b.dtype)
        if accumulator is None:
            return torch.matmul(decoded_tensor(a, common), decoded_tensor(b, common)).to(dtype)
        if a.ndim > 1 and b.ndim > 1 and (a.block_dim, b.block_dim) == (-1, -2):
            return matmul(a, b, accumulator, out_dtype=dtype)
        left, right = decoded_tensor(a, torch.float32), decoded_tensor(b, torch.float32)
        return qmatmul(left, right, f": {accumulator}", out_dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """``GradError``."""
        asked = "gradient through a product of encoded operands"
        allowed = "gemmsim.mx.MXLinear, gemmsim.mx.trained_matmul, or PyTorch's operators on MXTensors"
        raise GradError(message(asked, allowed, "Use one of these."))


def product(
    a: MXTensor, b: MXTensor, accumulator: str | Accumulator | None = "fp32", out_dtype: torch.dtype | None = None
) -> Tensor:
    """``gemmsim.mx.matmul`` of encoded operands, also of vectors.

    Operands whose blocks lie across the sum are multiplied as their float32 values. ``accumulator`` None is PyTorch's
    own product of the tensors decoded to the promoted dtype, whose order of summation is PyTorch's.

    Raises:
        SpecError: for accumulators that need blocks along the sum, where they do not lie so.
    """
    dtype = torch.promote_types(a.dtype, b.dtype) if out_dtype is None else out_dtype
    result: Tensor = applied("mx.matmul", _Product, a, b, None if accumulator is None else str(accumulator), dtype)
    return result


def encoded_product(
    a: Tensor, b: Tensor, a_format: str | None, b_format: str | None, accumulator: str | None, out_dtype: torch.dtype
) -> Tensor:
    """``product`` of plain tensors, each encoded along the sum first where a format is given. No gradient."""
    # not of others: a batch of gradients has no batching rule for detach
    a, b = (t.detach() if t.requires_grad else t for t in (a, b))
    if accumulator is not None:
        return qmatmul(a, b, spec_of_product(a_format, b_format, accumulator), out_dtype=out_dtype)
    common = torch.promote_types(a.dtype, b.dtype)
    left = a.to(common) if a_format is None else quantize(a, a_format, dim=-1, dtype=common)
    right = b.to(common) if b_format is None else quantize(b, b_format, dim=-2, dtype=common)
    return torch.matmul(left, right).to(out_dtype)
