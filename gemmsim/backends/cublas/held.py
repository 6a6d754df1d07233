"""Detects operands in a wide dtype whose numbers all belong to a narrower format, as after a cast or a quantiser."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, GemmSpec, Integer, Sequential
from gemmsim.formats import FP16, INT8, Cast, Format
from gemmsim.lowering.refusal import Refusal

from ..convert import FORMATS
from ..dtypes import fits
from .matching import native_type
from .types import NativeType

__all__ = ["assumed_type", "holds_numbers_of", "rounded_type"]

_DTYPES: Final = {FP16: torch.float16, INT8: torch.int8}
#: Number of elements that are checked before all of them.
_GLANCE: Final = 64


def _operand_format(accumulator: Accumulator) -> Format | None:
    """Return the operand format of the native type with this register, where a wider dtype may contain its numbers."""
    if accumulator == Sequential(Cast(FP16)):
        return FP16
    return INT8 if accumulator == Integer(32) else None


def assumed_type(
    spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype, fast_mode: str | None
) -> tuple[NativeType, tuple[Format | None, Format | None]] | None:
    """Return the native type that ``spec`` would name if its operands have numbers of that type's operand format.

    The second result is the format that the numbers of each operand must belong to for this; None where nothing needs
    checking. The function returns None where no such type exists.
    """
    wanted = _operand_format(spec.accumulator)
    if wanted is None or spec.has_blocks:
        return None
    asked: list[Format | None] = []
    for cast, dtype in ((spec.cast_a, a_dtype), (spec.cast_b, b_dtype)):
        asked.append(wanted if cast is None and dtype in FORMATS and FORMATS[dtype] != wanted else None)
    a, b = (Cast(wanted) if ask is not None else operand for ask, operand in zip(asked, (spec.a, spec.b), strict=True))
    found = native_type(replace(spec, a=a, b=b), a_dtype, b_dtype, fast_mode)
    return None if isinstance(found, Refusal) or not any(asked) else (found, (asked[0], asked[1]))


def rounded_type(
    spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype, fast_mode: str | None
) -> NativeType | None:
    """Return the native type of ``spec`` by mptorch's rule: a register in fp16 rounds wider operands to fp16.

    Source: docs/design/native.md#mptorchs-rule.
    """
    found = assumed_type(spec, a_dtype, b_dtype, fast_mode)
    return found[0] if found is not None and spec.accumulator == Sequential(Cast(FP16)) else None


def holds_numbers_of(t: Tensor, fmt: Format) -> bool:
    """Whether every element of ``t`` is a number of ``fmt`` (NaN and infinities too, if it has them).

    The function reads ``t``, so that on a GPU the caller waits for the queued work.
    """
    if fits(FORMATS[t.dtype], _DTYPES[fmt]):
        return True
    flat = t if t.numel() <= _GLANCE else t[..., :1, :_GLANCE]
    return _all_held(flat, _DTYPES[fmt]) and (flat is t or _all_held(t, _DTYPES[fmt]))


def _all_held(t: Tensor, dtype: torch.dtype) -> bool:
    back = t.to(dtype).to(t.dtype)
    same = back.eq(t)
    if dtype.is_floating_point:
        same |= t.isnan()
    return bool(same.all())
