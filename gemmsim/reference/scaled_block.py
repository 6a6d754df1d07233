"""Finite floats and blocks under a scale, by definition, in Fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..formats import (
    FP32,
    BlockFloatFormat,
    Cast,
    FiniteFloatFormat,
    FixedFormat,
    Rounding,
    ScaledBlockFormat,
    TensorFormat,
)
from .block_float import block_exponent, blocks_of, quantize_block_float
from .philox import Site, element_draw
from .rounding import round_value

__all__ = ["quantize_tensor", "round_finite_float"]

_BINARY32 = Cast(FP32)


def round_finite_float(x: float | Fraction, fmt: FiniteFloatFormat, draw: int | None = None, top: float = 0.0) -> float:
    """``x`` in ``fmt``. ``top`` replaces the format's largest number (infinity with eight exponent bits).

    Example:
        >>> gs.reference.round_finite_float(500.0, gs.formats.FiniteFloatFormat(4, 3))
        480.0
    """
    if not isinstance(x, Fraction) and math.isnan(x):
        return math.nan
    most = top or (math.inf if fmt.exponent_bits == 8 else fmt.max)
    negative = x < 0
    if not isinstance(x, Fraction) and math.isinf(x):
        return most if fmt.absolute or not negative else -most
    exact = Fraction(x)
    if exact == 0 or (fmt.flush and abs(exact) < Fraction(2) ** fmt.emin):
        return 0.0
    e = max(_exponent(abs(exact)), fmt.emin)
    quantum = Fraction(2) ** (e - fmt.trailing_bits)
    number = Fraction(_integer(exact / quantum, fmt, e, draw)) * quantum
    magnitude = most if not math.isinf(most) and abs(number) > Fraction(most) else abs(number)
    value = float(magnitude)
    return (-value if negative and not fmt.absolute else value) + 0.0


def _exponent(magnitude: Fraction) -> int:
    """floor(log2(magnitude))."""
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return e if Fraction(2) ** e <= magnitude else e - 1


def _integer(t: Fraction, fmt: FiniteFloatFormat, e: int, draw: int | None) -> int:
    tie = abs(t) % 1 == Fraction(1, 2)
    if fmt.trailing_bits == 0 and fmt.rounding == Rounding.RNE and tie:
        # without a significand field the last bit is the exponent's, whose bias is 127
        size = math.floor(abs(t)) + (e + 127) % 2
        return size if t > 0 else -size
    return int(round_value(t, Cast(FixedFormat(53, 0, clamp=False), fmt.rounding), draw))


def quantize_tensor(
    values: Any, shape: Sequence[int], fmt: TensorFormat, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0
) -> list[float]:
    """The elements of a tensor of ``shape``, row-major, in ``fmt``; random bits as ``reference.quantize``.

    Example:
        >>> fmt = gs.formats.ScaledBlockFormat(gs.formats.FiniteFloatFormat(2, 1), block_size=4)
        >>> gs.reference.quantize_tensor([0.1, 0.2, 0.3, 0.8], (4,), fmt)
        [0.125, 0.1875, 0.25, 0.75]
    """
    if isinstance(fmt, BlockFloatFormat):
        return quantize_block_float(values, shape, fmt, seed, site, start)
    flat = [round_value(float(x), _BINARY32) for x in values]
    draws: list[int | None] = [None] * len(flat)
    if fmt.is_stochastic:
        draws = [element_draw(seed, start + i, site, fmt.rounding.bits) for i in range(len(flat))]
    if isinstance(fmt, FiniteFloatFormat):
        return [_binary32(round_finite_float(x, fmt, draw)) for x, draw in zip(flat, draws, strict=True)]
    assert isinstance(fmt, ScaledBlockFormat)
    result = list(flat)
    for places in blocks_of(shape, fmt):
        rounded = _block([flat[i] for i in places], fmt, [draws[i] for i in places])
        for i, value in zip(places, rounded, strict=True):
            result[i] = value
    return result


def _block(values: list[float], fmt: ScaledBlockFormat, draws: list[int | None]) -> list[float]:
    if isinstance(fmt.element, FiniteFloatFormat):
        return [_floats(x, fmt.element, block_exponent(values), draw) for x, draw in zip(values, draws, strict=True)]
    assert fmt.scaler is not None
    most = math.nan if any(map(math.isnan, values)) else max(map(abs, values))
    c = _divide(most, float(2 ** (fmt.bits - 1) - 1))
    if not c > 0:
        return values
    scale = _binary32(round_finite_float(c, fmt.scaler))
    found = []
    for x, draw in zip(values, draws, strict=True):
        t = _divide(x, c)
        integer = math.nan if math.isnan(t) else round_value(t, fmt.element, draw)
        found.append(_multiply(integer, scale))
    return found


def _floats(x: float, fmt: FiniteFloatFormat, exponent: int, draw: int | None) -> float:
    """An element whose block's largest magnitude has this exponent."""
    scale = Fraction(2) ** (exponent - (1 << (fmt.exponent_bits - 1)))
    scaled = Fraction(x) / scale if math.isfinite(x) else x
    number = round_finite_float(scaled, fmt, draw, top=fmt.max)
    return _binary32(Fraction(number) * scale) if math.isfinite(number) else number


def _divide(x: float, y: float) -> float:
    """x / y in binary32; y is positive."""
    if not math.isfinite(x):
        return math.nan if math.isnan(x) or math.isinf(y) else x
    return 0.0 if math.isinf(y) else _binary32(Fraction(x) / Fraction(y))


def _multiply(x: float, y: float) -> float:
    if math.isnan(x) or math.isinf(y):
        return x * y + 0.0
    return _binary32(Fraction(x) * Fraction(y))


def _binary32(x: float | Fraction) -> float:
    return round_value(x, _BINARY32) + 0.0
