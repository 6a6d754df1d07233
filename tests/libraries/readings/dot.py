"""dot_kernel and reduce_1Block_kernel (ALGO_ID 14): blocks of 128 threads, then one block over the blocks' totals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .gemv import halves
from .values import fp32

__all__ = ["block_total", "dot", "reduce"]


def block_total(a: Sequence[np.float32], b: Sequence[np.float32], block: int, blocks: int, width: int) -> np.float32:
    """Of tiles ``block``, ``block + blocks``, ...: each position of each thread is a chain of its own."""
    K, tile_terms = len(a), 128 * width
    if block * tile_terms >= K:
        return fp32(0)
    threads = []
    for thread in range(128):
        own = fp32(0)
        for position in range(width):
            chain = fp32(0)
            for tile in range(block, -(-K // tile_terms), blocks):
                k = tile * tile_terms + thread * width + position
                if k < K:
                    chain = fp32(chain + a[k] * b[k])
            own = fp32(own + chain)
        threads.append(own)
    return halves(threads)


def reduce(partials: Sequence[np.float32]) -> np.float32:
    """The second kernel, on one block of 128 threads."""
    threads = []
    for thread in range(128):
        own = fp32(0)
        for block in range(thread, len(partials), 128):
            own = fp32(own + partials[block])
        threads.append(own)
    for distance in (64, 32):
        for thread in range(distance):
            threads[thread] = fp32(threads[thread] + threads[thread + distance])
    fours = []
    for thread in range(4):
        own = threads[thread]
        for other in range(thread + 4, 32, 4):
            own = fp32(own + threads[other])
        fours.append(own)
    return fp32(fp32(fp32(fours[0] + fours[1]) + fours[2]) + fours[3])


def dot(a: Sequence[np.float32], b: Sequence[np.float32], blocks: int, columns: int) -> np.float32:
    """The fp32 register. ``columns``: N of the product; a thread takes two adjacent terms where it is 1."""
    width = 2 if columns == 1 else 1
    return reduce([block_total(a, b, block, blocks, width) for block in range(blocks)])
