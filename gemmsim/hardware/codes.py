"""Stored codes to integers and back, on whole tensors of int64: exact, no floating-point arithmetic."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..formats import Specials
from .operands import Operand, operand
from .step_parameters import Conversion

__all__ = [
    "ZERO_EXPONENT",
    "Decoded",
    "bit_length",
    "decode",
    "encode",
    "infinity",
    "shift_down",
    "shift_floor",
    "sign_bit",
]

#: Of a zero (operand, c or scale): so low that no addend with one has the largest exponent.
ZERO_EXPONENT = -1024

#: Shifts of int64 beyond this are undefined; every magnitude here is below 2**62, so a shift by it leaves nothing.
_WIDEST_SHIFT = 62


class Decoded(NamedTuple):
    """value = sign * significand * 2**(exponent - fraction_bits); ``exponent`` is that of the hidden bit's place.

    Not finite where ``nan`` or ``infinite``; the other fields are then meaningless, except that ``sign`` is that of
    the infinity.
    """

    sign: Tensor
    significand: Tensor
    exponent: Tensor
    nan: Tensor
    infinite: Tensor

    @property
    def zero(self) -> Tensor:
        """Where the value is zero."""
        return (self.significand == 0) & ~self.infinite & ~self.nan

    @property
    def signed(self) -> Tensor:
        """sign * significand."""
        return self.sign * self.significand

    def part(self, *index: Any) -> Decoded:
        """The elements at ``index`` of each field."""
        return Decoded(*(field[index] for field in self))


def decode(codes: Tensor, kind: Operand) -> Decoded:
    """The numbers that ``codes`` (int64, unsigned) stand for.

    A zero has exponent ``ZERO_EXPONENT``; a subnormal that of the smallest normal, with its hidden bit 0.
    """
    if kind.storage.specials is Specials.SCALE:
        one = torch.ones_like(codes)
        never = torch.zeros_like(codes, dtype=torch.bool)
        return Decoded(one, one, codes + kind.storage.emin, codes == (1 << kind.width) - 1, never)
    t = kind.fraction_bits
    fields = kind.width - 1 - t
    trailing = codes & ((1 << t) - 1)
    field = (codes >> t) & ((1 << fields) - 1)
    negative = (codes >> (kind.width - 1)) & 1
    trailing_seen = (trailing >> kind.dropped) << kind.dropped
    significand = torch.where(field == 0, trailing_seen, trailing_seen | (1 << t))
    exponent = field.clamp(min=1) + (kind.storage.emin - 1)
    exponent = torch.where(significand == 0, ZERO_EXPONENT, exponent)
    sign = 1 - 2 * negative if kind.signed else torch.ones_like(codes)
    nan, infinite = _specials(kind, field, trailing_seen, negative, (1 << fields) - 1)
    return Decoded(sign, significand, exponent, nan, infinite)


def _specials(kind: Operand, field: Tensor, trailing: Tensor, negative: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Where codes are NaN, and where infinite. tf32 and xf32 look at the truncated word, as the vectors do."""
    never = torch.zeros_like(field, dtype=torch.bool)
    specials = kind.storage.specials
    if specials is Specials.IEEE:
        return (field == top) & (trailing != 0), (field == top) & (trailing == 0)
    if specials is Specials.NAN_ONLY:
        return (field == top) & (trailing == (1 << kind.fraction_bits) - 1), never
    if specials is Specials.FNUZ:
        return (negative == 1) & (field == 0) & (trailing == 0), never
    assert specials is Specials.NONE
    return never, never


def shift_down(magnitude: Tensor, by: Tensor | int) -> Tensor:
    """floor(magnitude * 2**by) for magnitude >= 0; bits that leave are cut."""
    shift = torch.as_tensor(by, dtype=torch.int64)
    left, right = shift.clamp(0, _WIDEST_SHIFT), (-shift).clamp(0, _WIDEST_SHIFT)
    return (magnitude << left) >> right


def shift_floor(value: Tensor, by: Tensor | int) -> Tensor:
    """floor(value * 2**by), toward minus infinity for negative values too."""
    return shift_down(value, by)  # an arithmetic right shift floors


def bit_length(magnitude: Tensor) -> Tensor:
    """Bits of ``magnitude`` (0 .. 2**62), 0 for 0. In two halves, each exact as a double."""
    high, low = magnitude >> 31, magnitude & ((1 << 31) - 1)
    long = torch.frexp(high.to(torch.float64)).exponent + 31
    return torch.where(high > 0, long, torch.frexp(low.to(torch.float64)).exponent).to(torch.int64)


def infinity(kind: Operand) -> int:
    """Code of +infinity of a binary interchange format; the sign bit added gives -infinity."""
    fields = kind.width - 1 - kind.fraction_bits
    return ((1 << fields) - 1) << kind.fraction_bits


def sign_bit(kind: Operand) -> int:
    """The sign bit as an int64 adds it."""
    return -(1 << 63) if kind.width == 64 else 1 << (kind.width - 1)


def encode(value: Tensor, exponent: Tensor, conversion: Conversion) -> Tensor:
    """Codes of ``value * 2**exponent`` (value a signed int64) under ``conversion``; |value| < 2**62.

    Zero gives +0, and so does underflow unless the conversion keeps its sign; past the largest finite value lies
    infinity.
    """
    kind = operand(conversion.operand)
    t, keep, emin = kind.fraction_bits, conversion.fraction_bits, kind.storage.emin
    magnitude = value.abs()
    top = torch.where(magnitude == 0, emin, bit_length(magnitude) - 1 + exponent).clamp(min=emin)
    shift = exponent - (top - keep)  # bits are kept down to 2**(top - keep)
    kept = shift_down(magnitude, shift)
    if conversion.nearest:
        kept = kept + _rounds_up(magnitude, kept, -shift)
    carried = kept >> (keep + 1)
    kept, top = kept >> carried, top + carried
    kept = kept << (t - keep)
    normal = kept >= (1 << t)
    field = torch.where(normal, top - emin + 1, 0)
    code = (field << t) | (kept & ((1 << t) - 1))
    code = torch.where(field >= infinity(kind) >> t, infinity(kind), code)
    code = torch.where(kept == 0, 0, code)
    return torch.where((value < 0) & ((kept != 0) | conversion.signed), code | sign_bit(kind), code)


def _rounds_up(magnitude: Tensor, kept: Tensor, cut: Tensor) -> Tensor:
    """1 where the ``cut`` low bits of ``magnitude`` are above half, or half with ``kept`` odd; else 0."""
    width = cut.clamp(1, _WIDEST_SHIFT)
    rest = magnitude & ((torch.ones_like(magnitude) << width) - 1)
    half = torch.ones_like(magnitude) << (width - 1)
    up = (rest > half) | ((rest == half) & (kept & 1 == 1))
    return (up & (cut > 0) & (cut <= _WIDEST_SHIFT)).to(torch.int64)
