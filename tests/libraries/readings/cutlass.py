"""CUTLASS kernels (ALGO_ID 21, 23, 24): the residue of a thread block's k step comes first; slices meet by scheme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .instructions import INSTRUCTIONS, Instruction, Terms, chain, step, terms
from .values import fp32, to_output

__all__ = ["cutlass", "grain", "meet", "residue_first", "slices"]


def residue_first(instruction: Instruction, products: Terms, part: range, block: int) -> float:
    """One warp's register over ``part``: first the tile of the residue, from the part's start, then whole tiles.

    A tile is taken in groups of the instruction's products; the residue's last group may be short.
    """
    residue = len(part) % block
    register = chain(instruction, products, part[:residue])
    for tile in range(residue, len(part), block):
        for first in range(tile, tile + block, instruction.products):
            register = step(instruction, products, part[first : first + instruction.products], register)
    return register


def grain(K: int) -> int:
    """Terms of which slices are multiples."""
    return 64 if K % 64 == 0 else 8


def slices(K: int, splits: int, step_of_slices: int) -> list[range]:
    """Contiguous slices, each a multiple of ``step_of_slices`` but the last; as many as there are terms for."""
    units = -(-K // step_of_slices)
    length = step_of_slices * -(-units // splits)
    return [range(start, min(start + length, K)) for start in range(0, K, length)]


def meet(partials: Sequence[np.float32], scheme: int, out: str) -> np.float32:
    """What the slices' totals give: the fp32 sum before it is rounded to ``out`` (schemes 2, 4), or the chain in ``out``."""
    if scheme == 2:
        total = partials[0]
        for partial in partials[1:]:
            total = fp32(total + partial)
    elif scheme == 4:
        total = to_output(partials[0], out)
        for partial in partials[1:]:
            total = fp32(total + to_output(partial, out))
    elif scheme in (0, 1):
        total = to_output(partials[0], out)
        for partial in partials[1:]:
            total = to_output(fp32(total + partial), out)
    else:
        raise ValueError(f"scheme {scheme}")
    return total


def cutlass(
    a: Sequence[float],
    b: Sequence[float],
    fmt: str,
    block: int,
    products_of_a_step: int,
    splits: int = 1,
    scheme: int = 0,
    out: str = "fp16",
) -> np.float32:
    """The fp32 register before the output is rounded; of the serial chain its last sum, in ``out``."""
    instruction = INSTRUCTIONS[f"mma k{products_of_a_step}"]
    products = terms(a, b, fmt, fmt)
    if splits == 1:
        return fp32(residue_first(instruction, products, range(len(a)), block))
    parts = slices(len(a), splits, grain(len(a)))
    if len(parts[0]) % grain(len(a)):
        raise ValueError(f"{splits} splits of {len(a)} terms")
    return meet([fp32(residue_first(instruction, products, part, block)) for part in parts], scheme, out)
