"""round_value against a search in the list of all values: every value, midpoint, neighbour, range end and special.

Formats of up to 8 bits, all rounding modes, all overflow policies.
"""

import math
from fractions import Fraction
from functools import lru_cache

import pytest
from oracles.nearest_search import magnitudes, round_search, same

from gemmsim.formats import Cast, Overflow, Rounding, RoundingMode, parse
from gemmsim.reference import round_value

SMALL = """e2m1 e3m0 e2m3 e3m2 e1m4 e4m1 e3m1/ftz e2m3/ftz float(p=3,emin=-2,emax=5) e3m2fnuz e2m0
    binary5p2se binary5p3ue binary5p1se binary5p1ue binary5p3sf binary5p3uf binary5p1uf binary4p4ue
    fixed(5,3) fixed(5,3,symmetric) ufixed(4,1) fixed(4,1,unbounded) fixed(4,-2) fixed(3,6)
    float(p=3,emin=0,emax=3,specials=nan_only,unsigned) float(p=2,emin=0,emax=2,specials=none,unsigned)""".split()
WIDE = "e4m3 ieee_e4m3 e5m2 e3m4 e4m3fnuz e5m2fnuz e4m3b11fnuz e4m3/ftz binary8p3 binary8p4ue binary8p1se".split()
DETERMINISTIC = [mode for mode in RoundingMode if not mode.is_stochastic]


@lru_cache(maxsize=1)
def probes(fmt):
    """Values, midpoints, quarters, and a hair beside each of them, past the range too, with both signs and specials."""
    values = magnitudes(fmt)[0]
    values = values[: next((i for i, v in enumerate(values) if v > 4 * largest(fmt)), len(values) - 1)]
    points = set()
    for low, high in zip(values, values[1:], strict=False):
        gap = high - low
        for at in (low, low + gap / 4, low + gap / 2, low + 2 * gap / 3):
            points |= {at, at + gap / 10**9, at - gap / 10**9} if at else {at, gap / 10**9}
    numbers = [sign * point for point in sorted(points) for sign in (1, -1)]
    return [*numbers, 0.0, -0.0, math.inf, -math.inf, math.nan]


def largest(fmt):
    return max(fmt.max_fraction, -fmt.min_fraction) if getattr(fmt, "clamp", True) else Fraction(2) ** 6


def check(cast, xs, draws=(None,)):
    for x in xs:
        for R in draws:
            got, want = round_value(x, cast, R), round_search(x, cast, R)
            assert same(got, want), f"{x!r} -> {cast} with R={R}: got {got!r}, want {want!r}"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("mode", DETERMINISTIC, ids=str)
@pytest.mark.parametrize("overflow", Overflow, ids=str)
def test_every_probe_of_small_formats_under_every_policy(name, mode, overflow):
    fmt = parse(name)
    xs = probes(fmt)
    if overflow is not Overflow.INFINITY:
        # The policy shows only at the ends of the range, which of unsigned formats is 0 too.
        bound = largest(fmt) * Fraction(3, 4)
        xs = [x for x in xs if math.isnan(x) or abs(x) > bound or (x <= 0 and not fmt.signed)]
    check(Cast(fmt, Rounding(mode), overflow), xs)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("mode", DETERMINISTIC, ids=str)
def test_every_probe_of_8_bit_formats(name, mode):
    fmt = parse(name)
    check(Cast(fmt, Rounding(mode)), probes(fmt))


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=str)
def test_scale_format_has_no_zero_and_takes_the_even_code(mode):
    fmt = parse("e8m0")
    near = [v for v in magnitudes(fmt)[0] if v < Fraction(2) ** -120 or v > Fraction(2) ** 120 or 1 <= v < 64]
    xs = [sign * v * f for v in near for f in (1, Fraction(5, 4), Fraction(3, 2), Fraction(8, 5)) for sign in (1, -1)]
    for overflow in Overflow:
        check(Cast(fmt, Rounding(mode), overflow), [x for x in xs if abs(x) < Fraction(2) ** 133] + [math.inf, -0.0])


@pytest.mark.parametrize("name", ["e2m1", "e2m3/ftz", "binary5p1ue", "fixed(4,1)", "e3m2fnuz", "e1m4"])
@pytest.mark.parametrize("mode", [mode for mode in RoundingMode if mode.is_stochastic], ids=str)
@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("overflow", [Overflow.INFINITY, Overflow.CLAMP], ids=str)
def test_stochastic_modes_for_every_draw(name, mode, bits, overflow):
    fmt = parse(name)
    check(Cast(fmt, Rounding(mode, bits), overflow), probes(fmt), range(1 << bits))


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("name", ["e3m2", "e3m2/ftz", "fixed(6,3)"])
def test_probability_of_rounding_up_is_a_table(name, bits):
    """SR(r): floor(nu 2^r) / 2^r; B: the same to r+1 bits, rounded to nearest; C: RNITE(nu 2^r) / 2^r."""
    fmt = parse(name)
    low, high = magnitudes(fmt)[0][0:2] if "ftz" in name else magnitudes(fmt)[0][5:7]
    for steps in range(3 * 2 ** (bits + 2)):
        nu = Fraction(steps, 3 * 2 ** (bits + 2))
        for sign in (1, -1):
            ups = {}
            for mode in (RoundingMode.SR, RoundingMode.SRB, RoundingMode.SRC):
                cast = Cast(fmt, Rounding(mode, bits))
                got = [round_value(sign * (low + nu * (high - low)), cast, R) for R in range(2**bits)]
                assert {abs(value) for value in got} <= {low, high}
                ups[mode] = sum(abs(value) == high for value in got)
            assert ups[RoundingMode.SR] == math.floor(nu * 2**bits)
            assert ups[RoundingMode.SRB] == math.floor((math.floor(nu * 2 ** (bits + 1)) + 1) / 2)
            assert ups[RoundingMode.SRC] == round(nu * 2**bits)


@pytest.mark.parametrize("R", [None, -1, 8])
def test_a_stochastic_cast_needs_a_draw_in_range(R):
    with pytest.raises(ValueError, match="from 0 to 7"):
        round_value(1.1, Cast(parse("e4m3"), Rounding(RoundingMode.SR, 3)), R)
