"""Proves which carrier is exact for a program: the native arithmetic in which its kernel may compute.

The same conditions exist in C++. cutlass_kernels/include/gemmsim/device/facts.h applies them to the constants of
kernels. cutlass_kernels/cpu/product/kernel_choice.h applies them to the bounds of the data, for the C library.
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
    """The type that holds a running sum: float, double or integers of 128 bits, the cheapest first."""

    FLOAT = 0
    DOUBLE = 1
    INTEGERS = 2


class Facts(NamedTuple):
    """Bounds of an operand's numbers: significand bits, exponent of the quantum, exponent that bounds magnitudes."""

    p: int
    quantum: int
    top: int


_FLOATS: Final = {Carrier.FLOAT: FLOAT32, Carrier.DOUBLE: FLOAT64}
_RANDOM: Final = next(number for mode, number in MODES.items() if mode.name == "SR")


def fits(c: CastNumbers, carrier: Carrier, spare: bool) -> bool:
    """gemmsim::fits: whether one rounding from ``carrier`` to the format of ``c`` gives the correct result.

    ``spare``: the carrier's number has been rounded to odd, so the carrier needs additional bits below the format's
    last place, or below the last random bit.
    """
    one = _FLOATS[carrier]
    if c.mode > _RANDOM or c.has(CastFlag.CODE_PARITY, CastFlag.NO_ZERO):
        return False
    if c.emin < one.emin or c.emax >= one.top or c.emin + one.p - c.p >= one.top - 1:
        return False
    extra = (c.rbits + 1 if c.mode == _RANDOM else 2) if spare else 0
    return c.p + extra <= one.p and (c.mode != _RANDOM or c.rbits <= one.p - 1)


def _is_ieee(c: CastNumbers) -> bool:
    """Whether ``c`` rounds to nearest even, has subnormal numbers and signed zeros, and overflows to infinity."""
    infinite = [c.over_pos, -c.over_neg, c.inf_pos, -c.inf_neg] == [math.inf] * 4
    return c.mode == 0 and infinite and c.has(CastFlag.NEG_ZERO) and not c.has(CastFlag.NO_SUBNORMALS)


def is_native(c: CastNumbers, carrier: Carrier) -> bool:
    """Whether rounding to nearest in ``carrier`` is rounding to the format of ``c``."""
    one = _FLOATS[carrier]
    return (c.p, c.emin, c.emax) == (one.p, one.emin, one.top - 1) and _is_ieee(c)


def carrier_of(what: Program, narrow: bool, fp32: bool) -> Carrier:
    """Return the cheapest carrier that holds operands, running sums and partial sums exactly.

    ``narrow``: float holds the operands. ``fp32``: the arithmetic is that of float, with each step rounded to float.
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
    """gemmsim::operand_facts: bounds of an operand of ``dtype`` after its cast, if it has one."""
    if not c.has(CastFlag.PRESENT):
        return Facts(dtype.p, dtype.quantum, dtype.top)
    top = dtype.top + int(c.p < dtype.p or c.quantum > dtype.quantum)  # the cast may round the largest number up
    if math.isfinite(c.hi) and (math.isfinite(c.inf_pos) or math.isfinite(c.inf_neg) or c.emax + 1 < top):
        top = c.emax + 1
    return Facts(min(c.p, dtype.p), max(c.quantum, dtype.quantum), top)


def is_packed(what: Program, fp32: bool, operands: tuple[Facts, Facts]) -> bool:
    """gemmsim::PackedFormat: whether the register and both operands have binary16 numbers, or all bfloat16 numbers."""
    if what.method != Method.REGISTER or what.mul is not None or fp32 or what.init == "c_first":
        return False
    add = cast_numbers(what.add)
    own = FLOAT16 if add.p == FLOAT16.p else BFLOAT16
    if (add.p, add.quantum, add.emax + 1) != (own.p, own.quantum, own.top) or not _is_ieee(add):
        return False
    return all(one.p <= own.p and one.quantum >= own.quantum and one.top <= own.top for one in operands)


def is_small(what: Program, operands: tuple[Facts, Facts]) -> bool:
    """gemmsim::SmallIntegers: whether operands are integers and an ordinary integer holds the integer register."""
    own, (a, b) = what.register, operands
    if min(a.quantum, b.quantum) < 0 or max(a.top, b.top) > 30 or own.shift:
        return False
    term = a.top + b.top
    return not own.saturate or (term <= 31 if own.at_end else max(term, own.bits) <= 62)
