"""Numbers of the operands as integers, and the roundings between instructions, from the formats' definitions."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

__all__ = ["Decoded", "decode", "fp32", "to_bf16", "to_fp16", "to_output"]

#: Stored fraction bits and least exponent of a normal number.
FORMATS = {"fp16": (10, -14), "bf16": (7, -126), "e4m3": (3, -6), "e5m2": (2, -14), "fp32": (23, -126)}

fp32 = np.float32


class Decoded(NamedTuple):
    """A finite number ``significand * 2**(exponent - bits)``; ``exponent`` is that of the hidden bit."""

    significand: int
    exponent: int
    bits: int


@functools.lru_cache(maxsize=1 << 18)
def decode(value: float, name: str) -> Decoded:
    """``value`` as format ``name`` stores it; subnormal numbers have the least exponent and no hidden bit."""
    bits, least = FORMATS[name]
    exponent = max(math.frexp(value)[1] - 1, least) if value else least
    significand = math.ldexp(value, bits - exponent)
    assert significand == int(significand) and abs(significand) < 2 << bits, f"{value!r} is no number of {name}"
    return Decoded(int(significand), exponent, bits)


def to_fp16(value: np.float32) -> np.float32:
    """Nearest even in binary16."""
    with np.errstate(over="ignore"):
        return np.float32(np.float16(value))


def to_bf16(value: np.float32) -> np.float32:
    """Nearest even in bfloat16, on the bits of binary32."""
    code = int(np.float32(value).view(np.uint32))
    if code & 0x7FFFFFFF > 0x7F800000:
        return np.float32(np.nan)
    code += 0x7FFF + (code >> 16 & 1)
    return np.uint32(code & 0xFFFF0000).view(np.float32)


def to_output(value: np.float32, name: str) -> np.float32:
    """Nearest even in ``name``: fp16, bf16 or fp32 (as it is)."""
    return {"fp16": to_fp16, "bf16": to_bf16, "fp32": np.float32}[name](value)
