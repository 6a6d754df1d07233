"""How PyTorch lays results and gradients of convolutions: channels last where its own kernel for the call does so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

if TYPE_CHECKING:
    from .arguments import Geometry

__all__ = ["laid", "memory_format_of"]


def memory_format_of(x: Tensor, weight: Tensor, where: Geometry) -> torch.memory_format | None:
    """``torch.channels_last`` (``channels_last_3d``) where PyTorch lays the result of images ``x`` (B, C, ...) and
    ``weight`` so, else None.

    PyTorch chooses a kernel by type, sizes and number of threads, and the kernel's format by both operands; here its
    own functions for that are asked. Traced code, which cannot call them, goes by the operands alone.
    """
    last = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    flat = x.dim() == 3
    if torch.compiler.is_compiling():
        deciding = (weight.unsqueeze(2),) if flat else (x, weight)
        return last if any(t.stride(1) == 1 and suggest_memory_format(t) is last for t in deciding) else None
    stride, padding, dilation = where.stride, where.padding, where.dilation
    if flat:  # as images of height 1
        x, weight = torch.empty(x.shape, dtype=x.dtype, device=x.device).unsqueeze(2), weight.unsqueeze(2)
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    more = [0] * len(stride)
    kernel = torch._C._select_conv_backend(
        x, weight, None, list(stride), list(padding), list(dilation), where.transposed, more, where.groups, None
    )
    chosen = torch._C._conv_determine_backend_memory_format(x, weight, kernel)
    return last if chosen is last else None


def laid(t: Tensor, last: torch.memory_format | None) -> Tensor:
    """``t`` (B, C, ...) in the format ``last``, itself where there is none."""
    if last is None:
        return t
    if t.dim() == 3:
        return t.unsqueeze(2).contiguous(memory_format=last).squeeze(2)
    return t.contiguous(memory_format=last)
