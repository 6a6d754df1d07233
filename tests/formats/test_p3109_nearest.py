"""P3109 v4.0 for K = 3 to 8, in full: every value, every midpoint and both neighbours of each, to nearest even.

The oracle goes by codes: the nearer of the two values around, at a tie the one with the even code, and beyond the
largest value SatNone: infinity from the place where the next value would be nearer.
"""

from __future__ import annotations

import bisect
import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.formats import binary_format

FORMATS = [
    binary_format(k, p, signed=signed, extended=extended)
    for k in range(3, 9)
    for signed in (True, False)
    for p in range(1, k + (0 if signed else 1))
    for extended in (True, False)
]


def nearest_even(values: list[Fraction], beyond: Fraction, x: float, infinite: bool) -> float:
    """``values``: the non-negative ones, by code; ``beyond``: what the next code would be."""
    exact = Fraction(x)
    at = bisect.bisect_left(values, exact)
    if at < len(values) and values[at] == exact:
        return x
    below, above = values[at - 1], values[at] if at < len(values) else beyond
    up = exact - below > above - exact or (exact - below == above - exact and (at - 1) % 2 == 1)
    if at == len(values) and (up or exact >= beyond):
        return math.inf if infinite else float(values[-1])
    return float(above if up else below)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_value_midpoint_and_neighbour(fmt):
    last = fmt.max_code
    values = [fmt.decode_exact(code) for code in range(last + 1)]
    step = Fraction(2) ** (fmt.emax - fmt.p + 1)
    beyond = values[-1] + step
    points = [float(x) for x in values] + [
        float((a + b) / 2) for a, b in zip(values, [*values[1:], beyond], strict=True)
    ]
    points += [math.nextafter(x, to) for x in points for to in (0.0, math.inf) if x > 0] + [float(4 * beyond), 5e-324]
    want = [nearest_even(values, beyond, x, fmt.has_inf) for x in points]
    x, y = torch.tensor(points, dtype=torch.float64), torch.tensor(want, dtype=torch.float64)
    assert_bitwise_equal(gs.quantize(x, fmt), y, context=str(fmt))
    if fmt.signed:
        mirrored = torch.where(y == 0, 0.0, -y)
        assert_bitwise_equal(gs.quantize(-x, fmt), mirrored, context=str(fmt))
