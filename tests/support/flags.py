"""The product of all flags of formats, roundings and overflow policies, and the numbers at which they matter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from gemmsim.formats import (
    Binary8Format,
    Binary8Policy,
    Cast,
    FixedFormat,
    FloatFormat,
    Format,
    FormatError,
    Overflow,
    OwnExponentFormat,
    PowerTie,
    Rounding,
    RoundingMode,
    Specials,
    SupernormalFormat,
)

#: Every rounding; stochastic ones with few random bits and, of SR, with more than a short format drops.
ROUNDINGS = [Rounding(mode, 5 if mode.is_stochastic else 0) for mode in RoundingMode] + [Rounding(RoundingMode.SR, 22)]
POLICIES = list(Overflow)


@dataclass(frozen=True)
class Shape:
    """Precision and exponents. ``width``: of the exponent field, all of which is used; else ``emax`` is given.

    P3109 formats use all of a field in any case.
    """

    p: int
    width: int
    bias: int | None = None
    emax: int | None = None
    #: Whether casts to it are mostly from float64.
    wide: bool = False

    def format(self, specials: Specials, signed: bool, subnormals: bool) -> FloatFormat:
        """``FormatError`` if there is none."""
        if self.emax is None or specials.is_p3109:
            return FloatFormat.from_widths(
                self.width, self.p - 1, specials, bias=self.bias, signed=signed, subnormals=subnormals
            )
        assert self.bias is not None
        return FloatFormat(self.p, 1 - self.bias, self.emax, specials, signed, subnormals)


#: A name for each way through the casts: how precise a format is compared with the carrier, and where its exponents end.
SHAPES = {
    "small": Shape(3, 3),
    "powers": Shape(1, 3),
    "cut": Shape(4, 2, bias=2, emax=1),  # codes above the largest number are not in use
    "low": Shape(3, 3, bias=127),  # from float32's smallest normal number on
    "high": Shape(5, 3, bias=-119, emax=126),  # no magic number of float32 reaches so far
    "ends": Shape(8, 8, bias=127, emax=127),  # float32's own exponents
    "long": Shape(22, 4),  # the longest for which float32's magic numbers do
    "longer": Shape(24, 4),
    "below": Shape(6, 4, bias=142, wide=True),  # below float32's normal numbers
    "double": Shape(30, 5, wide=True),
    "doubles_own": Shape(53, 11, bias=1023, emax=1023, wide=True),
}


def legal(shape: Shape, specials: Specials, signed: bool, subnormals: bool) -> bool:
    """Whether there is such a format, by the text of ``FloatFormat``."""
    if specials is Specials.FNUZ and not signed:
        return False  # its NaN is the code of -0
    if specials is Specials.SCALE:  # bare powers of two
        return shape.p == 1 and not signed and subnormals
    # P3109 formats have 3 to 16 bits
    return not specials.is_p3109 or 3 <= shape.p - 1 + shape.width + signed <= 16


def float_formats(shape: Shape, specials: Specials) -> Iterator[FloatFormat]:
    """The formats of one shape, each with other flags; what must be refused is."""
    for signed, subnormals in itertools.product((True, False), repeat=2):
        try:
            fmt = shape.format(specials, signed, subnormals)
        except FormatError:
            assert not legal(shape, specials, signed, subnormals), (shape, specials, signed, subnormals)
        else:
            assert legal(shape, specials, signed, subnormals), fmt
            yield fmt


def other_formats(kind: type) -> Iterator[Format]:
    """Formats of another kind, likewise."""
    yes_no = (True, False)
    flags: Iterator[tuple[object, ...]]
    if kind is FixedFormat:
        flags = itertools.product(((5, 2), (24, 20), (30, 10)), yes_no, yes_no, yes_no)
    elif kind is SupernormalFormat:
        widths = ((3, 2, 2, 1), (8, 2, 1, 1), (1, 2, 2, 1))
        flags = itertools.product(widths, yes_no, PowerTie, yes_no)
    elif kind is Binary8Format:
        flags = itertools.product(((1,), (4,), (8,)), yes_no, yes_no, Binary8Policy)
    else:
        flags = itertools.product(((1,), (2,), (6,), (24,), (30,)), yes_no, yes_no)
    for widths, *rest in flags:
        try:
            yield kind(*widths, *rest)
        except FormatError:
            # An unsigned grid ends; a signed one that is symmetric does; 8 bits of precision leave no bit for a sign;
            # two exponent codes are no three.
            signed, symmetric, clamp = (*rest, True)[:3]
            fixed = kind is FixedFormat and ((symmetric and not (signed and clamp)) or not (signed or clamp))
            eight = kind is Binary8Format and widths == (8,) and signed
            assert fixed or eight or (kind is SupernormalFormat and widths[0] == 1), (kind, widths, rest)


def casts(fmt: Format) -> Iterator[Cast]:
    """Every rounding with every policy; a format that has its own policy refuses the others."""
    for rounding, overflow in itertools.product(ROUNDINGS, POLICIES):
        try:
            cast = Cast(fmt, rounding, overflow)
        except FormatError:
            assert isinstance(fmt, (Binary8Format, OwnExponentFormat)) and overflow is not Overflow.INFINITY
        else:
            yield cast


def _values(fmt: Format, most: int) -> list[tuple[Fraction, Fraction]]:
    """Positive numbers, each with how far the next one is: all of a small format, else both ends of its binades."""
    if isinstance(fmt, OwnExponentFormat):
        steps = [Fraction(2) ** fmt.step_exponent(e) for e in (-149, -140, -126, -3, 0, 126, 127)]
        return [(k * step, step) for step in steps for k in sorted({1, fmt.max_code // 2 + 1, max(fmt.max_code, 1)})]
    if isinstance(fmt, FixedFormat):
        step = Fraction(2) ** -fmt.frac
        last = fmt.max_significand if fmt.clamp else 2**20
        return [(k * step, step) for k in [*_chosen(last, 8 * most)[1:], *([] if fmt.clamp else [2**52, 2**53])]]
    if not isinstance(fmt, FloatFormat):
        codes = _chosen(fmt.max_magnitude, 8 * most)
        found = sorted({x for c in codes if (x := fmt.decode_exact(c)) is not None and x > 0})
        gaps = [b - a for a, b in itertools.pairwise(found)]
        return list(zip(found, [*gaps, gaps[-1] if gaps else found[0]], strict=True))
    quantum = Fraction(2) ** fmt.quantum_exponent
    trailing = _chosen((1 << (fmt.p - 1)) - 1, most)
    small = [(k * quantum, quantum) for k in trailing[1:]] if fmt.has_subnormals else []
    steps = [Fraction(2) ** (fmt.emin + k - fmt.p + 1) for k in _chosen(fmt.emax - fmt.emin, most)]
    normal = [(((1 << (fmt.p - 1)) + k) * step, step) for step in steps for k in trailing]
    return [*small, *((v, step) for v, step in normal if v <= fmt.max_fraction)]


def _chosen(last: int, most: int) -> list[int]:
    """Numbers from 0 to ``last``: all, or the lowest, the highest and one between them."""
    if last < 2 * most:
        return list(range(last + 1))
    return [*range(most // 2), last // 2, *range(last - most // 2 + 1, last + 1)]


def points(fmt: Format, dtype: torch.dtype, most: int) -> torch.Tensor:
    """Numbers of ``dtype`` at which a cast to ``fmt`` may go wrong, of both signs.

    Values of the format, midpoints, and what is just below and above each; quarters of the smallest normal number and of the
    quantum, and what is between them; where overflow begins; zeros, infinities, NaN, the least and the largest of ``dtype``.
    ``most``: of binades, and of numbers of each; 0: the ends alone.
    """
    pairs = _values(fmt, max(most, 2))
    top, gap = pairs[-1]
    lowest = {Fraction(2) ** fmt.quantum_exponent, Fraction(2) ** fmt.emin} if hasattr(fmt, "emin") else {pairs[0][0]}
    near = {x for v, step in (pairs if most else [pairs[len(pairs) // 2]]) for x in (v, v + step / 2)}
    near |= {low * k / 4 for low in lowest for k in ((1, 2, 3, 4) if most else (2, 4))}
    near |= {top, top + gap / 4, top + gap / 2, top + gap, 2 * top}
    x = torch.tensor(sorted(float(v) for v in near if v < Fraction(2) ** 1023), dtype=torch.float64).to(dtype)
    x = x[x.isfinite()]
    limit = torch.finfo(dtype)
    far = [float(low) * f for low in lowest for f in (0.3, 0.7, 1 - 2.0**-9)[: None if most else 2]]
    far += [float(min(lowest)) * 2.0**-5, float(top) * 1.3, float(min(top, 2**1000)) * 5]
    far += [
        0.0,
        math.inf,
        limit.max,
        limit.smallest_normal,
        limit.smallest_normal / 2**10,
        limit.smallest_normal * limit.eps,
    ]
    inf = torch.full_like(x, math.inf)
    x = torch.cat(
        [x, torch.nextafter(x, inf), torch.nextafter(x, -inf), torch.tensor(far, dtype=torch.float64).to(dtype)]
    )
    x = torch.unique(x.abs())
    return torch.cat([x, -x, torch.tensor([math.nan], dtype=dtype)])
