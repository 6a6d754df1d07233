"""gemmSN kernels (ALGO_ID 11 and 16): three levels of fp32 sums on CUDA cores, all from left to right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .values import fp32

__all__ = ["gemmsn"]

#: (ALGO_ID, CUSTOM_OPTION) -> threads that share K, terms of a run (None: all).
LAYOUTS = {(11, 0): (2, 256), (11, 1): (4, 128), (16, 0): (1, None)}


def gemmsn(a: Sequence[np.float32], b: Sequence[np.float32], algo: int, option: int) -> np.float32:
    """The fp32 register."""
    K = len(a)
    threads, run = LAYOUTS[algo, option]
    run = run or K
    share = -(-K // threads)
    total = fp32(0)
    for thread in range(threads):
        first, end = thread * share, min((thread + 1) * share, K)
        partial = fp32(0)
        for begin in range(first, end, run):
            inner = fp32(0)
            for k in range(begin, min(begin + run, end)):
                inner = fp32(inner + a[k] * b[k])
            partial = fp32(partial + inner)
        total = fp32(total + partial)
    return total
