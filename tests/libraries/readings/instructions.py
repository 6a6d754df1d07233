"""One step of a tensor core in Python's integers, and chains of steps.

A step takes N products and the register. Addends are aligned to the largest exponent and cut at F fraction bits below it,
added exactly, and the sum is cut to the register's fraction bits, toward zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .values import decode

__all__ = ["INSTRUCTIONS", "Instruction", "Terms", "chain", "step", "terms"]


class Instruction(NamedTuple):
    """``products`` of a step, ``fraction`` bits below the largest exponent, ``kept`` fraction bits of the register."""

    products: int
    fraction: int
    kept: int


INSTRUCTIONS = {
    "hopper wgmma 16": Instruction(16, 25, 23),
    "hopper wgmma fp8": Instruction(32, 13, 13),
    "blackwell tcgen05 16": Instruction(16, 25, 23),
    "blackwell tcgen05 fp8": Instruction(32, 25, 23),
    "mma k8": Instruction(8, 25, 23),
    "mma k16": Instruction(16, 25, 23),
    "ampere mma": Instruction(8, 24, 23),
    "ada mma fp8": Instruction(16, 13, 13),
}


class Terms(NamedTuple):
    """Products of one dot product: significands, exponents (not normalised), fraction bits of the significands."""

    significands: list[int]
    exponents: list[int]
    bits: int


def terms(a: Sequence[float], b: Sequence[float], a_format: str, b_format: str) -> Terms:
    """The exact products a[k] * b[k]."""
    left = [decode(float(value), a_format) for value in a]
    right = [decode(float(value), b_format) for value in b]
    pairs = list(zip(left, right, strict=True))
    bits = pairs[0][0].bits + pairs[0][1].bits if pairs else 0
    return Terms([x.significand * y.significand for x, y in pairs], [x.exponent + y.exponent for x, y in pairs], bits)


def _cut(significand: int, shift: int) -> int:
    """``significand * 2**shift``, toward zero."""
    size = abs(significand) << shift if shift >= 0 else abs(significand) >> -shift
    return -size if significand < 0 else size


def step(instruction: Instruction, products: Terms, places: Sequence[int], register: float) -> float:
    """The register after the products at ``places``. Zero addends have no exponent."""
    fraction = instruction.fraction
    addends = [(products.significands[k], products.exponents[k], products.bits) for k in places]
    addends.append(decode(register, "fp32"))
    addends = [one for one in addends if one[0]]
    largest = max((exponent for _, exponent, _ in addends), default=0)
    largest = max(largest, -(108 + fraction))
    total = sum(_cut(significand, fraction + exponent - largest - bits) for significand, exponent, bits in addends)
    if total == 0:
        return 0.0
    place = largest - fraction  # of the total's last bit
    last = max(place + abs(total).bit_length() - 1, -126) - instruction.kept
    kept = _cut(total, place - last)
    if not kept:
        return 0.0
    value = math.ldexp(kept, last)
    return value if abs(value) < 2.0**128 else math.copysign(math.inf, value)


def chain(instruction: Instruction, products: Terms, places: Sequence[int], register: float = 0.0) -> float:
    """Steps over ``places`` in their order, one after the other; the last one may be short."""
    for first in range(0, len(places), instruction.products):
        register = step(instruction, products, places[first : first + instruction.products], register)
    return register
