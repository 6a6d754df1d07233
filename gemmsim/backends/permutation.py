"""Computes the permutation that belongs to a seed with tensor operations."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.lowering.abi_constants import Site

__all__ = ["permutation"]

_MASK = 0xFFFFFFFF
#: Multipliers and key increments of Philox4x32 (docs/reference/random_bits.md).
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
#: Number of indices per call of ``_words``, such that temporary tensors stay in the cache.
_BLOCK = 1 << 16


def permutation(seed: int, k: int, device: torch.device) -> Tensor:
    """Return ``gemmsim.arithmetic.permutation`` of 0 to k-1 as int64 (k,). A CUDA graph can capture this function."""
    words = torch.empty(k, dtype=torch.int64, device=device)
    for first in range(0, k, _BLOCK):
        block = words[first : first + _BLOCK]
        block.copy_(_words(seed, torch.arange(first, first + len(block), device=device)))
    return words.argsort(stable=True)


def _words(seed: int, indices: Tensor) -> Tensor:
    """Return 64 random bits for each index below 2^32, with the top bit inverted.

    With the inverted bit, signed integers sort as the unsigned ones do. Products of 32-bit numbers wrap around in
    int64; all of their 64 bits stay correct.
    """
    zero = torch.zeros_like(indices)
    c0, c1, c2, c3 = indices, zero, zero, zero + int(Site.PERMUTATION)
    k0, k1 = seed & _MASK, seed >> 32
    for _ in range(10):
        one, two = (c * m for c, m in zip((c0, c2), _MULTIPLIERS, strict=True))
        c0, c1 = (two >> 32 & _MASK) ^ c1 ^ k0, two & _MASK
        c2, c3 = (one >> 32 & _MASK) ^ c3 ^ k1, one & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0 | (c1 ^ 1 << 31) << 32
