"""Bounds of the operands of a product: from their formats and K alone, or from one pass over the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from gemmsim.formats import FixedFormat, Format

__all__ = ["Facts", "facts_of_data", "facts_of_formats", "hopeless"]

#: Number of elements of each operand that ``hopeless`` reads.
_SAMPLE = 16
_NOTHING = 1 << 30


@dataclass(frozen=True)
class Facts:
    """Bounds that hold for the operands as multiplied (after their casts).

    Every finite element of a is a multiple of ``2**lsb_a`` and at most ``units_a`` of these in magnitude; b likewise.
    ``units``: for each output element, no sum of magnitudes of finite products exceeds ``units * 2**lsb``. ``finite``:
    there is no NaN and no infinity. ``nonnegative``: no product is negative.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> facts = exact_blas.facts_of_data(torch.ones(2, 8).double(), torch.ones(8, 2).double())
        >>> facts.units, facts.lsb, facts.finite
        (8, 0, True)
    """

    k: int
    lsb_a: int
    lsb_b: int
    units_a: int
    units_b: int
    units: int
    finite: bool = False
    nonnegative: bool = False

    @property
    def lsb(self) -> int:
        """Exponent of a power of two of which every product, and so every sum, is a multiple.

        Example:
            >>> from gemmsim.backends import exact_blas
            >>> e4m3 = gs.formats.parse("e4m3")
            >>> exact_blas.facts_of_formats(64, e4m3, e4m3).lsb  # the least magnitude of e4m3 is 2**-9
            -18
        """
        return self.lsb_a + self.lsb_b

    @property
    def total(self) -> Fraction:
        """Bound of the magnitude of every sum of products, in any order.

        Example:
            >>> from gemmsim.backends import exact_blas
            >>> e4m3 = gs.formats.parse("e4m3")
            >>> exact_blas.facts_of_formats(64, e4m3, e4m3).total == 64 * 448**2
            True
        """
        return self.units * _power(self.lsb)


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def facts_of_formats(k: int, a: Format, b: Format) -> Facts | None:
    """Return the facts of any operands in these formats, or ``None`` for an unbounded format.

    ``finite`` is False, because formats do not say whether operands are finite.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> e2m1 = gs.formats.parse("e2m1")
        >>> exact_blas.facts_of_formats(16, e2m1, e2m1)
        Facts(k=16, lsb_a=-1, lsb_b=-1, units_a=12, units_b=12, units=2304, finite=False, nonnegative=False)
    """
    for fmt in (a, b):
        if not fmt.fits_float64 or (isinstance(fmt, FixedFormat) and not fmt.clamp):
            return None
    units_a, units_b = _units(a), _units(b)
    nonnegative = not a.signed and not b.signed
    return Facts(k, a.quantum_exponent, b.quantum_exponent, units_a, units_b, k * units_a * units_b, False, nonnegative)


def _units(fmt: Format) -> int:
    """Return the largest magnitude in units of the format's lowest bit."""
    return math.ceil(max(fmt.max_fraction, -fmt.min_fraction) / _power(fmt.quantum_exponent))


def facts_of_data(a: Tensor, b: Tensor) -> Facts | None:
    """Return the facts of these operands, (..., M, K) and (..., K, N) in float64; ``None`` if one is not finite.

    This takes a few element-wise passes over each operand and some synchronisation, so it is for CPU tensors.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> exact_blas.facts_of_data(torch.ones(2, 8).double(), torch.full((8, 2), 0.75).double())
        Facts(k=8, lsb_a=0, lsb_b=-2, units_a=1, units_b=3, units=24, finite=True, nonnegative=True)
    """
    size_a, size_b = _magnitudes(a, -1), _magnitudes(b, -2)
    if size_a is None or size_b is None:
        return None
    most_a, sum_a, negative_a = size_a
    most_b, sum_b, negative_b = size_b
    lsb_a, lsb_b = _lowest_bit(a), _lowest_bit(b)
    unit_a, unit_b = _power(lsb_a), _power(lsb_b)
    total = min(sum_a * most_b, most_a * sum_b)
    return Facts(
        a.shape[-1],
        lsb_a,
        lsb_b,
        math.ceil(most_a / unit_a),
        math.ceil(most_b / unit_b),
        math.ceil(total / (unit_a * unit_b)),
        True,
        not negative_a and not negative_b,
    )


def _magnitudes(x: Tensor, along: int) -> tuple[Fraction, Fraction, bool] | None:
    """Return the largest magnitude, the largest sum of magnitudes along K, and whether any element is negative.

    The result is None if an element is not finite. A float64 sum of multiples of one quantum is exact while it stays
    below 2**53 quanta. Once it reaches 2**53 quanta it stays there or above, because rounding is monotonic. So a sum
    below that is exact.
    """
    size = x.abs()
    most, most_sum, least = (float(v) for v in (size.amax(), size.sum(along).amax(), x.amin()))
    if not most_sum < math.inf:  # true for NaN, too
        return None
    return Fraction(most), Fraction(most_sum), least < 0


def _lowest_bit(x: Tensor) -> int:
    """Return the exponent of the lowest set bit of all elements, 0 if all are zero.

    The result is one less for numbers that are subnormal in float64.
    """
    bits = x.contiguous().view(torch.int64) & 0x7FFFFFFFFFFFFFFF
    significand = (bits & 0xFFFFFFFFFFFFF).bitwise_or_(1 << 52)
    # the exponent field of a power of two is 1023 + the index of its bit
    lowest = significand.bitwise_and_(-significand).to(torch.float64).view(torch.int64) >> 52
    exponent = lowest.add_(bits >> 52).masked_fill_(bits == 0, _NOTHING)
    found = int(exponent.amin())
    return 0 if found == _NOTHING else found - 1023 - 1075


def hopeless(a: Tensor, b: Tensor, bits: int) -> bool:
    """Whether a few elements already show that products do not fit ``bits`` bits, so that a full pass is useless."""
    reach = 0
    for x in (a, b):
        lowest, highest = _NOTHING, -_NOTHING
        for value in x[(0,) * (x.dim() - 2)].flatten()[:_SAMPLE].tolist():
            if value and math.isfinite(value):
                numerator, denominator = value.as_integer_ratio()
                low = (numerator & -numerator).bit_length() - denominator.bit_length()
                lowest, highest = min(lowest, low), max(highest, math.frexp(value)[1] - 1)
        reach += max(highest - lowest, 0)
    return reach >= bits
