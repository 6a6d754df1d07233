"""FP8 kernels of Ada (ALGO_ID 60 and 35): tiles of 64 terms dealt to the splits in turn, totals in order or by pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .instructions import INSTRUCTIONS, chain, terms
from .values import fp32

__all__ = ["ada", "own_tiles", "pairwise", "serial"]

TILE = 64


def own_tiles(K: int, split: int, splits: int) -> list[range]:
    """The tiles of a split; the last of K may be short."""
    return [range(start, min(start + TILE, K)) for start in range(split * TILE, K, splits * TILE)]


def _of_a_split(products, tiles: Sequence[range], fast_accumulation: bool) -> np.float32:
    instruction = INSTRUCTIONS["ada mma fp8"]
    if fast_accumulation:
        register = 0.0
        for tile in tiles:
            register = chain(instruction, products, tile, register)
        return fp32(register)
    total = fp32(0)
    for first in range(0, len(tiles), 2):
        register = 0.0
        for tile in tiles[first : first + 2]:
            register = chain(instruction, products, tile, register)
        total = fp32(total + fp32(register))
    return total


def serial(partials: Sequence[np.float32]) -> np.float32:
    """In order."""
    total = partials[0]
    for partial in partials[1:]:
        total = fp32(total + partial)
    return total


def pairwise(partials: Sequence[np.float32]) -> np.float32:
    """The last partial first, to which the sums of pairs h apart are added in order."""
    s = len(partials)
    h = (s + 1) // 2
    slots = [fp32(partials[i] + partials[i + h]) if i + h < s - 1 else partials[i] for i in range(h)]
    if s == 1:
        return partials[0]
    total = partials[s - 1]
    for slot in slots:
        total = fp32(total + slot)
    return total


def ada(
    a: Sequence[float],
    b: Sequence[float],
    formats: tuple[str, str],
    splits: int = 1,
    by_pairs: bool = False,
    fast_accumulation: bool = False,
) -> np.float32:
    """The fp32 register before the scales. A split without a tile is +0 and takes part."""
    products = terms(a, b, *formats)
    parts = [_of_a_split(products, own_tiles(len(a), i, splits), fast_accumulation) for i in range(splits)]
    return pairwise(parts) if by_pairs else serial(parts)
