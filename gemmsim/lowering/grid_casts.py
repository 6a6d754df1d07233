"""Casts to formats that are not one grid of a fixed precision (cutlass_kernels/include/gemmsim/grid.h)."""

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

from .abi_constants import MODES, CastFlag
from .cast_numbers import CastNumbers, flag_bits

__all__ = ["binary8_numbers", "own_exponent_numbers", "supernormal_numbers"]

#: gemmsim::GRID_SHIFT.
_SHIFT = 10


def supernormal_numbers(cast: Cast, fmt: SupernormalFormat) -> CastNumbers:
    """A cast to a supernormal format; emin and emax such that they bound the exponents of all values."""
    # Planners read emin - p + 1 as the exponent of the lowest bit there is.
    emin = fmt.lowest_exponent + fmt.trailing_bits
    places = (fmt.first_binade - emin) | (fmt.highest_exponent - fmt.last_binade) << 11
    flags = places << _SHIFT | flag_bits(
        (CastFlag.NEG_ZERO, True),
        (CastFlag.CODE_PARITY, True),
        (CastFlag.SUPERNORMAL, True),
        (CastFlag.EVEN_EXPONENT, fmt.tie is PowerTie.EVEN_EXPONENT),
    )
    mode, infinite = cast.rounding.mode, fmt.has_inf and cast.overflow is not Overflow.CLAMP
    overflows = infinite and cast.overflow is Overflow.INFINITY and mode is not RoundingMode.RTZ
    return CastNumbers(
        p=fmt.p,
        emin=emin,
        mode=MODES[mode],
        rbits=cast.rounding.bits,
        # A C int: its top bit is one of the places.
        flags=flags - (1 << 32) if flags >> 31 else flags,
        emax=fmt.highest_exponent,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=-math.inf if overflows and mode is not RoundingMode.RU else fmt.min,
        over_pos=math.inf if overflows and mode is not RoundingMode.RD else fmt.max,
        inf_neg=-math.inf if infinite else fmt.min,
        inf_pos=math.inf if infinite else fmt.max,
    )


def own_exponent_numbers(cast: Cast, fmt: OwnExponentFormat) -> CastNumbers:
    """A cast to block floating point with an exponent for each number."""
    infinite = fmt.keep_infinity
    return CastNumbers(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        # Not the nearest value of one set: what planners prove of roundings does not hold, so parity keeps them away.
        flags=flag_bits((CastFlag.CODE_PARITY, True), (CastFlag.NO_CARRY, True)),
        emax=fmt.emax,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=fmt.min,
        over_pos=fmt.max,
        inf_neg=-math.inf if infinite else fmt.min,
        inf_pos=math.inf if infinite else fmt.max,
    )


def binary8_numbers(cast: Cast, fmt: Binary8Format) -> CastNumbers:
    """A cast to an old binary8 format."""
    own_grid = not fmt.signed or fmt.skips_first
    flags = flag_bits(
        (CastFlag.NEGATIVE_NAN, not fmt.signed),
        (CastFlag.FIRST_IS_ZERO, fmt.skips_first),
        # Parity of codes for p = 1; on a grid of its own it only keeps the vector kernels of the GEMM away.
        (CastFlag.CODE_PARITY, fmt.p == 1 or own_grid),
    )
    to_infinity = fmt.policy is Binary8Policy.SATURATE_INFTY
    keeps_infinity = to_infinity or fmt.policy is Binary8Policy.SATURATE_PROPAGATE
    below = (math.nan, math.nan) if not fmt.signed else (fmt.min, -math.inf)
    return CastNumbers(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        flags=flags,
        emax=fmt.emax,
        lo=fmt.min,
        hi=fmt.max,
        over_neg=below[to_infinity],
        over_pos=math.inf if to_infinity else fmt.max,
        inf_neg=below[keeps_infinity],
        inf_pos=math.inf if keeps_infinity else fmt.max,
    )
