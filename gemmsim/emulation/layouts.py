"""How results lie in memory: as PyTorch lays those of the same calls, of which models take views."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

__all__ = ["in_rows", "like_images", "like_operand"]


def like_operand(out: Any, x: Tensor) -> Any:
    """``out`` of ``x``'s shape with its dimensions in the order of ``x``'s, as functions of single numbers have it."""
    if not isinstance(out, Tensor):
        return out
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda i: (-strides[i], i))
    if order == list(range(x.dim())) or 0 in strides:
        return out
    return out.permute(order).contiguous().permute([order.index(i) for i in range(x.dim())])


def like_images(out: Any, x: Tensor) -> Any:
    """``out`` with its channels last where those of images ``x`` lie so, as norms have it."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or not isinstance(out, Tensor) or suggest_memory_format(x) is not last:
        return out
    return out.contiguous(memory_format=last)


def in_rows(out: Any) -> Any:
    """``out`` contiguous, as softmax over any dimension has it."""
    return out.contiguous() if isinstance(out, Tensor) else out
