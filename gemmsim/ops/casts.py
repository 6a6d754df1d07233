"""Casts as arguments: reading them, and which dtype can hold their results."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch

from gemmsim.formats import Cast, FixedFormat, FloatFormat, Format, Rounding, parse_cast, parse_overflow, parse_rounding

__all__ = ["CastLike", "RoundingLike", "carrier_dtype", "cast_name", "cast_of", "fits", "resolve_cast"]

CastLike: TypeAlias = str | Format | Cast
RoundingLike: TypeAlias = str | Rounding

#: Significand bits, exponent of the smallest subnormal and largest value of the storage dtypes.
_DTYPES = {
    torch.float16: (11, -24, 65504.0),
    torch.bfloat16: (8, -133, float.fromhex("0x1.fep127")),
    torch.float32: (24, -149, float.fromhex("0x1.fffffep127")),
    torch.float64: (53, -1074, float.fromhex("0x1.fffffffffffffp1023")),
}


@lru_cache(maxsize=4096)
def cast_of(text: str) -> Cast:
    """The cast a string names; parsed once."""
    return parse_cast(text)


def resolve_cast(fmt: CastLike, rounding: RoundingLike | None = None, overflow: object = None, bits: int = 0) -> Cast:
    """The cast ``fmt`` with ``rounding`` and ``overflow`` in place of its own where they are given.

    ``bits``, if not zero, is the number of random bits when the rounding is stochastic.

    Raises:
        FormatError: for an unknown format, rounding or overflow policy.
    """
    cast = cast_of(fmt) if isinstance(fmt, str) else parse_cast(fmt)
    if rounding is not None:
        cast = replace(cast, rounding=parse_rounding(rounding))
    if overflow is not None:
        cast = replace(cast, overflow=parse_overflow(overflow))
    if bits and cast.rounding.is_stochastic:
        cast = replace(cast, rounding=Rounding(cast.rounding.mode, bits))
    return cast


@torch.compiler.assume_constant_result
def cast_name(fmt: CastLike, rounding: RoundingLike | None = None, overflow: object = None) -> str:
    """Name of ``resolve_cast(...)``; a constant of compiled code."""
    return str(resolve_cast(fmt, rounding, overflow))


def fits(fmt: Format, dtype: torch.dtype) -> bool:
    """Whether ``dtype`` holds every value of ``fmt``; of an unbounded grid, every rounded value of ``dtype``."""
    precision, quantum, largest = _DTYPES[dtype]
    if isinstance(fmt, FixedFormat):
        if not fmt.clamp:
            return quantum <= fmt.quantum_exponent <= 0
        return fmt.bits - int(fmt.signed) <= precision and quantum <= fmt.quantum_exponent and -fmt.min <= largest
    if isinstance(fmt, FloatFormat):
        return fmt.p <= precision and quantum <= fmt.quantum_exponent and fmt.max <= largest
    return False


@lru_cache(maxsize=4096)
def carrier_dtype(fmt: Format, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which an operand of ``dtype`` keeps its exact value once rounded to ``fmt``.

    ``dtype`` itself if it holds every value of ``fmt``, else float32 if that does, else float64.
    """
    return next((d for d in (dtype, torch.float32) if fits(fmt, d)), torch.float64)
