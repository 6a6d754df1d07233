"""A cast as the numbers that kernels work with: gemmsim::Cast (cutlass_kernels/include/gemmsim/types.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .abi_constants import FLOAT32, CastFlag

__all__ = ["ABSENT", "CastNumbers", "described", "flag_bits"]


@dataclass(frozen=True)
class CastNumbers:
    """gemmsim::Cast, field by field, every policy resolved to values; without the flag PRESENT nothing is rounded.

    ``p`` significand bits, ``emin`` the exponent of the smallest normal number, ``emax`` of the largest number;
    ``lo`` to ``hi`` the finite range; ``over_neg`` and ``over_pos`` what finite numbers beyond it become, ``inf_neg``
    and ``inf_pos`` what infinities become.
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
        """Exponent of the lowest bit there is."""
        return self.emin - self.p + 1

    @property
    def fits_float32(self) -> bool:
        """Whether float32 has all results, subnormal ones included."""
        return self.p <= FLOAT32.p and self.emax < FLOAT32.top and self.quantum >= FLOAT32.quantum


def flag_bits(*flags: tuple[CastFlag, bool]) -> int:
    """PRESENT and the flags that hold."""
    return CastFlag.PRESENT.value + sum(flag.value for flag, holds in flags if holds)


#: No cast.
ABSENT = CastNumbers()


def described(p: int, quantum: int, emax: int, low: float, high: float) -> CastNumbers:
    """A cast that rounds nothing: what the numbers of an operand can be."""
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
