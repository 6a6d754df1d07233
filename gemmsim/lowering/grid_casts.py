"""Lowers casts to formats with an irregular value set (cutlass_kernels/include/gemmsim/grid.h)."""

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
    """Return the numbers of a cast to a supernormal format; ``emin`` and ``emax`` bound the exponents of all values."""
    # The choice of kernels reads emin - p + 1 as the exponent of the lowest bit.
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
        # The field is a C int, whose top bit belongs to ``places``.
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
    """Return the numbers of a cast to block floating point in which each number has an exponent of its own."""
    infinite = fmt.keep_infinity
    return CastNumbers(
        p=fmt.p,
        emin=fmt.emin,
        mode=MODES[cast.rounding.mode],
        rbits=cast.rounding.bits,
        # The result is not the nearest value of one value set, so the proofs about roundings do not hold.
        # CODE_PARITY excludes the kernels that rely on them.
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
    """Return the numbers of a cast to an old binary8 format."""
    own_grid = not fmt.signed or fmt.skips_first
    flags = flag_bits(
        (CastFlag.NEGATIVE_NAN, not fmt.signed),
        (CastFlag.FIRST_IS_ZERO, fmt.skips_first),
        # For p = 1 ties go to the even code. For irregular value sets the flag only excludes the GEMM's vector kernels.
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
