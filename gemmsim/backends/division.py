"""Division by a number with the same bits on every device."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["divided_by"]


def divided_by(x: Tensor, number: float) -> Tensor:
    """``x / number``, each quotient rounded once, in the dtype of ``x``.

    PyTorch multiplies by 1 / number on a GPU where the divisor is a Python number or a CPU tensor without dimensions.
    """
    return x / torch.full((), number, dtype=x.dtype, device=x.device)
