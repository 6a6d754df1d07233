"""The affine product of ordinary tensors at which nobody looks, where the forward pass is one GEMM without casts.

Small layers take as long around their products as in them. What is here has the bits of ``AffineFunction``, which does
all else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gemmsim.backends import acceleration

from ..single_differentiation import differentiable_once
from . import eager
from .affine_plan import AffinePlan
from .autograd import gradients, gradients_in_columns
from .matmul_extras import MatmulExtras

__all__ = ["apply_plainly"]

_reshaped = torch.ops.aten._unsafe_view.default


class PlainFunction(torch.autograd.Function):
    """``AffineFunction`` for plans that round no operand. With ``linear`` the first operand has any rank from two: its
    rows are flattened here, which saves the graph a node on each side."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        addend: Tensor | None,
        plan: AffinePlan,
        seed: int | None,
        linear: bool,
        dtype: torch.dtype,
        row: int,
        site: str | None,
    ) -> Tensor:
        ctx.outer = shape = a.shape
        if linear and len(shape) > 2:
            a = a.reshape(shape[:-1].numel(), shape[-1])
        right = b.mT if linear else b
        spec = eager.spec_of(plan.fprop.spec)
        out = eager.matmul(a, right, spec, MatmulExtras(seed, dtype, bias=addend, row=row))
        wants = ctx.needs_input_grad
        # What AffineFunction saves: a checkpoint may run once with an observer and once without.
        ctx.save_for_backward(a if wants[1] else None, b if wants[0] else None, None, None, None, None)
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.seed, ctx.linear, ctx.row, ctx.site = plan, seed, linear, row, site
        ctx.a_shape, ctx.b_shape, ctx.dtypes = a.shape, b.shape, (a.dtype, b.dtype)
        ctx.columns = gradients_in_columns(a, b, linear)
        ctx.addend = None if addend is None else (addend.shape, addend.dtype)
        ctx.traced, ctx.acceleration = False, acceleration.current()
        # No view, as PyTorch's own linear returns none: people change results in place.
        return out if a.dim() == len(shape) else _reshaped(out, (*shape[:-1], out.shape[-1]))

    @staticmethod
    @differentiable_once("qmatmul, qmm, qlinear")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of a, b and the addend."""
        if grad is None:
            return (None,) * 9
        if ctx.linear and grad.dim() > 2:
            grad = grad.reshape(grad.shape[:-1].numel(), grad.shape[-1])
        grad_a, grad_b, grad_addend = gradients(ctx, saved, grad)
        if grad_a is not None and len(ctx.outer) != grad_a.dim():
            grad_a = grad_a.reshape(ctx.outer)
        return grad_a, grad_b, grad_addend, None, None, None, None, None, None


#: Without what ``apply`` does for functorch, which costs more than a small product.
apply_plainly: Callable[..., Tensor] = super(torch.autograd.Function, PlainFunction).apply
