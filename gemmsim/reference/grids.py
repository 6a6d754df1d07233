"""Rounding to supernormal floats, the old binary8 formats, bfp(bits,1) and lists, by definition, in Python's integers.

The one difference to ``rounding.Rounder`` is which multiples of which quantum are in the format, and in bfp(bits,1)
that they are clamped at each exponent. A list of values is searched from end to end.
"""

from __future__ import annotations

from fractions import Fraction

from ..formats import Binary8Format, Cast, CodebookFormat, OwnExponentFormat, RoundingMode, SupernormalFormat
from .dyadic import NAN, Value, with_sticky_bit
from .rounding import Rounder, rounds

__all__ = ["Binary8Rounder", "CodebookRounder", "OwnExponentRounder", "SupernormalRounder"]


@rounds(SupernormalFormat)
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


@rounds(Binary8Format)
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


@rounds(OwnExponentFormat)
class OwnExponentRounder(Rounder):
    """Rounding to block floating point whose block is the number alone."""

    def __init__(self, cast: Cast, unit: int) -> None:
        assert isinstance(cast.format, OwnExponentFormat)
        super().__init__(cast, unit)
        self.unit, self.bits = unit, cast.format.bits
        largest = (1 << (self.bits - 1)) - 1
        self.codes = (-largest if cast.format.symmetric else -largest - 1), largest

    def __call__(self, x: Value, R: int = 0) -> Value:
        """``x`` rounded; ``R`` is the random draw of a stochastic mode."""
        if type(x) is not int:
            return self._special(x)
        exponent = max(abs(x).bit_length() - 1 + self.unit, -149)
        if exponent > 127:
            return self.overflows[x < 0]
        drop = max(exponent + 2 - self.bits, -149) - self.unit
        whole = abs(x) >> drop
        rest = abs(x) - (whole << drop)
        whole += rest > 0 and self.goes_up(whole, rest, drop, x < 0, R)
        low, high = self.codes
        return max(low, min(high, -whole if x < 0 else whole)) << drop


@rounds(CodebookFormat)
class CodebookRounder(Rounder):
    """Rounding to one of a list of values."""

    def __init__(self, cast: Cast, unit: int) -> None:
        assert isinstance(cast.format, CodebookFormat) and unit <= cast.format.quantum_exponent
        self.fmt, self.mode = cast.format, cast.rounding.mode
        power = Fraction(2) ** unit
        self.places = [int(Fraction(value) / power) for value in cast.format.points]
        self.limits_in_units = [Fraction(limit) / power for limit in cast.format.limits]

    def __call__(self, x: Value, R: int = 0) -> Value:
        """``x`` rounded; no mode is random."""
        if x != x or (type(x) is not int and x != 0 and self.fmt.nan):
            return NAN
        if x in self.places:
            return int(x)
        below = [i for i, place in enumerate(self.places) if place < x]
        if not below or len(below) == len(self.places):
            return self.places[-1 if below else 0]
        return self.places[below[-1] + self._goes_to_next(x, below[-1])]

    def _goes_to_next(self, x: Value, place: int) -> bool:
        """Whether x, between the values of this place and the next, becomes the next."""
        around_zero = self.places[place] < 0 < self.places[place + 1]  # nothing lies toward zero there
        if self.mode is not RoundingMode.RNE and not (self.mode is RoundingMode.RTZ and around_zero):
            return self.mode is RoundingMode.RU or (self.mode is RoundingMode.RTZ and x < 0)
        limit = self.limits_in_units[place]
        if x != limit:
            return x > limit
        ties = {"low": False, "high": True, "even": place % 2 == 1, "odd": place % 2 == 0}
        return ties[self.fmt.tie]
