"""Straight-through gradients with clipping."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["clip_mask", "fit"]


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
