"""Packing of 4-bit codes in torchmx's order."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pack_uint4", "unpack_uint4"]


def pack_uint4(uint8_data: Tensor, packing_dim: int = -1) -> Tensor:
    """Two 4-bit codes a byte along ``packing_dim``, the first in bits 4 to 7.

    Raises:
        AssertionError: for an odd size.
    """
    if uint8_data.shape[packing_dim] % 2:
        raise AssertionError(f"dim {packing_dim} of {tuple(uint8_data.shape)}; allowed: even sizes")
    pairs = uint8_data.unflatten(packing_dim, (-1, 2))
    place = packing_dim % uint8_data.dim() + 1
    return pairs.select(place, 0) << 4 | pairs.select(place, 1)


def unpack_uint4(uint8_data: Tensor, packing_dim: int = -1) -> Tensor:
    """The codes that ``pack_uint4`` packed."""
    place = packing_dim % uint8_data.dim()
    return torch.stack([uint8_data >> 4, uint8_data & 15], place + 1).flatten(place, place + 1)
