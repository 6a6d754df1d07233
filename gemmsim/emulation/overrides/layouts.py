"""Gives results the memory layout that PyTorch gives those of the same calls, because models take views of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format

from gemmsim.ops.strides import like_operand

__all__ = ["as_elementwise", "gradient_laid", "in_columns", "in_rows", "like_images", "like_operand"]


def like_images(out: Any, x: Tensor) -> Any:
    """``out`` with channels last if the images ``x`` have them last, as the results of PyTorch's norms do."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or not isinstance(out, Tensor) or suggest_memory_format(x) is not last:
        return out
    return out.contiguous(memory_format=last)


def in_rows(out: Any) -> Any:
    """``out`` as a contiguous tensor, which softmax over any dimension returns."""
    return out.contiguous() if isinstance(out, Tensor) else out


def in_columns(out: Tensor) -> Tensor:
    """The matrices ``out``, stored column by column."""
    return out.mT.contiguous().mT


class _GradientLaid(torch.autograd.Function):
    """The identity, whose gradient ``lay`` takes: it gives it another layout, or notes it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, lay: Callable[[Tensor], Tensor]) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.lay = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.lay(grad), None


def gradient_laid(x: Tensor, lay: Callable[[Tensor], Tensor]) -> Tensor:
    """``x``, whose gradient gets the layout that ``lay`` gives it. Compiled code chooses layouts itself."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad):
        return x
    found: Tensor = _GradientLaid.apply(x, lay)
    return found


class _Elementwise:
    """The layout that PyTorch gives the gradient of an elementwise operation.

    Dimensions have the order of the first operand of the backward operation that has one. An expanded dimension has
    none.
    """

    def __init__(self) -> None:
        self.before: Tensor | None = None  # operands of the backward operation: before and after the incoming gradient
        self.upstream: Tensor | None = None
        self.after: Tensor | None = None

    def see(self, grad: Tensor) -> Tensor:
        self.upstream = grad
        return grad

    def lay(self, grad: Tensor) -> Tensor:
        given = (self.before, self.upstream, self.after)
        strides = compute_elementwise_output_strides(*(t for t in given if t is not None))
        if grad.stride() == strides:
            return grad
        return torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device).copy_(grad)


def as_elementwise(run: Callable[[Tensor], Any], x: Tensor, *, saved: Literal["x", "result"] | None) -> Any:
    """``run(x)``, whose gradient has the layout that PyTorch gives elementwise operations.

    ``saved``: the other operand of the backward operation. It is x, after the incoming gradient, or the result, before
    it. None: there is no other operand.
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad):
        return run(x)
    order = _Elementwise()
    out = run(gradient_laid(x, order.lay))
    if out is NotImplemented:
        return out
    if saved == "result":
        order.before = out.detach()
    elif saved == "x":
        order.after = x.detach()
    return _GradientLaid.apply(out, order.see)
