"""What follows the sum of an FP8 product: scales, one fused multiply-add with zero, the output's rounding. On bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .values import FORMATS, fp32

__all__ = ["epilogue", "round_code"]

#: Exponent bits, largest finite number, code of NaN.
_OUTPUTS = {
    "fp32": (8, Fraction(2**24 - 1) * 2**104, 0x7FFFFFFF),
    "bf16": (8, Fraction(2**8 - 1) * 2**120, 0x7FFF),
    "fp16": (5, Fraction(65504), 0x7FFF),
    "e4m3": (4, Fraction(448), 0x7F),
    "e5m2": (5, Fraction(57344), 0x7F),
}


def round_code(value: Fraction, name: str, negative: bool) -> int:
    """The code of format ``name`` nearest to ``value``, ties to even; past the largest finite number infinity's code.

    ``negative`` is the sign of a result that is zero.
    """
    bits, least = FORMATS[name]
    exponent_bits, _, _ = _OUTPUTS[name]
    sign = (value < 0 or (value == 0 and negative)) << (exponent_bits + bits)
    size = abs(value)
    exponent = least
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = size / Fraction(2) ** (exponent - bits)
    whole = units.numerator // units.denominator
    rest = units - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)
    # a carry out of the significand is the next exponent's first code
    code = whole + ((exponent - least) << bits)
    if name != "e4m3":
        code = min(code, ((1 << exponent_bits) - 1) << bits)
    return sign | code


def _single(value: Fraction, negative: bool) -> np.float32:
    return np.uint32(round_code(value, "fp32", negative)).view(np.float32)


def _times(x: np.float32, y: np.float32) -> np.float32:
    """One fp32 product, nearest even."""
    if not (math.isfinite(x) and math.isfinite(y)):
        with np.errstate(invalid="ignore"):
            return fp32(x * y)
    return _single(Fraction(float(x)) * Fraction(float(y)), bool(np.signbit(x) != np.signbit(y)))


def epilogue(
    register: np.float32,
    scale_a: np.float32,
    scale_b: np.float32,
    out: str,
    scale_result: np.float32 | None = None,
) -> int:
    """The output's code."""
    alpha = _times(scale_a, scale_b)
    y = _times(register, alpha)
    if register == 0 or alpha == 0:  # an exact zero and +0; NaN and infinity times zero have been seen to
        y = fp32(0) if y == 0 else y
    if out in ("e4m3", "e5m2") and scale_result is not None:
        y = _times(y, scale_result)
    bits, _ = FORMATS[out]
    exponent_bits, largest, nan = _OUTPUTS[out]
    if math.isnan(y):
        return nan
    sign = int(np.signbit(y)) << (exponent_bits + bits)
    if out in ("e4m3", "e5m2") and (math.isinf(y) or abs(Fraction(float(y))) > largest):
        return sign | round_code(largest, out, False)
    if math.isinf(y):
        return sign | ((1 << exponent_bits) - 1) << bits
    return round_code(Fraction(float(y)), out, bool(np.signbit(y)))
