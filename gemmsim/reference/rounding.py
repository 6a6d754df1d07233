"""Correct rounding, written from the definition: once, from the exact value, to any format.

With e = floor(log2 |x|) and q = max(e, emin) - p + 1, S = |x| / 2**q is the magnitude counted in quanta; floor(S) is
kept and nu = S - floor(S) decides whether it goes up. Without subnormals the grid below 2**emin is {0, 2**emin}; fixed
point has one q for all numbers. Overflow is judged afterwards, on the result of unbounded exponent.
Sources: IEEE 754-2019, 4.3 and 7.4; IEEE P3109 v4.0, Projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from ..arithmetic import UnsupportedSpec
from ..formats import (
    Binary8Format,
    Binary8Policy,
    Cast,
    CodebookFormat,
    FixedFormat,
    FloatFormat,
    Overflow,
    OwnExponentFormat,
    PowerTie,
    RoundingMode,
    Specials,
    SupernormalFormat,
)
from .dyadic import NAN, Value, lowest_exponent, to_float, to_units, with_sticky_bit

__all__ = ["Rounder", "TwoRoundings", "round_value", "rounder", "rounds"]

#: (whole, rest, drop, negative, R) -> whether |x| = whole + rest / 2**drop goes up. Asked only for rest > 0.
GoesUp = Callable[[int, int, int, bool, int], bool]


def round_value(x: float | Fraction, cast: Cast, R: int | None = None) -> float:
    """``x`` rounded once to ``cast.format``; ``R`` is the random number in [0, 2**r) of a stochastic rounding.

    NaN gives NaN. Infinities and results beyond the largest value follow ``cast.overflow``. Zero keeps its sign where
    the format has -0; otherwise it is +0.

    Raises:
        ValueError: for a stochastic cast without a random number, or one outside [0, 2**r).
        UnsupportedSpec: for a format wider than float64.

    Example:
        >>> from fractions import Fraction
        >>> gs.reference.round_value(Fraction(1, 3), gs.formats.parse_cast("fp16"))
        0.333251953125
        >>> [gs.reference.round_value(17.0, gs.formats.parse_cast("e4m3/sr1"), R) for R in (0, 1)]
        [16.0, 18.0]
    """
    bits = cast.rounding.bits
    if cast.is_stochastic and (R is None or not 0 <= R < 1 << bits):
        raise ValueError(
            f"round_value to {cast} with R={R!r}; allowed: an integer from 0 to {(1 << bits) - 1}.\n  Draw R."
        )
    if cast.via is not None:
        first, last = cast.steps
        return round_value(round_value(x, first), last, R)
    quantum = cast.format.quantum_exponent
    if isinstance(x, Fraction) and x.denominator & (x.denominator - 1):
        # Not dyadic: no rounding looks further than r + 1 bits below the quantum, or at more than "something there".
        length = abs(x.numerator).bit_length() - x.denominator.bit_length()
        unit = min(quantum, length - 60) - bits - 4
        return to_float(rounder(cast, unit)(with_sticky_bit(x, unit), R or 0), unit)
    if isinstance(x, Fraction):
        unit = min(quantum, 1 - x.denominator.bit_length())
        value: Value = x.numerator << (1 - x.denominator.bit_length() - unit)
    else:
        x = float(x)
        unit = min(quantum, lowest_exponent([x], quantum))
        value = to_units(x, unit)
    return to_float(rounder(cast, unit)(value, R or 0), unit)


@lru_cache(maxsize=4096)
def rounder(cast: Cast, unit: int) -> Rounder:
    """The (cached) ``Rounder`` of ``cast`` for numbers counted in units of 2**unit."""
    if cast.via is not None:
        return TwoRoundings(cast, unit)
    return _ROUNDERS.get(type(cast.format), Rounder)(cast, unit)


def rounds(kind: type) -> Callable[[type[Rounder]], type[Rounder]]:
    """Class decorator: formats of this kind are rounded by a subclass of ``Rounder``."""

    def enter(cls: type[Rounder]) -> type[Rounder]:
        _ROUNDERS[kind] = cls
        return cls

    return enter


_ROUNDERS: dict[type, type[Rounder]] = {}


class Rounder:
    """Rounding of a ``Value`` in units of 2**unit to ``cast``; the result is in the same units.

    The unit must not exceed the format's quantum 2**(emin-p+1), so that the result is a whole number of units.
    """

    def __init__(self, cast: Cast, unit: int) -> None:
        fmt = cast.format
        if not fmt.fits_float64:
            raise UnsupportedSpec(
                f"reference cannot round to {fmt}; allowed: formats that float64 holds.\n  Narrow it."
            )
        assert unit <= fmt.quantum_exponent, (unit, fmt)
        self.min_drop = fmt.quantum_exponent - unit
        #: Magnitudes of at most this many bits lie below 2**emin on a grid without subnormals.
        self.flush_length = -1
        self.flush_drop = 0
        #: Magnitudes beyond these are not in the format; None where nothing bounds it.
        self.limits: tuple[int, int] | None = None
        if not isinstance(fmt, FixedFormat):
            self.p = fmt.p
            if isinstance(fmt, FloatFormat) and not fmt.subnormals:
                self.flush_length = self.flush_drop = fmt.emin - unit
            lowest = fmt.min_fraction if fmt.signed else Fraction(0)
            self.limits = (_units(fmt.max_fraction, unit), _units(-lowest, unit))
        else:
            # One quantum for all numbers: as if the precision never ran out. A grid without bounds ends where float64
            # does: beyond 2**53 steps its numbers are those of 53 bits.
            self.p = 1 << 62 if fmt.clamp else 53
            if fmt.clamp:
                self.limits = (_units(fmt.max_fraction, unit), _units(-fmt.min_fraction, unit))
        self.goes_up = _goes_up(cast, unit)
        zero = 0 if fmt.has_zero else _units(fmt.min_fraction, unit)
        self.zeros: tuple[Value, Value] = (zero, -0.0 if fmt.has_negative_zero else zero)
        edges = (0, 0) if self.limits is None else (self.limits[0], -self.limits[1])
        self.overflows = (_beyond(cast, False, False, edges[0]), _beyond(cast, True, False, edges[1]))
        self.infinities = (_beyond(cast, False, True, edges[0]), _beyond(cast, True, True, edges[1]))

    def __call__(self, x: Value, R: int = 0) -> Value:
        """``x`` rounded; ``R`` is the random draw of a stochastic mode."""
        if type(x) is not int:
            return self._special(x)
        negative = x < 0
        magnitude = -x if negative else x
        drop = self.drop_of(magnitude)
        whole = magnitude >> drop
        rest = magnitude - (whole << drop)
        if rest and self.goes_up(whole, rest, drop, negative, R):
            whole += 1
        magnitude = whole << drop
        if magnitude == 0:
            return self.zeros[negative]
        if self.limits is not None and magnitude > self.limits[negative]:
            return self.overflows[negative]
        return -magnitude if negative else magnitude

    def drop_of(self, magnitude: int) -> int:
        """Bits of ``magnitude`` below the quantum there."""
        length = magnitude.bit_length()
        if length <= self.flush_length:
            return self.flush_drop
        drop = length - self.p
        return drop if drop > self.min_drop else self.min_drop

    def _special(self, x: Value) -> Value:
        if x != x:
            return NAN
        return self.zeros[1] if x == 0 else self.infinities[x < 0]


class TwoRoundings(Rounder):
    """Rounding to ``cast.via``, to nearest even, then by ``cast`` without it."""

    def __init__(self, cast: Cast, unit: int) -> None:
        first, last = cast.steps
        super().__init__(last, unit)
        self.first, self.last = rounder(first, unit), rounder(last, unit)

    def __call__(self, x: Value, R: int = 0) -> Value:
        """``x`` rounded twice; ``R`` is the random draw of the second one."""
        return self.last(self.first(x), R)


def _units(x: Fraction, unit: int) -> int:
    scaled = x / Fraction(2) ** unit
    assert scaled.denominator == 1
    return scaled.numerator


def _goes_up(cast: Cast, unit: int) -> GoesUp:
    """The rule of ``cast.rounding``, for 0 < nu = rest / 2**drop < 1."""
    mode, r = cast.rounding.mode, cast.rounding.bits
    odd = _parity(cast, unit)

    def stochastic_c(whole: int, rest: int, drop: int, negative: bool, R: int) -> bool:
        kept, cut = divmod(rest << r, 1 << drop)
        kept += 2 * cut > 1 << drop or (2 * cut == 1 << drop and kept & 1)
        return kept + R >= 1 << r

    rules: dict[RoundingMode, GoesUp] = {
        RoundingMode.RNE: lambda whole, rest, drop, negative, R: (
            2 * rest > 1 << drop or (2 * rest == 1 << drop and odd(whole, drop))
        ),
        RoundingMode.RNA: lambda whole, rest, drop, negative, R: 2 * rest >= 1 << drop,
        RoundingMode.RND: lambda whole, rest, drop, negative, R: 2 * rest + negative > 1 << drop,
        RoundingMode.RNU: lambda whole, rest, drop, negative, R: 2 * rest + (not negative) > 1 << drop,
        RoundingMode.RTZ: lambda whole, rest, drop, negative, R: False,
        RoundingMode.RU: lambda whole, rest, drop, negative, R: not negative,
        RoundingMode.RD: lambda whole, rest, drop, negative, R: negative,
        RoundingMode.RO: lambda whole, rest, drop, negative, R: not odd(whole, drop),
        RoundingMode.SR: lambda whole, rest, drop, negative, R: ((rest << r) >> drop) + R >= 1 << r,
        RoundingMode.SRB: lambda whole, rest, drop, negative, R: (
            ((rest << (r + 1)) >> drop) + 2 * R + 1 >= 1 << (r + 1)
        ),
        RoundingMode.SRC: stochastic_c,
    }
    return rules[mode]


def _parity(cast: Cast, unit: int) -> Callable[[int, int], bool]:
    """(whole, drop) -> whether the lower neighbour is odd.

    That is the integer significand's parity. For p = 1, where every significand is 1, P3109 and scale formats take the
    code instead: consecutive powers of two alternate, and the code of 0 (P3109) or of 2**emin (scale) is even.
    """
    fmt = cast.format
    if isinstance(fmt, SupernormalFormat):
        return _supernormal_parity(fmt, cast.rounding.mode, unit)
    if isinstance(fmt, Binary8Format) and fmt.p == 1:
        return lambda whole, drop: whole != 0 and bool((drop - fmt.emin + 1 + unit) & 1)
    if isinstance(fmt, FloatFormat) and fmt.p == 1 and (fmt.specials.is_p3109 or fmt.specials is Specials.SCALE):
        first = fmt.emin - (1 if fmt.specials.is_p3109 else 0) - unit
        return lambda whole, drop: whole != 0 and bool((drop - first) & 1)
    return lambda whole, drop: bool(whole & 1)


def _supernormal_parity(fmt: SupernormalFormat, mode: RoundingMode, unit: int) -> Callable[[int, int], bool]:
    """Parity where a neighbour may be a bare power of two: its ``whole`` is 1, or 0 below the smallest one.

    For nearest even it says that a tie goes up, as ``fmt.tie`` has it; for odd it is the code's.
    """
    if mode is RoundingMode.RO:
        # Codes: one for each power; 2**first_binade and 2**(last_binade+1) are even.
        def code(whole: int, drop: int) -> bool:
            exponent = drop + unit
            end = fmt.first_binade if exponent < fmt.first_binade else fmt.last_binade + 1
            return whole != 0 and bool((exponent - end) & 1)

        return lambda whole, drop: bool(whole & 1) if whole > 1 else code(whole, drop)
    if fmt.tie is PowerTie.AWAY:
        return lambda whole, drop: whole < 2 or bool(whole & 1)
    return lambda whole, drop: bool((whole if whole != 1 else drop + unit) & 1)


def _beyond(cast: Cast, negative: bool, infinite: bool, edge: int) -> Value:
    """What a result past the finite range becomes; ``edge`` is the end of the range on that side.

    ``infinite``: the input itself was an infinity, which no directed rounding brings back.
    """
    fmt, mode = cast.format, cast.rounding.mode
    assert not isinstance(fmt, CodebookFormat)  # CodebookRounder knows its own ends
    infinity = -math.inf if negative else math.inf
    if isinstance(fmt, FixedFormat):
        return edge if fmt.clamp else infinity
    if isinstance(fmt, OwnExponentFormat):
        return infinity if infinite and fmt.keep_infinity else edge
    if isinstance(fmt, Binary8Format):
        return _beyond_binary8(fmt, negative, infinite, edge)
    saturating = cast.overflow is not Overflow.INFINITY
    toward_zero = mode is RoundingMode.RTZ or mode is (RoundingMode.RU if negative else RoundingMode.RD)
    if isinstance(fmt, SupernormalFormat):
        return _beyond_supernormal(fmt, cast, infinity, infinite, toward_zero, edge)
    if negative and not fmt.signed:
        if fmt.specials is Specials.SCALE:
            return NAN
        clamps = saturating or not fmt.has_nan or fmt.specials is Specials.P3109_FINITE
        return 0 if clamps or (toward_zero and not infinite) else NAN
    if infinite and fmt.has_inf:
        keeps = {
            Overflow.INFINITY: True,
            Overflow.SATURATE: fmt.specials is Specials.IEEE,
            Overflow.PROPAGATE: True,
            Overflow.CLAMP: False,
        }
        return infinity if keeps[cast.overflow] else edge
    if saturating or fmt.specials is Specials.P3109_FINITE:
        return edge
    if not infinite and (toward_zero or (mode is RoundingMode.RO and _largest_is_odd(fmt))):
        return edge
    if fmt.has_inf:
        return infinity
    return NAN if fmt.has_nan else edge


def _beyond_binary8(fmt: Binary8Format, negative: bool, infinite: bool, edge: int) -> Value:
    if negative and not fmt.signed:
        return NAN
    kept = infinite and fmt.policy is Binary8Policy.SATURATE_PROPAGATE
    if kept or fmt.policy is Binary8Policy.SATURATE_INFTY:
        return -math.inf if negative else math.inf
    return edge


def _beyond_supernormal(
    fmt: SupernormalFormat, cast: Cast, infinity: float, infinite: bool, toward_zero: bool, edge: int
) -> Value:
    if not fmt.has_inf or cast.overflow is Overflow.CLAMP:
        return edge
    if infinite:
        return infinity
    # With a code for infinity the largest value's is even: to odd goes on to infinity.
    return edge if toward_zero or cast.overflow is not Overflow.INFINITY else infinity


def _largest_is_odd(fmt: FloatFormat) -> bool:
    """Whether rounding to odd stays at the largest finite value instead of leaving the range.

    By the code for P3109 and scale formats; by the significand elsewhere, whose IEEE-like maximum is all ones.
    """
    if fmt.ties_by_code:
        return bool(fmt.max_code & 1)
    shift = max(fmt.emax, fmt.emin) - fmt.p + 1
    return bool(_units(fmt.max_fraction, shift) & 1)
