"""How PyTorch lays results and gradients of convolutions: channels last where the input or the weight lies so."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

__all__ = ["laid", "memory_format_of"]


def memory_format_of(x: Tensor, weight: Tensor) -> torch.memory_format | None:
    """``torch.channels_last`` (``channels_last_3d``) where PyTorch lays the result of images ``x`` (B, C, ...) and
    ``weight`` so, else None. Of one dimension the weight alone decides, as images of height 1."""
    last = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    deciding = (weight.unsqueeze(2),) if x.dim() == 3 else (x, weight)
    return last if any(t.stride(1) == 1 and suggest_memory_format(t) is last for t in deciding) else None


def laid(t: Tensor, last: torch.memory_format | None) -> Tensor:
    """``t`` (B, C, ...) in the format ``last``, itself where there is none."""
    if last is None:
        return t
    if t.dim() == 3:
        return t.unsqueeze(2).contiguous(memory_format=last).squeeze(2)
    return t.contiguous(memory_format=last)
