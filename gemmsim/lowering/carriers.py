"""Proofs of which carrier is exact for a program: in what arithmetic its kernel may compute.

The same conditions stand in C++: on constants for kernels in cutlass_kernels/include/gemmsim/device/facts.h, and on
what is known of the data for the C library in cutlass_kernels/cpu/product/kernel_choice.h.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Final, NamedTuple

from .abi_constants import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, MODES, CastFlag, DType, Method
from .cast_numbers import CastNumbers
from .casts import cast_numbers
from .program import Program

__all__ = ["Carrier", "Facts", "carrier_of", "fits", "is_native", "is_packed", "is_small", "operand_facts"]


class Carrier(IntEnum):
    """What a register is kept in: float, double or integers of 128 bits, the cheapest first."""

    FLOAT = 0
    DOUBLE = 1
    INTEGERS = 2


class Facts(NamedTuple):
    """Of an operand's numbers: significand bits, exponent of the quantum, exponent that bounds magnitudes."""

    p: int
    quantum: int
    top: int


_FLOATS: Final = {Carrier.FLOAT: FLOAT32, Carrier.DOUBLE: FLOAT64}
_RANDOM: Final = next(number for mode, number in MODES.items() if mode.name == "SR")


def fits(c: CastNumbers, carrier: Carrier, spare: bool) -> bool:
    """gemmsim::fits: one rounding from the carrier is right; ``spare``: of a number rounded to odd."""
    one = _FLOATS[carrier]
    if c.mode > _RANDOM or c.has(CastFlag.CODE_PARITY, CastFlag.NO_ZERO):
        return False
    if c.emin < one.emin or c.emax >= one.top or c.emin + one.p - c.p >= one.top - 1:
        return False
    extra = (c.rbits + 1 if c.mode == _RANDOM else 2) if spare else 0
    return c.p + extra <= one.p and (c.mode != _RANDOM or c.rbits <= one.p - 1)


def _is_ieee(c: CastNumbers) -> bool:
    """To nearest even with subnormal numbers, signed zeros and overflow to infinity."""
    infinite = [c.over_pos, -c.over_neg, c.inf_pos, -c.inf_neg] == [math.inf] * 4
    return c.mode == 0 and infinite and c.has(CastFlag.NEG_ZERO) and not c.has(CastFlag.NO_SUBNORMALS)


def is_native(c: CastNumbers, carrier: Carrier) -> bool:
    """The carrier, rounded to nearest, is the format."""
    one = _FLOATS[carrier]
    return (c.p, c.emin, c.emax) == (one.p, one.emin, one.top - 1) and _is_ieee(c)


def carrier_of(what: Program, narrow: bool, fp32: bool) -> Carrier:
    """The cheapest that holds operands, registers and totals.

    ``narrow``: float holds the operands; ``fp32``: the arithmetic is that of float, each step rounded to it.
    """
    casts = [cast_numbers(c) for c in (what.add, what.mul) if c is not None]
    totals = [cast_numbers(w.cast) for w in what.wrappers if w.cast is not None]

    def hold(carrier: Carrier) -> bool:
        return all(fits(c, carrier, not fp32) or is_native(c, carrier) for c in totals)

    if what.method == Method.HARDWARE:
        return Carrier.FLOAT if hold(Carrier.FLOAT) else Carrier.INTEGERS
    if what.method in (Method.INTEGER, Method.FIXED):
        bits, frac = what.register.bits, what.register.frac
        held = bits <= FLOAT32.p and frac <= -FLOAT32.quantum and bits - frac < FLOAT32.top
        exact = held and all(fits(c, Carrier.FLOAT, False) for c in totals)
        return Carrier.FLOAT if narrow and exact else Carrier.INTEGERS
    if what.method in (Method.LONG, Method.BINNED):
        return Carrier.INTEGERS
    for carrier in (Carrier.FLOAT,) if fp32 else (Carrier.FLOAT, Carrier.DOUBLE) if narrow else (Carrier.DOUBLE,):
        native = all(is_native(c, carrier) for c in casts)
        if (native or all(fits(c, carrier, not fp32) for c in casts)) and hold(carrier):
            return carrier
    return Carrier.INTEGERS


def operand_facts(c: CastNumbers, dtype: DType) -> Facts:
    """gemmsim::operand_facts of an operand of ``dtype`` and its cast, or none."""
    if not c.has(CastFlag.PRESENT):
        return Facts(dtype.p, dtype.quantum, dtype.top)
    top = dtype.top + int(c.p < dtype.p or c.quantum > dtype.quantum)  # the largest number may be rounded up
    if math.isfinite(c.hi) and (math.isfinite(c.inf_pos) or math.isfinite(c.inf_neg) or c.emax + 1 < top):
        top = c.emax + 1
    return Facts(min(c.p, dtype.p), max(c.quantum, dtype.quantum), top)


def is_packed(what: Program, fp32: bool, operands: tuple[Facts, Facts]) -> bool:
    """gemmsim::PackedFormat: register and operands are binary16, or bfloat16, numbers."""
    if what.method != Method.REGISTER or what.mul is not None or fp32 or what.init == "c_first":
        return False
    add = cast_numbers(what.add)
    own = FLOAT16 if add.p == FLOAT16.p else BFLOAT16
    if (add.p, add.quantum, add.emax + 1) != (own.p, own.quantum, own.top) or not _is_ieee(add):
        return False
    return all(one.p <= own.p and one.quantum >= own.quantum and one.top <= own.top for one in operands)


def is_small(what: Program, operands: tuple[Facts, Facts]) -> bool:
    """gemmsim::SmallIntegers: whole operands and an integer register that ordinary integers hold."""
    own, (a, b) = what.register, operands
    if min(a.quantum, b.quantum) < 0 or max(a.top, b.top) > 30 or own.shift:
        return False
    term = a.top + b.top
    return not own.saturate or (term <= 31 if own.at_end else max(term, own.bits) <= 62)
