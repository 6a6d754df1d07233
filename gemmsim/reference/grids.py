"""Rounding to supernormal floats and the old binary8 formats, by definition, in Python's integers.

The one difference to ``rounding.Rounder`` is which multiples of which quantum are in the format.
"""

from __future__ import annotations

from fractions import Fraction

from ..formats import Binary8Format, Cast, SupernormalFormat
from .dyadic import NAN, Value, with_sticky_bit
from .rounding import Rounder

__all__ = ["Binary8Rounder", "SupernormalRounder"]


class SupernormalRounder(Rounder):
    """Rounding to a supernormal format: p bits in the binades that have them, 1 bit outside."""

    def __init__(self, cast: Cast, unit: int) -> None:
        assert isinstance(cast.format, SupernormalFormat)
        self.fmt, self.unit = cast.format, unit
        super().__init__(cast, unit)

    def drop_of(self, magnitude: int) -> int:
        """Bits of ``magnitude`` below the quantum there."""
        exponent = magnitude.bit_length() - 1 + self.unit
        if exponent < self.fmt.lowest_exponent:
            return self.fmt.lowest_exponent - self.unit
        normal = self.fmt.first_binade <= exponent <= self.fmt.last_binade
        return exponent - self.unit - (self.fmt.trailing_bits if normal else 0)


class Binary8Rounder(Rounder):
    """Rounding by the old binary8 rules."""

    def __init__(self, cast: Cast, unit: int) -> None:
        assert isinstance(cast.format, Binary8Format)
        super().__init__(cast, unit)
        self.p = cast.format.p
        self.signed = cast.format.signed
        #: Smallest value where it is no power of two, in units.
        smallest = Fraction(cast.format.smallest_subnormal) / Fraction(2) ** unit
        self.gap = smallest.numerator if cast.format.skips_first else 0
        self.flush_length = -1

    def __call__(self, x: Value, R: int = 0) -> Value:
        """``x`` rounded; ``R`` is the random draw of a stochastic mode."""
        if not self.signed and x < 0:
            return NAN
        if type(x) is not int or not 0 < abs(x) < self.gap:
            return super().__call__(x, R)
        # The share of the smallest value, to more places than any rounding asks for, and a bit for the rest.
        share = with_sticky_bit(Fraction(abs(x), self.gap), -80)
        if not self.goes_up(0, share, 80, x < 0, R):
            return 0
        return -self.gap if x < 0 else self.gap
