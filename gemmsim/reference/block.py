"""Block formats by definition: encode, decode and fake-quantise one block of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..formats import (
    E8M0,
    FP32,
    BlockFormat,
    BlockMode,
    Cast,
    FixedFormat,
    FloatFormat,
    Rounding,
    RoundingMode,
    ScaleRule,
)
from .block_scale import NAN_SCALE, binary32, nan_scale, rounded_log2, scale_code
from .rounding import round_value

__all__ = ["decode_block", "element_value", "encode_block", "quantize_block"]

_TO_ODD = Cast(FP32, Rounding(RoundingMode.RO))


def encode_block(
    values: Sequence[float], fmt: BlockFormat, tensor_scale: float = 1.0, source: str = "float32"
) -> tuple[list[int], int]:
    """The element codes and the scale code of one block.

    Values that binary32 does not hold are first rounded to it, to odd. NaN blocks have the NaN code in elements of
    eight bits that have one, and 0 in others. Zeros keep their sign, and so do results of underflow, except where
    ``fmt.mode`` or integers have no -0. Elements beyond the largest value saturate, infinities too.

    Example:
        >>> gs.reference.encode_block([0.1, 0.2, -0.4], gs.formats.parse_block("mxfp4"))
        ([3, 5, 15], 123)
    """
    inputs = [round_value(float(x), _TO_ODD) for x in values]
    amax = math.nan if any(map(math.isnan, inputs)) else max(map(abs, inputs), default=0.0)
    scale = scale_code(amax, fmt, tensor_scale, source)
    if _is_nan_block(scale, fmt):
        return [nan_code(fmt)] * len(inputs), scale
    if _is_flushed(inputs, fmt):
        return [0] * len(inputs), scale
    scaled = [_scaled(x, scale, fmt, tensor_scale) for x in inputs]
    return [_element_code(v, fmt) for v in scaled], scale


def decode_block(codes: Sequence[int], scale: int, fmt: BlockFormat, tensor_scale: float = 1.0) -> list[float]:
    """The values of element codes under a scale code, in binary32: element times scale, rounded once; NaN if it is NaN.

    Example:
        >>> gs.reference.decode_block([2, 4, 14], 124, gs.formats.parse_block("mxfp4"))
        [0.125, 0.25, -0.5]
    """
    if scale == NAN_SCALE and fmt.scale == E8M0:
        return [math.nan] * len(codes)
    factor = _decode_factor(scale, fmt, tensor_scale)
    return [_times(element_value(code, fmt), factor) for code in codes]


def quantize_block(
    values: Sequence[float], fmt: BlockFormat, tensor_scale: float = 1.0, source: str = "float32"
) -> list[float]:
    """``decode_block`` of ``encode_block``; in mode microxcaling integers that underflow from below become -0.

    Example:
        >>> gs.reference.quantize_block([0.1, 0.2, -0.4], gs.formats.parse_block("mxfp4"))
        [0.09375, 0.1875, -0.375]
    """
    codes, scale = encode_block(values, fmt, tensor_scale, source)
    found = decode_block(codes, scale, fmt, tensor_scale)
    inputs = [round_value(float(x), _TO_ODD) for x in values]
    if fmt.mode is not BlockMode.MICROXCALING or scale == NAN_SCALE or _is_flushed(inputs, fmt):
        return found
    return [
        -0.0 if value == 0 and _scaled(x, scale, fmt, tensor_scale) < 0 else value
        for x, value in zip(inputs, found, strict=True)
    ]


def nan_code(fmt: BlockFormat) -> int:
    """Element code in NaN blocks and of NaN: the NaN of all ones where the element has NaN, else 0; torchmx: 0."""
    if fmt.mode is BlockMode.TORCHMX or not fmt.element.has_nan:
        return 0
    return (1 << (fmt.element.bits - 1)) - 1


def _is_flushed(inputs: Sequence[float], fmt: BlockFormat) -> bool:
    amax = max(map(abs, inputs), default=0.0)
    return fmt.flush and math.floor(rounded_log2(amax or 2.0**-126, 24)) <= -127


def _is_nan_block(scale: int, fmt: BlockFormat) -> bool:
    """Whether the whole block is NaN. torchao up to 0.18 divides by infinity instead, except after rceil."""
    if fmt.scale != E8M0:
        return scale == nan_scale(fmt.scale)
    divides = fmt.mode in (BlockMode.TORCHAO_0_18, BlockMode.TORCHAO_0_6_1) and fmt.rule is not ScaleRule.RCEIL
    return scale == NAN_SCALE and not divides


def _scaled(x: float, scale: int, fmt: BlockFormat, tensor_scale: float) -> float:
    """``x`` over the scale, as the mode computes it."""
    if fmt.scale != E8M0:
        one = binary32(1 / Fraction(tensor_scale)) if fmt.tensor_scale else 1.0
        factor = binary32(Fraction(one) / Fraction(fmt.scale.decode(scale)))
        return math.copysign(binary32(abs(Fraction(x)) * Fraction(factor)), x)
    exponent = scale - 127
    if fmt.mode is BlockMode.TORCHAO_0_18 and fmt.rule is ScaleRule.RCEIL:
        exponent = 0 if scale == 0 else exponent
    elif fmt.mode in (BlockMode.TORCHAO_0_18, BlockMode.TORCHAO_0_6_1):
        if scale == NAN_SCALE:
            return x * 0.0
        exponent = max(exponent, -126)
    elif fmt.mode is BlockMode.TORCHMX and isinstance(fmt.element, FixedFormat):
        exponent += fmt.trailing_bits
    scaled = math.ldexp(x, -exponent)
    if fmt.mode is BlockMode.MICROXCALING:
        return binary32(scaled)
    return scaled


def _element_code(v: float, fmt: BlockFormat) -> int:
    """Code of ``v`` rounded to the element format, saturating."""
    if math.isnan(v):
        return nan_code(fmt)
    if fmt.mode is BlockMode.MICROXCALING:
        v = _microxcaling(v, fmt)
    element = fmt.element
    quantum = element.quantum_exponent
    if isinstance(element, FloatFormat):
        top, trailing = element.max_code, element.trailing_bits
    else:
        top, trailing = element.max_significand, 0
    step = 0
    if isinstance(element, FloatFormat) and v and math.isfinite(v):
        step = max(math.frexp(v)[1] - 1 - element.emin, 0)
    counted = abs(v) if math.isinf(v) else Fraction(abs(v)) / Fraction(2) ** (quantum + step)
    magnitude = top if math.isinf(v) else min(top, _rounded(Fraction(counted), fmt.rounding) + (step << trailing))
    negative = math.copysign(1.0, v) < 0
    if isinstance(element, FloatFormat):
        return magnitude | (int(negative) << (element.bits - 1))
    return -magnitude & ((1 << element.bits) - 1) if negative else magnitude


def _rounded(counted: Fraction, rounding: Rounding) -> int:
    """Non-negative number of quanta as a whole number."""
    whole = math.floor(counted)
    rest = counted - whole
    if rounding == Rounding.RTZ or rest < Fraction(1, 2):
        return whole
    return whole + (rest > Fraction(1, 2) or rounding == Rounding.RNA or whole % 2)


def _microxcaling(v: float, fmt: BlockFormat) -> float:
    """``v`` on the element's grid with microxcaling's own exponent and rounding; zeros lose their sign."""
    if v == 0 or math.isinf(v):
        return v if v else 0.0
    exponent, trailing = 0, fmt.element.quantum_exponent
    if isinstance(fmt.element, FloatFormat):
        exponent = max(math.floor(rounded_log2(abs(v), 24)), fmt.element.emin)
        trailing = -fmt.element.trailing_bits
    counted = math.ldexp(abs(v), -exponent - trailing)
    if fmt.rounding == Rounding.RTZ:
        whole = math.floor(counted)
    else:
        whole = math.floor(binary32(Fraction(counted) + Fraction(1, 2)))
        tie = Fraction(counted) - math.floor(counted) == Fraction(1, 2)
        whole -= int(fmt.rounding == Rounding.RNE and tie and whole % 2 == 1)
    return math.copysign(math.ldexp(whole, exponent + trailing), v)


def element_value(code: int, fmt: BlockFormat) -> float:
    """Value of an element code; torchmx's integers are whole numbers, the others fractions."""
    value = fmt.element.decode(code)
    if fmt.mode is BlockMode.TORCHMX and isinstance(fmt.element, FixedFormat):
        return math.ldexp(value, fmt.trailing_bits)
    return value


def _decode_factor(scale: int, fmt: BlockFormat, tensor_scale: float) -> float:
    value = fmt.scale.decode(scale)
    if not fmt.tensor_scale or math.isnan(value):
        return value
    return binary32(Fraction(tensor_scale) * Fraction(value))


def _times(value: float, factor: float) -> float:
    """The product in binary32."""
    if math.isnan(value) or math.isnan(factor):
        return math.nan
    if value == 0 or math.isinf(value):
        return value * factor
    return math.copysign(binary32(abs(Fraction(value) * Fraction(factor))), value)
