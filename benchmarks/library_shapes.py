"""Shapes that the heuristic of cuBLASLt is asked about: ordinary ones, vectors, few rows, and those of models."""

from __future__ import annotations

import math
import random

__all__ = ["shapes"]

#: (in, out) features of linear layers of known models, and how many tokens meet them.
_LAYERS = [
    (768, 768), (768, 3072), (3072, 768), (1024, 1024), (1024, 4096), (4096, 1024), (2048, 2048), (2560, 2560),
    (2560, 9728), (9728, 2560), (2048, 8192), (4096, 4096), (4096, 11008), (11008, 4096), (4096, 14336), (14336, 4096),
    (4096, 6144), (5120, 5120), (5120, 13824), (13824, 5120), (5120, 27648), (8192, 8192), (8192, 10240), (8192, 28672),
    (28672, 8192), (4096, 128256), (7168, 2048), (2048, 7168),
]  # fmt: skip
_TOKENS = (1, 2, 4, 8, 16, 17, 32, 64, 100, 128, 250, 256, 512, 1000, 2048, 4000)


def _size(rng: random.Random, most: int, step: int) -> int:
    """A multiple of ``step``, uniform in its logarithm; every other one a multiple of 8."""
    found = step * max(1, round(math.exp(rng.uniform(0, math.log(most / step)))))
    return found if rng.random() < 0.5 or found < 8 else max(step, found - found % 8)


def shapes(count: int, step: int = 1, seed: int = 0) -> list[tuple[int, int, int]]:
    """About ``count`` different (M, N, K), multiples of ``step`` (FP8: 16); any first part of them is a sample.

    Half of them are of any sizes, a quarter has M or N of 1 (step 1 alone), a quarter 2 to 16 rows; shapes of models
    are added. The same arguments give the same shapes.
    """
    rng = random.Random(seed)
    found: dict[tuple[int, int, int], None] = {}
    for index in range(count):
        kind = index % 4
        if kind < 2 or step > 1:
            one = _size(rng, 16384, step), _size(rng, 16384, step), _size(rng, 65536, step)
        elif kind == 2:
            long = _size(rng, 65536, 1)
            one = (*((1, long) if rng.random() < 0.7 else (long, 1)), _size(rng, 262144, 1))
        else:
            one = rng.randint(2, 16), _size(rng, 8192, 1), rng.randint(2, 1200)
        found[one] = None
    for inner, outer in _LAYERS:
        for tokens in _TOKENS:
            if tokens % step == 0:
                found[tokens, outer, inner] = None
    ordered = list(found)
    rng.shuffle(ordered)
    return ordered
