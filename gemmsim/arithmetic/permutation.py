"""Permutations named by a seed. The normative text is docs/reference/random_bits.md."""

from __future__ import annotations

from .errors import spec_error

__all__ = ["permutation"]

_MASK = 0xFFFFFFFF
_SITE = 17


def permutation(seed: int, length: int) -> list[int]:
    """0 to length-1 sorted by 64 random bits of each index, ties by the index.

    Raises:
        SpecError: for a negative length.
    """
    if length < 0:
        raise spec_error(f"permutation of {length} terms", "a length of 0 or more", "Give K, the reduction length.")
    return sorted(range(length), key=lambda k: (_bits(seed, k), k))


def _bits(seed: int, k: int) -> int:
    """First two words of Philox4x32-10 (Salmon et al., SC 2011) at (k mod 2^32, k div 2^32, 0, 17), low word first."""
    c0, c1, c2, c3 = k & _MASK, k >> 32, 0, _SITE
    k0, k1 = seed & _MASK, seed >> 32
    for _ in range(10):
        high, low = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (low >> 32) ^ c1 ^ k0, low & _MASK, (high >> 32) ^ c3 ^ k1, high & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0 | c1 << 32
