"""A cast as the numbers that kernels read: gemmsim::Cast (cutlass_kernels/include/gemmsim/types.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .abi_constants import FLOAT32, CastFlag

__all__ = ["ABSENT", "CastNumbers", "described", "flag_bits"]


@dataclass(frozen=True)
class CastNumbers:
    """gemmsim::Cast, field by field, with every policy resolved to values.

    A record without the flag PRESENT rounds nothing. ``p`` is the number of significand bits. ``emin`` is the exponent
    of the smallest normal number, and ``emax`` is that of the largest number. ``lo`` to ``hi`` is the finite range.
    Finite numbers beyond the range become ``over_neg`` and ``over_pos``; infinities become ``inf_neg`` and ``inf_pos``.
    """

    p: int = 0
    emin: int = 0
    mode: int = 0
    rbits: int = 0
    flags: int = 0
    emax: int = 0
    lo: float = 0.0
    hi: float = 0.0
    over_neg: float = 0.0
    over_pos: float = 0.0
    inf_neg: float = 0.0
    inf_pos: float = 0.0

    def has(self, *flags: CastFlag) -> bool:
        """Whether any of ``flags`` is set."""
        return any(self.flags & flag.value for flag in flags)

    @property
    def quantum(self) -> int:
        """Exponent of the lowest bit of any result."""
        return self.emin - self.p + 1

    @property
    def fits_float32(self) -> bool:
        """Whether float32 has all results, including subnormal ones."""
        return self.p <= FLOAT32.p and self.emax < FLOAT32.top and self.quantum >= FLOAT32.quantum


def flag_bits(*flags: tuple[CastFlag, bool]) -> int:
    """Return PRESENT and those of ``flags`` whose condition is true."""
    return CastFlag.PRESENT.value + sum(flag.value for flag, holds in flags if holds)


#: The record that rounds nothing because there is no cast.
ABSENT = CastNumbers()


def described(p: int, quantum: int, emax: int, low: float, high: float) -> CastNumbers:
    """Return a cast that rounds nothing and only says which numbers an operand can be."""
    return CastNumbers(
        p=p,
        emin=quantum + p - 1,
        flags=flag_bits(),
        emax=emax,
        lo=low,
        hi=high,
        over_neg=-math.inf,
        over_pos=math.inf,
        inf_neg=-math.inf,
        inf_pos=math.inf,
    )
