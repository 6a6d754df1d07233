"""Steps made of IEEE operations: the binary32 tree, and chains of fused multiply-adds in binary32 and binary64.

Binary32 is done in integers. Binary64 needs 106-bit products: they are exact sums of two doubles, scaled so that
nothing under- or overflows, and the result is put together in integers. Neither depends on how the machine treats
subnormals.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .codes import Decoded, bit_length, decode, encode, infinity, shift_down
from .operands import OPERANDS
from .step_models import Step
from .step_parameters import CONVERSIONS, Model

__all__ = ["add32", "fma32", "fma_chain", "pairwise_tree"]

_F32, _F64 = OPERANDS["f32"], OPERANDS["f64"]
_NAN32, _NAN64 = 0x7FC00000, 0x7FF8000000000000
_MINUS32 = 1 << 31
#: Addends are moved so that their leading bit has this place: room for a carry, and 12 free bits below 48.
_TOP = 60


class Exact(NamedTuple):
    """value = +-significand * 2**exponent, exponent that of the last bit; significand below 2**48."""

    negative: Tensor
    significand: Tensor
    exponent: Tensor
    nan: Tensor
    infinite: Tensor


def _exact(x: Decoded, fraction_bits: int) -> Exact:
    return Exact(x.sign < 0, x.significand, x.exponent - fraction_bits, x.nan, x.infinite)


def _product(x: Decoded, y: Decoded, fraction_bits: int) -> Exact:
    """x * y exactly; 0 * infinity is NaN."""
    nan = x.nan | y.nan | (x.infinite & y.zero) | (x.zero & y.infinite)
    exponent = x.exponent + y.exponent - fraction_bits
    return Exact(x.sign * y.sign < 0, x.significand * y.significand, exponent, nan, (x.infinite | y.infinite) & ~nan)


def _add32(x: Exact, y: Exact) -> Tensor:
    """Codes of the binary32 nearest to x + y, ties to even; signs of zero as in IEEE 754-2019, 6.3."""
    x_magnitude, x_place = _raised(x)
    y_magnitude, y_place = _raised(y)
    largest = torch.maximum(x_place, y_place)
    x_moved, y_moved = _move_jammed(x_magnitude, largest - x_place), _move_jammed(y_magnitude, largest - y_place)
    total = torch.where(x.negative, -x_moved, x_moved) + torch.where(y.negative, -y_moved, y_moved)
    codes = encode(total, largest, CONVERSIONS["rne23"])
    minus = (total < 0) | ((total == 0) & x.negative & y.negative)
    codes = torch.where(minus, codes | _MINUS32, codes)
    negative = torch.where(x.infinite, x.negative, y.negative)
    signed_infinity = torch.where(negative, infinity(_F32) | _MINUS32, infinity(_F32))
    codes = torch.where(x.infinite | y.infinite, signed_infinity, codes)
    clash = x.infinite & y.infinite & (x.negative ^ y.negative)
    return torch.where(x.nan | y.nan | clash, _NAN32, codes)


def _raised(x: Exact) -> tuple[Tensor, Tensor]:
    """The magnitude with its leading bit at ``_TOP``, and its last bit's exponent; a zero's is below all others."""
    free = _TOP + 1 - bit_length(x.significand)
    return x.significand << free, torch.where(x.significand == 0, -(1 << 20), x.exponent - free)


def _move_jammed(magnitude: Tensor, down: Tensor) -> Tensor:
    """magnitude * 2**-down; an odd last bit stands for bits that were lost, far below what binary32 keeps."""
    moved = shift_down(magnitude, -down)
    lost = (moved << down.clamp(0, 62)) != magnitude
    return torch.where(lost, moved | 1, moved)


def _exact32(codes: Tensor) -> Exact:
    return _exact(decode(codes, _F32), _F32.fraction_bits)


def fma32(x: Decoded, y: Decoded, fraction_bits: int, c: Tensor) -> Tensor:
    """Codes of the binary32 nearest to x * y + c; c as codes."""
    return _add32(_product(x, y, fraction_bits), _exact32(c))


def add32(x: Tensor, y: Tensor) -> Tensor:
    """Codes of the binary32 nearest to x + y, ties to even; x and y as codes."""
    return _add32(_exact32(x), _exact32(y))


def _flush32(codes: Tensor) -> Tensor:
    """Subnormals become a zero of their sign."""
    return torch.where(codes & infinity(_F32) == 0, codes & _MINUS32, codes)


def pairwise_tree(model: Model, step: Step) -> Tensor:
    """Products plus +0 rounded to binary32, adjacent pairs added, the total added to c.

    Subnormal operands and c become +0, subnormal intermediates a zero of their sign. A product -0 becomes +0; a
    negative one that underflows gives -0. NaN as a class.
    """
    a, b = _flush_operand(step.a, step.a_kind.fraction_bits), _flush_operand(step.b, step.b_kind.fraction_bits)
    c = torch.where(step.c & infinity(_F32) == 0, 0, step.c)
    fraction_bits = step.a_kind.fraction_bits + step.b_kind.fraction_bits
    codes = _flush32(fma32(a, b, fraction_bits, torch.zeros((), dtype=torch.int64)))
    while codes.shape[-1] > 1:
        codes = _flush32(add32(codes[..., 0::2], codes[..., 1::2]))
    return _flush32(add32(c, codes[..., 0]))


def _flush_operand(x: Decoded, fraction_bits: int) -> Decoded:
    """Subnormals become +0."""
    small = (x.significand < (1 << fraction_bits)) & ~x.nan & ~x.infinite
    return x._replace(significand=torch.where(small, 0, x.significand), sign=torch.where(small, 1, x.sign))


def fma_chain(model: Model, step: Step) -> Tensor:
    """c = a_k * b_k + c for ascending k, each rounded to nearest even."""
    c = step.c
    fraction_bits = step.a_kind.fraction_bits + step.b_kind.fraction_bits
    for k in range(model.products):
        a, b = step.a.part(..., k), step.b.part(..., k)
        c = fma32(a, b, fraction_bits, c) if step.c_kind is _F32 else _fma64(a, b, c)
    return c


class _Wide(NamedTuple):
    """value * 2**exponent; value a signed integer of 53 bits as a double, or 0."""

    value: Tensor
    exponent: Tensor


def _wide(x: Decoded) -> _Wide:
    free = torch.where(x.significand == 0, 0, 53 - bit_length(x.significand))
    return _Wide((x.sign * (x.significand << free)).to(torch.float64), x.exponent - 52 - free)


def _power(exponent: Tensor) -> Tensor:
    """2.0**exponent, by its bits."""
    return ((exponent + 1023) << 52).view(torch.float64)


def _two_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x + y rounded, and its exact error (Knuth, TAOCP 2, 4.2.2)."""
    total = x + y
    virtual = total - x
    return total, (x - (total - virtual)) + (y - virtual)


