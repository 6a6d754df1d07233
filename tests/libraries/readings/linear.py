"""Kernels behind ``F.linear`` in bfloat16 on A100, L40S and H100: one chain, a serial chain, two warps, a workspace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .cutlass import meet, slices
from .instructions import INSTRUCTIONS, Instruction, Terms, chain, terms
from .values import fp32

__all__ = ["RECIPES", "linear", "two_warps"]

RECIPES = ("single", "serial", "sliced", "workspace")
STRIPE = 32


def two_warps(instruction: Instruction, products: Terms, part: range) -> np.float32:
    """Stripes of 32 terms go to two warps in turn; each has a chain, the two are added."""
    registers = []
    for warp in (0, 1):
        register = 0.0
        for start in range(warp * STRIPE, len(part), 2 * STRIPE):
            register = chain(instruction, products, part[start : start + STRIPE], register)
        registers.append(fp32(register))
    return fp32(registers[0] + registers[1])


def linear(a: Sequence[float], b: Sequence[float], arch: str, recipe: str, splits: int = 1) -> np.float32:
    """The fp32 register of ``single`` and ``workspace``; of the others the last sum in bfloat16.

    ``arch``: ampere (also Ada in bfloat16) or hopper.
    """
    instruction = INSTRUCTIONS["ampere mma" if arch in ("ampere", "ada") else "mma k16"]
    products = terms(a, b, "bf16", "bf16")
    if recipe == "single":
        return fp32(chain(instruction, products, range(len(a))))
    parts = slices(len(a), splits, 64)
    if recipe == "sliced":
        return meet([two_warps(instruction, products, part) for part in parts], 1, "bf16")
    partials = [fp32(chain(instruction, products, part)) for part in parts]
    return meet(partials, {"serial": 1, "workspace": 4}[recipe], "bf16")
