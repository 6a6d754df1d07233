"""Records of casts to formats that are not one grid of a fixed precision (cutlass_kernels/include/gemmsim/grid.h)."""

from __future__ import annotations

import math

from gemmsim.formats import (
    Binary8Format,
    Binary8Policy,
    Cast,
    Overflow,
    OwnExponentFormat,
    PowerTie,
    RoundingMode,
    SupernormalFormat,
)

from .records import CastRecord

__all__ = ["MODES", "binary8_record", "own_exponent_record", "supernormal_record"]

#: gemmsim::Mode of include/gemmsim/types.h.
MODES = {mode: index for index, mode in enumerate(RoundingMode)} | {RoundingMode.RND: -1, RoundingMode.RNU: -2}
_NEG_ZERO, _CODE_PARITY, _NO_CARRY, _PRESENT = 2, 4, 16, 32
_SUPERNORMAL, _EVEN_EXPONENT, _FIRST_IS_ZERO, _NEGATIVE_NAN = 64, 128, 256, 512
_SHIFT = 10


def supernormal_record(cast: Cast, fmt: SupernormalFormat) -> CastRecord:
    """Record of a cast to a supernormal format; emin and emax such that they bound the exponents of all values."""
    # Planners read emin - p + 1 as the exponent of the lowest bit there is.
    emin = fmt.lowest_exponent + fmt.trailing_bits
    places = (fmt.first_binade - emin) | (fmt.highest_exponent - fmt.last_binade) << 11
    flags = _PRESENT | _NEG_ZERO | _CODE_PARITY | _SUPERNORMAL | places << _SHIFT
    flags |= _EVEN_EXPONENT if fmt.tie is PowerTie.EVEN_EXPONENT else 0
    record = CastRecord(
        p=fmt.p, emin=emin, mode=MODES[cast.rounding.mode], rbits=cast.rounding.bits, emax=fmt.highest_exponent
    )
    # A C int: its top bit is one of the places.
    record.flags = flags - (1 << 32) if flags >> 31 else flags
    record.lo, record.hi = fmt.min, fmt.max
    mode, infinite = cast.rounding.mode, fmt.has_inf and cast.overflow is not Overflow.CLAMP
    overflows = infinite and cast.overflow is Overflow.INFINITY and mode is not RoundingMode.RTZ
    record.over_pos = math.inf if overflows and mode is not RoundingMode.RD else fmt.max
    record.over_neg = -math.inf if overflows and mode is not RoundingMode.RU else fmt.min
    record.inf_pos, record.inf_neg = (math.inf, -math.inf) if infinite else (fmt.max, fmt.min)
    return record


def own_exponent_record(cast: Cast, fmt: OwnExponentFormat) -> CastRecord:
    """Record of a cast to block floating point with an exponent for each number."""
    infinite = fmt.keep_infinity
    return CastRecord(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        # Not the nearest value of one set: what planners prove of roundings does not hold, so parity keeps them away.
        flags=_PRESENT | _CODE_PARITY | _NO_CARRY,
        emax=fmt.emax,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=fmt.min,
        over_pos=fmt.max,
        inf_neg=-math.inf if infinite else fmt.min,
        inf_pos=math.inf if infinite else fmt.max,
    )


def binary8_record(cast: Cast, fmt: Binary8Format) -> CastRecord:
    """Record of a cast to an old binary8 format."""
    flags = _PRESENT
    flags |= _NEGATIVE_NAN if not fmt.signed else 0
    flags |= _FIRST_IS_ZERO if fmt.skips_first else 0
    # Parity of codes for p = 1; with the other two it only says that the vector kernels of the GEMM do not apply.
    flags |= _CODE_PARITY if fmt.p == 1 or flags != _PRESENT else 0
    to_infinity = fmt.policy is Binary8Policy.SATURATE_INFTY
    top, bottom = (math.inf, -math.inf) if to_infinity else (fmt.max, fmt.min)
    bottom = bottom if fmt.signed else math.nan
    return CastRecord(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        flags=flags,
        emax=fmt.emax,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=bottom,
        over_pos=top,
        inf_neg=bottom,
        inf_pos=top,
    )
