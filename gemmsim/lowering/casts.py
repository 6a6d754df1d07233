"""Lowers casts to floating point, fixed point and every other element format to numbers of kernels."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
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

from .abi_constants import FLOAT32, MODES, CastFlag
from .cast_numbers import CastNumbers, flag_bits
from .grid_casts import binary8_numbers, own_exponent_numbers, supernormal_numbers

__all__ = ["cast_numbers", "stays_in_float32"]


def _below_zero(cast: Cast, fmt: FloatFormat, *, infinite: bool) -> float:
    """Return what a negative result becomes in an unsigned format."""
    if fmt.specials is Specials.SCALE:
        return math.nan  # the format has no zero to clamp to
    if cast.overflow is not Overflow.INFINITY or not fmt.has_nan or fmt.specials is Specials.P3109_FINITE:
        return 0.0
    upward = cast.rounding.mode in (RoundingMode.RTZ, RoundingMode.RU)
    return 0.0 if upward and not infinite else math.nan


def _past_the_end(cast: Cast, fmt: FloatFormat, side: int) -> float:
    """Return what a finite result beyond the range becomes, on the side ``side`` (+1 or -1)."""
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
    """Return infinity if the format has it, else NaN if it has one, else the bound.

    P3109's finite domain saturates to the bound although it has a NaN.
    """
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
    """Return what an infinite input becomes, on the side ``side`` (+1 or -1)."""
    if side < 0 and not fmt.signed:
        return _below_zero(cast, fmt, infinite=True)
    bound = fmt.max if side > 0 else fmt.min
    policy = cast.overflow
    if policy is Overflow.CLAMP or (policy is Overflow.SATURATE and fmt.specials is not Specials.IEEE):
        return bound
    if policy is Overflow.INFINITY:
        return _special(fmt, side)
    return side * math.inf if fmt.has_inf else bound


def _float_numbers(cast: Cast, fmt: FloatFormat) -> CastNumbers:
    by_code = fmt.p == 1 and (fmt.specials.is_p3109 or fmt.specials is Specials.SCALE)
    flags = flag_bits(
        (CastFlag.NO_SUBNORMALS, not fmt.subnormals),
        (CastFlag.NEG_ZERO, fmt.has_negative_zero),
        (CastFlag.NO_ZERO, not fmt.has_zero),
        (CastFlag.CODE_PARITY, by_code),
    )
    return CastNumbers(
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


def _fixed_numbers(cast: Cast, fmt: FixedFormat) -> CastNumbers:
    # Every value lies below 2**emin, so the quantum is 2**(emin-p+1) = 2**-frac everywhere.
    p = fmt.bits if fmt.clamp else 53
    emin = p - 1 - fmt.frac
    lo, hi = (fmt.min, fmt.max) if fmt.clamp else (-math.inf, math.inf)
    return CastNumbers(
        p=p,
        emin=emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        flags=flag_bits(),
        emax=emin,
        lo=lo,
        hi=hi,
        over_neg=lo,
        over_pos=hi,
        inf_neg=lo,
        inf_pos=hi,
    )


@lru_cache(maxsize=4096)
def cast_numbers(cast: Cast) -> CastNumbers:
    """Return the numbers of a cast.

    Raises:
        UnsupportedSpec: for a list of values, which no kernel looks up, and for two roundings in a row.
    """
    fmt = cast.format
    if cast.via is not None:
        raise UnsupportedSpec(
            f"{cast} here; allowed: two roundings in a row where partial sums are combined, and as an output.\n"
            f"  Round twice: to {cast.via}, then to {cast.steps[1]}."
        )
    if isinstance(fmt, CodebookFormat):
        raise UnsupportedSpec(
            f"{fmt} here; allowed: lists of values as operands, accumulators and outputs, and in quantize.\n"
            "  Use a float, fixed-point or block format for the steps of functions."
        )
    if isinstance(fmt, SupernormalFormat):
        return supernormal_numbers(cast, fmt)
    if isinstance(fmt, OwnExponentFormat):
        return own_exponent_numbers(cast, fmt)
    if isinstance(fmt, FloatFormat):
        found = _float_numbers(cast, fmt)
    else:
        found = binary8_numbers(cast, fmt) if isinstance(fmt, Binary8Format) else _fixed_numbers(cast, fmt)
    # Modes below 0 round to nearest with ties by direction. The flag excludes the GEMM's vector kernels (types.h).
    return replace(found, flags=found.flags | CastFlag.CODE_PARITY.value) if found.mode < 0 else found


def stays_in_float32(cast: Cast) -> bool:
    """Whether every result of casting float32 numbers is a float32 number.

    Rounding does not lengthen a number, but the ends of the format's range may be too long for float32.
    """
    numbers = cast_numbers(cast)
    ends = numbers.lo, numbers.hi
    return numbers.emax < FLOAT32.top and (numbers.p <= FLOAT32.p or all(map(_is_float32, ends)))


def _is_float32(x: float) -> bool:
    return not math.isfinite(x) or struct.unpack("f", struct.pack("f", x))[0] == x
