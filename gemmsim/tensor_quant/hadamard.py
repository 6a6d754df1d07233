"""Rotation by the normalised Hadamard matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import BlockSizeError, message

__all__ = ["rotate"]


def rotate(x: Tensor) -> Tensor:
    """``x @ H / sqrt(n)`` along the last dimension, whose size n is a power of two; H is Sylvester's matrix.

    Raises:
        BlockSizeError (ValueError): for another size.
    """
    n = x.shape[-1]
    if n & (n - 1) or n == 0:
        asked = f"rotation of a last dimension of {n}"
        raise BlockSizeError(message(asked, "a power of two", "Switch rotate off, or pad."))
    shape, step = x.shape, 1
    x = x.reshape(-1, n)
    while step < n:
        pairs = x.view(-1, n // (2 * step), 2, step)
        top, bottom = pairs[:, :, 0], pairs[:, :, 1]
        x = torch.stack([top + bottom, top - bottom], 2).view(-1, n)
        step *= 2
    return (x / math.sqrt(n)).view(shape)
