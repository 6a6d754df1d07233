"""Scale of one block, from its largest magnitude: each system's rule, by definition.

Everything is about binary32: ``amax`` is a float that binary32 holds, and what a system computes in binary32 is rounded
there. Source: the systems' own code, as docs/reference/mx.md describes it.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from ..formats import E8M0, FP32, BlockFormat, BlockMode, Cast, FixedFormat, FloatFormat, ScaleRule
from .rounding import round_value

__all__ = ["NAN_SCALE", "binary32", "element_max", "rounded_log2", "scale_code"]

#: Code of NaN in e8m0.
NAN_SCALE = 255
_BINARY32 = Cast(FP32)


def binary32(value: float | Fraction) -> float:
    """``value`` rounded to binary32, nearest even."""
    return round_value(value, _BINARY32)


def element_max(fmt: BlockFormat) -> float:
    """Largest finite element value."""
    return fmt.element.max


def rounded_log2(a: float, precision: int) -> float:
    """log2 of a positive binary32 number, correctly rounded (nearest even) to ``precision`` significand bits."""
    mantissa, exponent = math.frexp(a)
    if mantissa == 0.5:
        exact = Fraction(exponent - 1)
    else:
        with localcontext() as context:
            context.prec = 50
            exact = Fraction(Decimal(a).ln() / Decimal(2).ln())
    wide = FloatFormat(precision, -126, 127)
    return round_value(_dyadic(exact), Cast(wide))


def _dyadic(value: Fraction) -> Fraction:
    """``value`` cut to 120 fraction bits; logarithms that are no integers are never that close to a midpoint."""
    return Fraction(math.floor(value * 2**120), 2**120)


def scale_code(amax: float, fmt: BlockFormat, tensor_scale: float, source: str) -> int:
    """Code of the scale of a block whose largest magnitude is ``amax``, NaN if any element is.

    ``source`` is the dtype in which the tensor was given; it matters to torchao 0.6.1.
    """
    if fmt.scale != E8M0:
        return _real_scale(amax, fmt, tensor_scale)
    if fmt.mode is BlockMode.TORCHAO_0_18:
        return _torchao_0_18(amax, fmt)
    if fmt.mode is BlockMode.TORCHAO_0_6_1:
        return _torchao_0_6_1(amax, fmt, 8 if source == "bfloat16" else 24)
    if fmt.mode is BlockMode.MICROXCALING:
        return _microxcaling(amax, fmt)
    if not math.isfinite(amax):
        return NAN_SCALE
    # torchmx's integer elements are whole numbers: their scale is 2^-6 of what it is elsewhere.
    whole = fmt.mode is BlockMode.TORCHMX and isinstance(fmt.element, FixedFormat)
    exponent = _exponent(amax, fmt)
    if exponent is None:
        return NAN_SCALE
    if fmt.rule is ScaleRule.RCEIL:
        return exponent
    return _clamped(exponent - (fmt.trailing_bits if whole else fmt.emax))


def _exponent(amax: float, fmt: BlockFormat) -> int | None:
    """Exponent that the rule takes ``amax`` for (for rceil: the scale's code), None if it leaves binary32."""
    field, trailing = _fields(amax)
    if fmt.rule is ScaleRule.FLOOR:
        return field - 127
    if fmt.rule is ScaleRule.CEIL:
        return field - 127 + (trailing != 0)
    if fmt.rule is ScaleRule.EVEN:
        field += trailing + (1 << (22 - fmt.trailing_bits)) >> 23
        return field - 127 if field < 255 else None
    quotient = binary32(Fraction(amax) * Fraction(binary32(1 / Fraction(element_max(fmt)))))
    if not math.isfinite(quotient):
        return None
    field, trailing = _fields(quotient)
    return field + (trailing > 0x400000 if field == 0 else trailing != 0)


def _fields(a: float) -> tuple[int, int]:
    """Exponent field and trailing field of a non-negative finite binary32 number."""
    if a < 2.0**-126:
        return 0, int(math.ldexp(a, 149))
    mantissa, exponent = math.frexp(a)
    return exponent - 1 + 127, int(math.ldexp(mantissa, 24)) - (1 << 23)


def _clamped(exponent: int, top: int = 128) -> int:
    return max(-127, min(top, exponent)) + 127


def _torchao_0_18(amax: float, fmt: BlockFormat) -> int:
    if math.isnan(amax):
        return NAN_SCALE
    if fmt.rule is ScaleRule.RCEIL:
        if math.isinf(amax):
            return 254
        quotient = binary32(Fraction(amax) / Fraction(element_max(fmt)))
        if math.isinf(quotient):
            return 254
        return _clamped(math.ceil(rounded_log2(quotient, 24)), 127) if quotient else 0
    if math.isinf(amax):
        return _clamped(128 - fmt.emax)
    exponent = _exponent(amax, fmt)
    return _clamped((128 if exponent is None else exponent) - fmt.emax)


def _torchao_0_6_1(amax: float, fmt: BlockFormat, precision: int) -> int:
    if math.isnan(amax):
        return NAN_SCALE
    if math.isinf(amax):
        return _clamped(128, 127)
    return _clamped(math.floor(rounded_log2(amax or 2.0**-126, precision)) - fmt.emax, 127)


def _microxcaling(amax: float, fmt: BlockFormat) -> int:
    if not math.isfinite(amax):
        return NAN_SCALE
    exponent = math.floor(rounded_log2(amax or 2.0**-126, 24)) - fmt.emax
    return NAN_SCALE if exponent > 127 else _clamped(exponent)


def _real_scale(amax: float, fmt: BlockFormat, tensor_scale: float) -> int:
    """amax / max in binary32, over the tensor's scale, into the scale format's normal range, rounded there."""
    if not math.isfinite(amax):
        return nan_scale(fmt.scale)
    scale = binary32(Fraction(amax) / Fraction(element_max(fmt)))
    if fmt.tensor_scale:
        if not 2.0**-96 <= tensor_scale < math.inf:
            return nan_scale(fmt.scale)
        scale = binary32(Fraction(scale) / Fraction(tensor_scale))
    clamped = max(fmt.scale.smallest_normal, min(fmt.scale.max, scale))
    return fmt.scale.encode(round_value(clamped, Cast(fmt.scale)))


def nan_scale(scale: FloatFormat) -> int:
    """Code that marks a NaN block: NaN where the scale format has one, else its code of all ones."""
    return (1 << (scale.bits - int(scale.signed))) - 1
