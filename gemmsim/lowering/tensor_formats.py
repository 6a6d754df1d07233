"""Lowers formats of whole tensors: block floating point, finite floats and scaled blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

from gemmsim.formats import BlockFloatFormat, FiniteFloatFormat, FixedFormat, ScaledBlockFormat, TensorFormat

from .abi_constants import MODES

__all__ = ["BlockKind", "FiniteFloat", "TensorNumbers", "tensor_numbers"]


class BlockKind(IntEnum):
    """gemmsim::BlockKind: the kind of a tensor's format."""

    SHARED_EXPONENT = 0
    FINITE_FLOATS = 1
    SCALED_FLOATS = 2
    SCALED_INTEGERS = 3


@dataclass(frozen=True)
class FiniteFloat:
    """gemmsim::FiniteFloat. ``flush``: there are no values below 2^emin. ``absolute``: values are magnitudes."""

    max: float = 0.0
    trailing: int = 0
    emin: int = 0
    mode: int = 0
    flush: bool = False
    absolute: bool = False


@dataclass(frozen=True)
class TensorNumbers:
    """The numbers that follow from the format alone.

    ``lowest_code``: the code -2^(bits-1) exists. ``keep_infinity``: infinities stay infinite.
    """

    kind: BlockKind
    bits: int = 0
    lowest_code: bool = False
    keep_infinity: bool = False
    element: FiniteFloat = FiniteFloat()
    scaler: FiniteFloat = FiniteFloat()
    shift: int = 0
    clamp: bool = False


def tensor_numbers(fmt: TensorFormat) -> TensorNumbers:
    """Return the numbers of a format of tensors."""
    if isinstance(fmt, BlockFloatFormat):
        return TensorNumbers(BlockKind.SHARED_EXPONENT, fmt.bits, not fmt.symmetric, fmt.keep_infinity)
    if isinstance(fmt, FiniteFloatFormat):
        return TensorNumbers(BlockKind.FINITE_FLOATS, element=_float(fmt))
    assert isinstance(fmt, ScaledBlockFormat)
    if isinstance(fmt.element, FiniteFloatFormat):
        # After scaling, a format of eight exponent bits reaches its own largest number. Without scaling,
        # the smaller range of float32 ends first.
        element = replace(_float(fmt.element), max=fmt.element.max)
        return TensorNumbers(BlockKind.SCALED_FLOATS, element=element, shift=1 << (fmt.element.exponent_bits - 1))
    assert fmt.scaler is not None and isinstance(fmt.element.format, FixedFormat)
    clamp = fmt.element.format.clamp
    return TensorNumbers(BlockKind.SCALED_INTEGERS, fmt.bits, scaler=_float(fmt.scaler), clamp=clamp)


def _float(fmt: FiniteFloatFormat) -> FiniteFloat:
    largest = math.inf if fmt.exponent_bits == 8 else fmt.max
    mode = MODES[fmt.rounding.mode]
    return FiniteFloat(largest, fmt.trailing_bits, fmt.emin, mode, fmt.flush, fmt.absolute)
