"""Element-wise quantize: structure, row-major draws, statistics, and the parts of dyadic arithmetic under it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.formats import parse, parse_cast
from gemmsim.reference import element_draw, quantize, round_value
from gemmsim.reference.dyadic import add, lowest_exponent, multiply, to_float, to_units

finite = st.floats(allow_nan=False, allow_infinity=False)


def test_structure_and_row_major_draws():
    cast = parse_cast("e3m2/sr6")
    x = np.random.default_rng(0).standard_normal((2, 3, 50))
    got = quantize(x, cast, seed=3)
    assert np.shape(got) == (2, 3, 50)
    want = [round_value(v, cast, element_draw(3, i, 16, 6)) for i, v in enumerate(x.ravel().tolist())]
    assert np.ravel(got).tolist() == want
    assert quantize(x.ravel()[100:], cast, seed=3, start=100) == want[100:]
    assert quantize(1.1, "e3m2") == 1.0
    assert quantize([], "e3m2") == []


@pytest.mark.parametrize("name, x", [("e4m3", 0.3), ("e2m1", 1.2), ("e3m2/ftz", 0.1), ("fixed(8,2)", -0.6)])
def test_mean_of_stochastic_rounding_within_four_sigma(name, x):
    count = 4000
    got = quantize([x] * count, f"{name}/sr16", seed=11)
    low, high = min(got), max(got)
    assert low < x < high
    nu = (x - low) / (high - low)
    sigma = (high - low) * math.sqrt(nu * (1 - nu) / count)
    assert abs(sum(got) / count - x) < 4 * sigma + 2.0**-16 * (high - low)


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "binary8p3", "e5m2fnuz", "fixed(8,4)", "e6m9"])
def test_values_of_the_format_stay_whatever_the_mode(name):
    values = parse(name).values()[:: 1 + parse(name).bits ** 3 // 64]
    for mode in ("rne", "rna", "rtz", "ru", "rd", "ro", "sr3", "srb3", "src3"):
        assert quantize(values, f"{name}/{mode}") == values


@given(finite, finite)
def test_dyadic_sums_and_products_are_exact(x, y):
    unit = min(lowest_exponent([x, y]), 0)
    total = add(to_units(x, unit), to_units(y, unit))
    assert Fraction(total) * Fraction(2) ** unit == Fraction(x) + Fraction(y)
    product = multiply(to_units(x, unit), to_units(y, unit))
    assert Fraction(product) * Fraction(4) ** unit == Fraction(x) * Fraction(y)
    assert to_float(total, unit) == x + y
    assert to_float(product, 2 * unit) == x * y


@given(st.floats(), st.floats())
def test_dyadic_specials_follow_ieee(x, y):
    unit = min(lowest_exponent([x, y]), 0)
    for got, want in [
        (to_float(add(to_units(x, unit), to_units(y, unit)), unit), x + y),
        (to_float(multiply(to_units(x, unit), to_units(y, unit)), 2 * unit), x * y),
    ]:
        both_nan = math.isnan(got) and math.isnan(want)
        assert both_nan or (got == want and math.copysign(1, got) == math.copysign(1, want))


def test_an_unbounded_grid_ends_in_53_bits():
    assert round_value(Fraction(2**53 + 1), parse_cast("fixed(8,0,unbounded)")) == 2.0**53
    assert round_value(Fraction(2**53 + 1), parse_cast("fixed(8,0,unbounded)/ru")) == 2.0**53 + 2
    assert round_value(-1e300, parse_cast("fixed(8,4,unbounded)/rd")) == -1e300


def test_a_fraction_that_is_not_dyadic_rounds_from_its_exact_value():
    third, hair = Fraction(1, 3), Fraction(1, 3 * 10**60)
    assert round_value(third, parse_cast("e5m10")) == float(np.float16(1 / 3))
    midpoint = 1 + Fraction(1, 2**11)
    assert round_value(midpoint + hair, parse_cast("e5m10")) == 1 + 2.0**-10
    assert round_value(midpoint - hair, parse_cast("e5m10/rna")) == 1.0
    assert round_value(1 + hair, parse_cast("e5m10/ru")) == 1 + 2.0**-10
    assert round_value(hair * Fraction(1, 10**40), parse_cast("e5m10/ru")) == 2.0**-24
    assert round_value(-third, parse_cast("fixed(8,4)/rd")) == -0.375
