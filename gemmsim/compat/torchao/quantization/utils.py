"""``torchao.quantization.utils``: the error measure of torchao's tests."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["compute_error"]


def compute_error(x: Tensor, y: Tensor) -> Tensor:
    """The ratio of ``x`` to its difference from ``y`` in decibels: 20 log10(|x| / |x - y|), infinite for equal tensors.

    Example:
        >>> from gemmsim.compat.torchao.quantization.utils import compute_error
        >>> compute_error(torch.tensor([10.0]), torch.tensor([11.0]))
        tensor(20.)
    """
    return 20 * torch.log10(torch.linalg.norm(x) / torch.linalg.norm(x - y))
