"""nvjet kernels (ALGO_ID 66): one chain of the largest instruction over K, or one for each slice of K."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .instructions import INSTRUCTIONS, Instruction, Terms, chain, terms
from .values import fp32

__all__ = ["lost_terms", "nvjet", "slices"]


def lost_terms(K: int, splits: int, block: int) -> int:
    """Terms at the end of K that the split kernels leave out, by the condition that was measured with ones.

    It is known up to as many splits as a block has terms.
    """
    assert splits <= block, "the condition was not measured there"
    tail = K % block
    return tail if tail > 0 and (K // block) % splits == 0 and splits > tail else 0


def slices(K: int, splits: int, block: int) -> list[range]:
    """Slices of equal numbers of blocks; where the kernels lose the tail, of what they do not lose."""
    if splits == 1:
        return [range(K)]
    kept = K - lost_terms(K, splits, block)
    blocks = -(-kept // block)
    length = block * -(-blocks // splits)
    if not block <= length < K:
        raise ValueError(f"{splits} splits of {K} terms")
    return [range(start, min(start + length, kept)) for start in range(0, kept, length)]


def _slice(instruction: Instruction, products: Terms, part: range, promoted: bool) -> np.float32:
    if not promoted:
        return fp32(chain(instruction, products, part))
    total = fp32(0)
    for first in range(0, len(part), 128):
        total = fp32(total + fp32(chain(instruction, products, part[first : first + 128])))
    return total


def nvjet(
    a: Sequence[float],
    b: Sequence[float],
    formats: tuple[str, str],
    arch: str,
    splits: int = 1,
    fast_accumulation: bool = False,
) -> np.float32:
    """The fp32 register. ``arch``: hopper or blackwell. Fast accumulation is a matter of FP8 on Hopper."""
    fp8 = formats[0] in ("e4m3", "e5m2")
    unit = "hopper wgmma" if arch == "hopper" else "blackwell tcgen05"
    instruction = INSTRUCTIONS[f"{unit} {'fp8' if fp8 else '16'}"]
    promoted = fp8 and arch == "hopper" and not fast_accumulation
    products = terms(a, b, *formats)
    parts = [_slice(instruction, products, part, promoted) for part in slices(len(a), splits, 128 if fp8 else 64)]
    total = parts[0]
    for part in parts[1:]:
        total = fp32(total + part)
    return total
