"""The product with an encoded weight that is not trained, whose gradient goes on to its input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops import qmatmul
from gemmsim.ops.dispatch import needs_autograd
from gemmsim.ops.errors import GradError, message
from gemmsim.ops.forward_mode import applied
from gemmsim.ops.lazy_dynamo import allow_in_graph
from gemmsim.ops.single_differentiation import differentiable_once

from .autograd import decoded_tensor, encoded_tensor
from .tensor import MXTensor
from .tensor_matmul import product

__all__ = ["frozen_product"]


def frozen_product(
    x: Tensor,
    weight: MXTensor,
    activation: str | None,
    accumulator: str | None,
    dtype: torch.dtype,
    common: torch.dtype,
) -> Tensor:
    """``x @ weight.T`` in ``dtype``, x encoded along its rows where there is an ``activation`` format.

    ``accumulator`` None is PyTorch's own product, in ``common``. The gradient of x is ``g @ weight``, of the weight's
    decoded values and g as it is, in float32 from the first term to the last (":fp32"; ":fp64" of float64), whatever
    the accumulator; PyTorch's own product where the forward one is. The weight has none.

    Raises:
        GradError: for a weight that requires grad.
    """
    if torch.is_grad_enabled() and weight.requires_grad:
        allowed = "encoded weights that are not trained, gemmsim.mx.MXLinear for those that are"
        do = "Use weight.requires_grad_(False), or MXLinear."
        raise GradError(message("mx.MXInferenceLinear: its weight, an MXTensor, requires grad", allowed, do))
    how = (activation, accumulator, dtype, common)
    if not needs_autograd(x):
        return _product(x, weight, *how)
    kind = (str(weight.format), weight.packing, weight.dtype)
    result: Tensor = applied(
        "MXInferenceLinear", _Frozen, x, weight.codes, weight.scales, weight.tensor_scale, kind, how
    )
    return result


@allow_in_graph
class _Frozen(torch.autograd.Function):
    """``frozen_product`` of rows (M, K). The weight comes in parts, which transforms of PyTorch can wrap."""

    @staticmethod
    def forward(x: Tensor, codes: Tensor, scales: Tensor, tensor_scale: Tensor | None, kind: Any, how: Any) -> Tensor:
        """The product."""
        return _product(x.detach(), _weight(codes, scales, tensor_scale, kind, x.shape[-1]), *how)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """The weight is kept, the input is not."""
        x, *parts, ctx.kind, (_, ctx.accumulator, _, ctx.common) = inputs
        ctx.dtype, ctx.size = x.dtype, x.shape[-1]
        ctx.save_for_backward(*parts)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, *rest: Any) -> tuple[Tensor, int]:
        """The rows of all examples as one matrix."""
        rows = x.movedim(in_dims[0], 0)
        out: Tensor = _Frozen.apply(rows.reshape(-1, rows.shape[-1]), *rest)
        return out.reshape(*rows.shape[:-1], out.shape[-1]), 0

    @staticmethod
    @differentiable_once("mx.MXInferenceLinear")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        """``grad @ weight``."""
        codes, scales, tensor_scale = saved
        weight = _weight(codes, scales, tensor_scale, ctx.kind, ctx.size)
        if ctx.accumulator is None:
            found = torch.matmul(grad.to(ctx.common), decoded_tensor(weight, ctx.common)).to(ctx.dtype)
        else:
            wide = torch.float64 if grad.dtype is torch.float64 else torch.float32
            register = ":fp64" if wide is torch.float64 else ":fp32"
            found = qmatmul(grad, decoded_tensor(weight, wide), register, out_dtype=ctx.dtype)
        return found, None, None, None, None, None


def _weight(codes: Tensor, scales: Tensor, tensor_scale: Tensor | None, kind: Any, size: int) -> MXTensor:
    fmt, packing, dtype = kind
    return MXTensor(codes, scales, fmt, dim=-1, size=size, packing=packing, tensor_scale=tensor_scale, dtype=dtype)


def _product(
    x: Any, weight: MXTensor, activation: str | None, accumulator: str | None, dtype: torch.dtype, common: torch.dtype
) -> Tensor:
    right: Any = weight.t()
    if activation is not None:
        encoded = x if isinstance(x, MXTensor) else encoded_tensor(x, activation, -1)
        return product(encoded, right, accumulator, dtype)
    if accumulator is None:
        return (x.to(common) @ decoded_tensor(right, common)).to(dtype)
    return qmatmul(x, decoded_tensor(right, torch.float32), f": {accumulator}", out_dtype=dtype)
