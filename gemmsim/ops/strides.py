"""How results lie in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["like_operand"]


def like_operand(out: Any, x: Tensor) -> Any:
    """``out`` of ``x``'s shape with its dimensions in the order of ``x``'s, as functions of single numbers have it."""
    if not isinstance(out, Tensor) or torch.compiler.is_compiling():  # the compiler lays tensors itself
        return out
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda i: (-strides[i], i))
    if order == list(range(x.dim())) or 0 in strides:
        return out
    return out.permute(order).contiguous().permute([order.index(i) for i in range(x.dim())])
