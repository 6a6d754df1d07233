"""Casts as the numbers that the C library works with: one flat record, every policy resolved to values."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import (
    Binary8Format,
    Cast,
    CodebookFormat,
    FixedFormat,
    FloatFormat,
    Overflow,
    OwnExponentFormat,
    RoundingMode,
    Specials,
    SupernormalFormat,
)

from .grid_params import MODES, binary8_record, own_exponent_record, supernormal_record
from .records import CastRecord

__all__ = ["cast_record", "float32_holds"]

NO_SUBNORMALS, NEG_ZERO, CODE_PARITY, NO_ZERO, PRESENT = 1, 2, 4, 8, 32


def _below_zero(cast: Cast, fmt: FloatFormat, *, infinite: bool) -> float:
    """What a negative result becomes in an unsigned format."""
    if fmt.specials is Specials.SCALE:
        return math.nan  # no zero to clamp to
    if cast.overflow is not Overflow.INFINITY or not fmt.has_nan or fmt.specials is Specials.P3109_FINITE:
        return 0.0
    upward = cast.rounding.mode in (RoundingMode.RTZ, RoundingMode.RU)
    return 0.0 if upward and not infinite else math.nan


def _past_the_end(cast: Cast, fmt: FloatFormat, side: int) -> float:
    """What a finite result beyond the range becomes, on the side ``side`` (+1 or -1)."""
    if side < 0 and not fmt.signed:
        return _below_zero(cast, fmt, infinite=False)
    bound = fmt.max if side > 0 else fmt.min
    if cast.overflow is not Overflow.INFINITY:
        return bound
    mode = cast.rounding.mode
    if mode is RoundingMode.RTZ or mode is (RoundingMode.RD if side > 0 else RoundingMode.RU):
        return bound
    if mode is RoundingMode.RO and _largest_is_odd(fmt):
        return bound
    return _special(fmt, side)


def _special(fmt: FloatFormat, side: int) -> float:
    """Infinity if the format has it, else NaN if it has one, else the bound. P3109's finite domain saturates."""
    if fmt.has_inf:
        return side * math.inf
    if fmt.has_nan and fmt.specials is not Specials.P3109_FINITE:
        return math.nan
    return fmt.max if side > 0 else fmt.min


def _largest_is_odd(fmt: FloatFormat) -> bool:
    """Whether rounding to odd stops at the largest finite number instead of passing it."""
    if fmt.ties_by_code:
        return fmt.max_code % 2 == 1
    quantum = math.ldexp(1.0, max(fmt.emax, fmt.emin) - fmt.p + 1)
    return int(fmt.max / quantum) % 2 == 1


def _infinity(cast: Cast, fmt: FloatFormat, side: int) -> float:
    """What an infinite input becomes."""
    if side < 0 and not fmt.signed:
        return _below_zero(cast, fmt, infinite=True)
    bound = fmt.max if side > 0 else fmt.min
    policy = cast.overflow
    if policy is Overflow.CLAMP or (policy is Overflow.SATURATE and fmt.specials is not Specials.IEEE):
        return bound
    if policy is Overflow.INFINITY:
        return _special(fmt, side)
    return side * math.inf if fmt.has_inf else bound


def _float_record(cast: Cast, fmt: FloatFormat) -> CastRecord:
    flags = PRESENT
    flags |= 0 if fmt.subnormals else NO_SUBNORMALS
    flags |= NEG_ZERO if fmt.has_negative_zero else 0
    flags |= 0 if fmt.has_zero else NO_ZERO
    if fmt.p == 1 and (fmt.specials.is_p3109 or fmt.specials is Specials.SCALE):
        flags |= CODE_PARITY
    return CastRecord(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        flags=flags,
        emax=fmt.emax,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=_past_the_end(cast, fmt, -1),
        over_pos=_past_the_end(cast, fmt, +1),
        inf_neg=_infinity(cast, fmt, -1),
        inf_pos=_infinity(cast, fmt, +1),
    )


def _fixed_record(cast: Cast, fmt: FixedFormat) -> CastRecord:
    # Every value lies below 2**emin, so that the one quantum 2**(emin-p+1) = 2**-frac holds everywhere.
    p = fmt.bits if fmt.clamp else 53
    emin = p - 1 - fmt.frac
    lo, hi = (fmt.min, fmt.max) if fmt.clamp else (-math.inf, math.inf)
    return CastRecord(
        p=p,
        emin=emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        flags=PRESENT,
        emax=emin,
        lo=lo,
        hi=hi,
        over_neg=lo,
        over_pos=hi,
        inf_neg=lo,
        inf_pos=hi,
    )


@lru_cache(maxsize=4096)
def cast_record(cast: Cast) -> CastRecord:
    """The C record of a cast. Callers copy it; it is shared."""
    fmt = cast.format
    if isinstance(fmt, CodebookFormat):
        raise UnsupportedSpec(
            f"{fmt} here; allowed: lists of values as operands, registers and outputs of products, and in quantize.\n"
            "  Use a float, fixed-point or block format for the steps of functions."
        )
    if isinstance(fmt, SupernormalFormat):
        return supernormal_record(cast, fmt)
    if isinstance(fmt, OwnExponentFormat):
        return own_exponent_record(cast, fmt)
    if isinstance(fmt, FloatFormat):
        record = _float_record(cast, fmt)
    else:
        record = binary8_record(cast, fmt) if isinstance(fmt, Binary8Format) else _fixed_record(cast, fmt)
    # To nearest with ties by direction: the flag keeps the GEMM's vector kernels away (types.h).
    record.flags |= CODE_PARITY if record.mode < 0 else 0
    return record


def float32_holds(cast: Cast) -> bool:
    """Whether every result of casting float32 numbers is one: rounding makes none longer, but the ends may be long."""
    record = cast_record(cast)
    return record.emax <= 127 and (record.p <= 24 or all(_is_float32(end) for end in (record.lo, record.hi)))


def _is_float32(x: float) -> bool:
    return not math.isfinite(x) or ctypes.c_float(x).value == x