def _two_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x * y rounded, and its exact error, without a fused multiply-add (Dekker 1971)."""
    product = x * y
    x_high, y_high = _high(x), _high(y)
    x_low, y_low = x - x_high, y - y_high
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _high(x: Tensor) -> Tensor:
    """The upper 26 bits of x (Veltkamp)."""
    scaled = x * float((1 << 27) + 1)
    return scaled - (scaled - x)


def _sum_to_odd(x: Tensor, y: Tensor) -> Tensor:
    """x + y; where that is inexact, the neighbour with an odd last bit."""
    total, error = _two_sum(x, y)
    bits = total.view(torch.int64)
    away = torch.where((error > 0) == (total > 0), 1, -1)
    even = (error != 0) & (bits & 1 == 0)
    return torch.where(even, bits + away, bits).view(torch.float64)


def _fma64(x: Decoded, y: Decoded, codes: Tensor) -> Tensor:
    """Codes of the binary64 nearest to x * y + c, ties to even (Boldo and Melquiond, IEEE TC 57(4), 2008)."""
    c = decode(codes, _F64)
    first, second, addend = _wide(x), _wide(y), _wide(c)
    exponent = first.exponent + second.exponent
    exponent = torch.where(first.value * second.value == 0, addend.exponent, exponent)
    addend_exponent = torch.where(addend.value == 0, exponent, addend.exponent)
    # Beyond 400 places apart the smaller one only says on which side the larger lies: 400 says the same.
    apart = (addend_exponent - exponent).clamp(-400, 400)
    base = torch.maximum(exponent, addend_exponent - apart)
    high, low = _two_product(first.value, second.value)
    upper, upper_error = _two_sum(addend.value * _power(apart), low)
    total, total_error = _two_sum(high, upper)
    result, rest = _two_sum(total, _sum_to_odd(total_error, upper_error))
    return _special64(_round64(result, rest, base), x, y, c, codes, result)


def _round64(result: Tensor, rest: Tensor, base: Tensor) -> Tensor:
    """Codes of (result + rest) * 2**base without its sign; rest is at most half an ulp, and only its sign matters."""
    bits = result.abs().view(torch.int64)
    significand = torch.where(bits == 0, 0, bits & ((1 << 52) - 1) | (1 << 52))
    exponent = (bits >> 52) - 1075 + base
    below = (rest != 0) & ((rest > 0) != (result > 0))
    # Two more bits: the first takes the borrow, the second, odd, says that something is left.
    extended = ((significand << 2) - below.to(torch.int64)) * 2 + (rest != 0).to(torch.int64)
    return encode(extended, exponent - 3, CONVERSIONS["rne52"])


def _special64(codes: Tensor, x: Decoded, y: Decoded, c: Decoded, c_codes: Tensor, result: Tensor) -> Tensor:
    """``codes`` with the sign of ``result``, and NaN, infinities and signs of zero of the fused multiply-add."""
    minus = -(1 << 63)
    product_negative, c_negative = x.sign * y.sign < 0, c.sign < 0
    negative = (result < 0) | ((result == 0) & product_negative & c_negative)
    infinite = x.infinite | y.infinite
    negative = torch.where(c.infinite, c_negative, negative)
    negative = torch.where(infinite, product_negative, negative)
    codes = torch.where(infinite | c.infinite, infinity(_F64), codes)
    codes = torch.where(negative, codes | minus, codes)
    clash = infinite & c.infinite & (product_negative ^ c_negative)
    invalid = (x.infinite & y.zero) | (x.zero & y.infinite) | clash
    # NaN bits of binary64 are those of the machine that made the golden vectors: made here negative, else kept.
    codes = torch.where(invalid, _NAN64 | minus, codes)
    codes = torch.where(c.nan, c_codes | (1 << 51), codes)
    return torch.where(x.nan | y.nan, _NAN64, codes)
