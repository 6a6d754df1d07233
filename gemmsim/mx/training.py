"""Matrix products whose three GEMMs have operands in block formats, with straight-through gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_float, check_same_inner
from gemmsim.ops.errors import ShapeError, message
from gemmsim.ops.forward_mode import applied
from gemmsim.ops.lazy_dynamo import allow_in_graph
from gemmsim.ops.single_differentiation import differentiable_once

from .configs import MXLinearConfig, linear_constants
from .tensor_matmul import encoded_product

__all__ = ["differentiable_product", "trained_matmul"]


@allow_in_graph
class _Matmul(torch.autograd.Function):
    """``a @ b`` of operands of equal batch dimensions; formats and accumulators as strings."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, formats: Any, accumulators: Any, hp: bool, dtype: Any) -> Tensor:
        """The product of the operands, each encoded along the sum."""
        return encoded_product(a, b, formats[0], formats[1], accumulators[0], dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Both operands are kept in high precision."""
        a, b, ctx.formats, ctx.accumulators, ctx.hp, _ = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    @differentiable_once("mx.trained_matmul, MXLinear, mx_attention")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        """``grad @ b.mT`` and ``a.mT @ grad``, every operand encoded anew along the sum."""
        a, b = saved
        left, right, grads = ctx.formats
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = encoded_product(grad, b.mT, grads, right, ctx.accumulators[1], a.dtype)
        if ctx.needs_input_grad[1]:
            rows, columns = (None, None) if ctx.hp else (left, grads)
            grad_b = encoded_product(a.mT, grad, rows, columns, ctx.accumulators[2], b.dtype)
        return grad_a, grad_b, None, None, None, None


@takes_arrays
def trained_matmul(a: Tensor, b: Tensor, config: MXLinearConfig | str, out_dtype: torch.dtype | None = None) -> Tensor:
    """``torch.matmul(a, b)`` of matrices or batches of them; ``a`` has the format of inputs, ``b`` that of weights.

    The forward product is ``Q(a; k) @ Q(b; k)``. The gradients are ``Q(g; n) @ Q(b.mT; n)`` and ``Q(a.mT; m) @ Q(g;
    m)``, where Q(t; d) encodes the high-precision tensor with blocks along d. With ``wgrad_with_hp`` the second
    gradient is computed without Q. Where batch dimensions were broadcast, the gradient is PyTorch's sum over them.
    Gradients cannot be differentiated again (``GradError``).

    Args:
        config: an ``MXLinearConfig``, or one block format for all operands.

    Raises:
        DTypeError, DeviceError, ShapeError: as ``gemmsim.qmatmul``; ShapeError also for vectors.
        FormatError: for an unknown format.

    Example:
        >>> a, b = torch.full((1, 32), 1.1, requires_grad=True), torch.full((32, 1), 2.0)
        >>> product = gs.mx.trained_matmul(a, b, "mxfp8_e4m3")  # 1.1 becomes 1.125
        >>> product.item(), torch.autograd.grad(product.sum(), a)[0][0, 0].item()
        (72.0, 2.0)
    """
    if isinstance(config, MXLinearConfig):
        formats = (config.input, config.weight, config.grad)
        accumulators = (config.accumulator, config.dgrad_accumulator, config.wgrad_accumulator)
        return differentiable_product(a, b, formats, accumulators, config.wgrad_with_hp, out_dtype)
    formats, accumulators = linear_constants(config)
    return differentiable_product(a, b, formats, accumulators, False, out_dtype)


def differentiable_product(
    a: Tensor, b: Tensor, formats: Any, accumulators: Any, hp: bool, out_dtype: torch.dtype | None
) -> Tensor:
    """``trained_matmul`` of formats and accumulators as an ``MXLinearConfig`` has them.

    Raises:
        DTypeError, DeviceError: for operands that are no float tensors.
        ShapeError: for vectors, and sizes that do not go together.
    """
    check_float("mx.trained_matmul", "a", a)
    check_float("mx.trained_matmul", "b", b)
    if a.dim() < 2 or b.dim() < 2:
        asked = f"mx.trained_matmul: shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise ShapeError(message(asked, "matrices and batches of them", "Use x[None] for vectors."))
    check_same_inner("mx.trained_matmul", a, b)
    if a.shape[:-2] != b.shape[:-2]:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    dtype = torch.promote_types(a.dtype, b.dtype) if out_dtype is None else out_dtype
    result: Tensor = applied("mx.trained_matmul", _Matmul, a, b, formats, accumulators, hp, dtype)
    return result
