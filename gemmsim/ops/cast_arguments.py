"""Casts as arguments: reading them, and which dtype can hold their results."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch

from gemmsim.backends.dtypes import carrier_dtype, fits
from gemmsim.formats import (
    TENSOR_FORMATS,
    Cast,
    Format,
    FormatError,
    OwnExponentFormat,
    Rounding,
    ScaledBlockFormat,
    ScaledCast,
    TensorFormat,
    is_tensor_format_name,
    parse_cast,
    parse_overflow,
    parse_rounding,
    parse_tensor_format,
)

from .errors import message
from .lazy_dynamo import assume_constant_result

__all__ = [
    "CastLike",
    "RoundingLike",
    "Target",
    "TargetLike",
    "carrier_dtype",
    "cast_name",
    "cast_of",
    "fits",
    "resolve_cast",
    "resolve_target",
    "target_dtype",
    "target_of",
]

CastLike: TypeAlias = str | Format | Cast
RoundingLike: TypeAlias = str | Rounding
#: What tensors are rounded to: numbers one by one, or blocks of them with a common exponent.
Target: TypeAlias = Cast | TensorFormat
TargetLike: TypeAlias = CastLike | TensorFormat


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


@lru_cache(maxsize=4096)
def target_of(text: str) -> Target:
    """The cast, or the format of tensors, that a string names; parsed once."""
    return parse_tensor_format(text) if is_tensor_format_name(text) else parse_cast(text)


def resolve_target(
    fmt: TargetLike, rounding: RoundingLike | None = None, overflow: object = None, bits: int = 0
) -> Target:
    """``resolve_cast``, or the block floating point format ``fmt`` with ``rounding`` in place of its own.

    Block floating point of single numbers is that of tensors with blocks of one.

    Raises:
        FormatError: as ``resolve_cast``, and for an overflow policy with block floating point, which clamps.
    """
    found = target_of(fmt) if isinstance(fmt, str) else fmt
    if isinstance(found, OwnExponentFormat):
        found = found.as_blocks()
    elif isinstance(found, Cast) and isinstance(found.format, OwnExponentFormat):
        found = found.format.as_blocks(found.rounding)
    if not isinstance(found, TENSOR_FORMATS):
        return resolve_cast(found, rounding, overflow, bits)
    if overflow is not None:
        asked = f"overflow={overflow!r} with {found}"
        do = "Leave it out; bfp(...,inf) keeps infinities."
        raise FormatError(message(asked, "no overflow policy: formats of tensors have their own", do))
    chosen = found.rounding if rounding is None else parse_rounding(rounding)
    if bits and chosen.is_stochastic:
        chosen = Rounding(chosen.mode, bits)
    if isinstance(found, ScaledBlockFormat):
        return replace(found, element=replace(found.element, rounding=chosen))
    if isinstance(found, ScaledCast):
        return replace(found, cast=replace(found.cast, rounding=chosen))
    return replace(found, rounding=chosen)


@assume_constant_result
def cast_name(fmt: TargetLike, rounding: RoundingLike | None = None, overflow: object = None) -> str:
    """Name of ``resolve_target(...)``; a constant of compiled code."""
    return str(resolve_target(fmt, rounding, overflow))


def target_dtype(target: Target, dtype: torch.dtype) -> torch.dtype:
    """``carrier_dtype`` of a cast; blocks of numbers of ``dtype`` fit it, since they are rounded to fewer bits."""
    return dtype if isinstance(target, TENSOR_FORMATS) else carrier_dtype(target.format, dtype)
