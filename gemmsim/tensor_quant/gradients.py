"""Straight-through gradients with clipping."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["clip_mask", "fit", "straight_through"]


def clip_mask(x: Tensor, amax: Tensor, bias: Tensor | None = None) -> Tensor:
    """Where |x - bias| <= amax, compared exactly; False at NaN."""
    wide = torch.float64 if x.dtype is torch.float64 or amax.dtype is torch.float64 else torch.float32
    v = x.to(wide)
    if bias is not None:
        v = v - bias.to(wide)
    return v.abs() <= amax.to(wide)


def fit(grad: Tensor, mask: Tensor) -> Tensor:
    """``grad`` where ``mask``, else 0."""
    return torch.where(mask, grad, torch.zeros((), dtype=grad.dtype, device=grad.device))


class _StraightThrough(torch.autograd.Function):
    """The second tensor, with the gradient of the first."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is needed."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The gradient itself."""
        return grad, None


def straight_through(x: Tensor, y: Tensor) -> Tensor:
    """``y`` bit for bit, with the gradient of ``x``; ``x + (y - x)`` would round, and make NaN of infinities."""
    result: Tensor = _StraightThrough.apply(x, y) if x.requires_grad else y
    return result
