"""mptorch's roundings, number by number, against tables of all values and a search in them: nothing of gemmsim's.

All float16 and all bfloat16 numbers are rounded, in tensors of every dtype that holds them; so are the two behaviours of
which mptorch's documentation and code each have one: ties of fixed point, and finite overflow of ``saturate_infty``.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import gemmsim as gs
from gemmsim.compat.mptorch import number, quant

CARRIERS = {
    "float16": (torch.float16, torch.float32, torch.float64),
    "bfloat16": (torch.bfloat16, torch.float32, torch.float64),
}
EACH = pytest.mark.parametrize("source", CARRIERS)


def all_numbers(source: str) -> torch.Tensor:
    """Every number of a dtype of 16 bits, infinities and NaN too."""
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    return codes.view(getattr(torch, source))


def check(rounded, want, source: str, skip=None) -> None:
    """``rounded`` of all numbers in every carrier has the values of ``want``, a function of float64 numbers."""
    x = all_numbers(source)
    for dtype in CARRIERS[source]:
        got = rounded(x.to(dtype))
        assert got.dtype == dtype
        wanted = want(x.double().numpy())
        equal = (got.double().numpy() == wanted) | (np.isnan(wanted) & got.isnan().numpy())
        equal |= np.zeros_like(equal) if skip is None else skip(wanted, dtype)
        bad = np.flatnonzero(~equal)
        assert not len(bad), [(x[i].item(), got[i].item(), wanted[i]) for i in bad[:5]]


def beyond(wanted: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Results that the carrier does not hold: float16 of formats with a larger range."""
    with np.errstate(over="ignore"):
        held = torch.from_numpy(np.nan_to_num(wanted, nan=0.0)).to(dtype).double().numpy()
    return held != np.nan_to_num(wanted, nan=0.0)


# Fixed point


def fixed(x: np.ndarray, wl: int, fl: int, clamp: bool, symmetric: bool, tie: str) -> np.ndarray:
    """Multiples of 2**-fl; exact, as numbers of 16 bits and their distance to a multiple are numbers of 53 bits."""
    with np.errstate(invalid="ignore"):
        scaled = x * 2.0**fl
        below = np.floor(scaled)
        rest = scaled - below
        up = rest > 0.5 if tie == "down" else (rest > 0.5) | ((rest == 0.5) & (below % 2 == 1))
        value = np.where(np.isfinite(x), below + up, x)
    if clamp:
        least = -(2.0 ** (wl - 1)) + int(symmetric)
        value = np.where(np.isnan(x), x, np.clip(value, least, 2.0 ** (wl - 1) - 1))
    return value * 2.0**-fl


@EACH
@pytest.mark.parametrize("tie", ["even", "down"])
@pytest.mark.parametrize("wl, fl", [(8, 4), (8, 0), (4, 6), (6, -2), (1, 1)])
def test_fixed_point_to_nearest(source, tie, wl, fl):
    for clamp, symmetric in itertools.product((True, False), repeat=2):
        check(
            lambda x: quant.fixed_point_quantize(x, wl, fl, clamp, symmetric, "nearest", tie=tie),  # noqa: B023
            lambda x: fixed(x, wl, fl, clamp, symmetric and clamp, tie),  # noqa: B023
            source,
        )


def test_ties_of_fixed_point_are_even_by_default_and_down_where_asked():
    x = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert quant.fixed_point_quantize(x, 8, 0, rounding="nearest").tolist() == [-2, -2, 0, 0, 2, 2]
    assert quant.fixed_point_quantize(x, 8, 0, rounding="nearest", tie="down").tolist() == [-3, -2, -1, 0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_down_of_long_numbers(dtype):
    """Next to ties, as close as the dtype has numbers."""
    ties = torch.arange(-(2.0**20), 2.0**20, 4097.0, dtype=dtype) + 0.5
    for step, want in ((0, ties - 0.5), (-1, ties - 0.5), (1, ties + 0.5)):
        x = torch.nextafter(ties, torch.full_like(ties, step * math.inf)) if step else ties
        got = quant.fixed_point_quantize(x, 24, 0, rounding="nearest", tie="down")
        assert torch.equal(got, want)


def test_the_number_says_where_ties_go_in_whatever_rounds_to_it():
    down, x = number.FixedPoint(8, 0, tie="down"), torch.tensor([1.5, -1.5, 0.25])
    assert (down == number.FixedPoint(8, 0), repr(down)) == (False, "FixedPoint (wl=8, fl=0)")
    want = [1.0, -2.0, 0.0]
    assert quant.make_quant_function(down, "nearest")(x).tolist() == want
    assert quant.quantizer(down, None, "nearest")(x).tolist() == want
    assert quant.Quantizer(down)(x).tolist() == want
    product = quant.mp_mm(torch.tensor([[1.5]]), torch.ones(1, 1), quant.QAffineFormats(down))
    assert product.item() == 1.0
    assert quant.make_quant_function(down, "truncate")(x).tolist() == [1.0, -1.0, 0.0]


def test_wrong_ties_are_refused():
    x = torch.ones(2)
    for make in (
        lambda: quant.fixed_point_quantize(x, 8, 4, tie="down"),  # stochastic by default: there are no ties
        lambda: quant.fixed_point_quantize(x, 8, 4, rounding="truncate", tie="down"),
        lambda: quant.fixed_point_quantize(x, 8, 4, rounding="nearest", tie="up"),
        lambda: number.FixedPoint(8, 4, tie="up"),
    ):
        with pytest.raises(number.FormatError, match="tie="):
            make()


# Binary8


def binary8_values(P: int, signed: bool, subnormals: bool) -> np.ndarray:
    """Values of codes 0, 1, 2, ... of the side above zero, and one binade further than the codes go."""
    fraction = P - 1
    bias = 2 ** (7 - P if signed else 8 - P) - (P == 1)

    def value(code: int) -> float:
        exponent, trailing = code >> fraction, code & (2**fraction - 1)
        if exponent == 0 and subnormals:
            return trailing * 2.0 ** (1 - fraction - bias)
        if code == 0:
            return 0.0
        return (1 + trailing * 2.0**-fraction) * 2.0 ** (exponent - bias)

    return np.array([value(code) for code in range((128 if signed else 256) + 2**fraction)])


def binary8(x: np.ndarray, number: tuple, rounding: str, policy: str, documented: bool) -> np.ndarray:
    P, signed, subnormals = number
    values = binary8_values(*number)
    largest = (0x7F if signed else 0xFE) - (policy != "saturate_maxfloat2")
    size = np.abs(np.where(np.isfinite(x), x, 0.0))
    code = np.minimum(np.searchsorted(values, size, side="right") - 1, len(values) - 2)
    if rounding == "nearest":
        middle = (values[code] + values[code + 1]) / 2
        code = code + ((size > middle) | ((size == middle) & (code % 2 == 1)))
    limit = values[largest]
    over = limit if policy != "saturate_infty" or documented else math.inf
    size = np.where(code > largest, over, values[code])
    size = np.where(np.isinf(x), math.inf if policy == "saturate_infty" else limit, size)
    result = np.copysign(size, x)
    return np.where(np.isnan(x) | ((x < 0) & (not signed)), math.nan, result)


BINARY8 = [
    (P, signed, s) for P in range(1, 9) for signed in (True, False) for s in (True, False) if P < 8 or not signed
]
POLICIES = ["saturate_infty", "saturate_maxfloat", "saturate_maxfloat2"]


@EACH
@pytest.mark.parametrize("fields", BINARY8, ids=str)
def test_binary8_in_every_policy(source, fields):
    P, signed, subnormals = fields
    for rounding, policy in itertools.product(("nearest", "truncate"), POLICIES):
        variants = ("coded", "documented") if policy == "saturate_infty" else ("coded",)
        for variant in variants:
            check(
                lambda x: quant.binary8_quantize(x, P, rounding, policy, signed, subnormals, saturate_infty=variant),  # noqa: B023
                lambda x: binary8(x, fields, rounding, policy, variant == "documented"),  # noqa: B023
                source,
                beyond,
            )


@EACH
@pytest.mark.parametrize("P", range(1, 8))
def test_stochastic_rounding_of_binary8_without_random_bits_truncates(source, P):
    """By every way to it: the function's default, the number's target, a function made of the number."""
    made = quant.make_quant_function(number.Binary8(P, overflow_policy="saturate_maxfloat"), "stochastic")
    assert made.target.rounding == gs.formats.Rounding.RTZ
    for rounded in (made, lambda x: quant.binary8_quantize(x, P, "stochastic")):
        check(rounded, lambda x: binary8(x, (P, True, True), "truncate", "saturate_maxfloat", False), source, beyond)
    formats = quant.QAffineFormats(number.Binary8(P), fwd_rnd="stochastic")
    assert quant.mp_mm(torch.full((50, 1), 1.99), torch.ones(1, 1), formats).unique().tolist() == [2 - 2.0 ** (1 - P)]


@pytest.mark.parametrize("P", range(1, 9))
def test_binary8_takes_as_many_random_bits_as_float32_drops(P):
    x, most = torch.ones(3), 23 - (P - 1)
    for bits in (0, 1, most):
        assert quant.binary8_quantize(x, P, "stochastic", is_signed=False, prng_bits=bits).tolist() == [1.0] * 3
    for bits in (-1, most + 1):
        with pytest.raises(AssertionError, match=f"allowed: 0 to {most}"):
            quant.binary8_quantize(x, P, "stochastic", is_signed=False, prng_bits=bits)


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_random_bits_of_binary8_make_steps_of_probability(bits):
    """1 + 0.3 of the distance to the next number: that share is cut to ``bits`` bits."""
    x = torch.full((20000,), 1 + 0.3 / 4)
    up = (quant.binary8_quantize(x, 3, "stochastic", prng_bits=bits) > 1).double().mean().item()
    share = math.floor(0.3 * 2**bits) / 2**bits
    assert abs(up - share) <= 6 * math.sqrt(share * (1 - share) / 20000)


def test_finite_overflow_is_infinite_by_default_and_saturates_where_asked():
    x = torch.tensor([1e9, -1e9, math.inf, -math.inf, math.nan, 49152.0])
    coded = quant.binary8_quantize(x, 3, overflow_policy="saturate_infty")
    documented = quant.binary8_quantize(x, 3, overflow_policy="saturate_infty", saturate_infty="documented")
    assert coded[:4].tolist() == [math.inf, -math.inf, math.inf, -math.inf]
    assert documented[:4].tolist() == [49152.0, -49152.0, math.inf, -math.inf]
    assert coded[5] == documented[5] == 49152.0 and coded[4].isnan() and documented[4].isnan()


def test_the_number_says_what_overflows():
    plain = number.Binary8(3, overflow_policy="saturate_infty")
    kept = number.Binary8(3, overflow_policy="saturate_infty", saturate_infty="documented")
    assert kept != plain and repr(kept) == repr(plain) and kept.normal_max == plain.normal_max == 49152.0
    x = torch.tensor([1e9, math.inf])
    assert quant.make_quant_function(kept, "nearest")(x).tolist() == [49152.0, math.inf]
    assert quant.make_quant_function(plain, "nearest")(x).tolist() == [math.inf] * 2
    for f, want in ((kept, 49152.0), (plain, math.inf)):
        sums = quant.QAffineFormats(f)
        assert quant.mp_mm(torch.full((1, 4), 40000.0), torch.ones(4, 1), sums).item() == want
    for make in (
        lambda: number.Binary8(3, saturate_infty="documented"),
        lambda: quant.binary8_quantize(x, 3, saturate_infty="documented"),
        lambda: number.Binary8(3, overflow_policy="saturate_infty", saturate_infty="yes"),
        lambda: number.Binary8(3, overflow_policy="saturate_propagate"),
    ):
        with pytest.raises(number.FormatError, match="allowed"):
            make()


# Floats, supernormal floats, blocks


def float_values(exp: int, man: int, subnormals: bool) -> np.ndarray:
    """Values from zero on, one binade further than the format goes."""
    smallest = 2 - 2 ** (exp - 1)
    low = [k * 2.0 ** (smallest - man) for k in range(1, 2**man)] if subnormals else []
    normal = [(1 + k * 2.0**-man) * 2.0**e for e in range(smallest, 2 ** (exp - 1) + 1) for k in range(2**man)]
    return np.array([0.0, *low, *normal])


def float_nearest(x: np.ndarray, exp: int, man: int, subnormals: bool, saturate: bool) -> np.ndarray:
    values = float_values(exp, man, subnormals)
    size = np.abs(np.where(np.isfinite(x), x, 0.0))
    at = np.minimum(np.searchsorted(values, size, side="right") - 1, len(values) - 2)
    middle = (values[at] + values[at + 1]) / 2
    significand = np.round(values[at] / np.exp2(np.floor(np.log2(np.maximum(values[at], values[1])))) * 2.0**man)
    significand = np.where(values[at] < 2.0 ** (2 - 2 ** (exp - 1)), at, significand)  # subnormals by their number
    odd = (significand % 2 == 1) & (values[at] > 0 if not subnormals else True)
    at = at + ((size > middle) | ((size == middle) & odd))
    limit = 2.0 ** (2 ** (exp - 1) - 1) * (2 - 2.0**-man)
    over = limit if saturate else math.inf
    size = np.where(values[at] > limit, over, values[at])
    return np.where(np.isnan(x), math.nan, np.copysign(np.where(np.isinf(x), math.inf, size), x))


@EACH
@pytest.mark.parametrize("exp, man", [(4, 3), (5, 2), (3, 4), (2, 1), (5, 7)])
def test_floats_to_nearest(source, exp, man):
    for subnormals, saturate in itertools.product((True, False), repeat=2):
        check(
            lambda x: quant.float_quantize(x, exp, man, "nearest", subnormals, saturate),  # noqa: B023
            lambda x: float_nearest(x, exp, man, subnormals, saturate),  # noqa: B023
            source,
        )


def test_floats_have_subnormals_and_saturate_by_default_in_the_function():
    x = torch.tensor([2.0**-9, 1e9, math.inf, -1e9])
    assert quant.float_quantize(x, 4, 3, "nearest").tolist() == [2.0**-9, 240.0, math.inf, -240.0]
    assert quant.make_quant_function(number.FloatingPoint(4, 3), "nearest")(x).tolist() == [
        0.0,
        240.0,
        math.inf,
        -240.0,
    ]


def super_values(exp: int, man: int, lower: int, upper: int, saturate: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values from zero on, one further than the format goes, and whether each begins a stretch of powers of two."""
    first, last = 1 - 2 ** (exp - 1) + (lower - 1), 2 ** (exp - 1) - 2 - (upper - 1)
    low = [2.0**e for e in range(first - lower * 2**man + 1, first)]
    normal = [(1 + k * 2.0**-man) * 2.0**e for e in range(first, last + 1) for k in range(2**man)]
    high = [2.0**e for e in range(last + 1, last + upper * 2**man + int(saturate))]
    values = np.array([0.0, *low, *normal, *high])
    powers = np.array([True] * (1 + len(low)) + [False] * len(normal) + [True] * len(high))
    return values, powers


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("exp, man, binades", [(4, 3, (1, 1)), (3, 2, (1, 1)), (4, 2, (2, 1))])
def test_supernormal_floats_to_nearest(exp, man, binades, saturate):
    values, powers = super_values(exp, man, *binades, saturate)

    def want(x: np.ndarray) -> np.ndarray:
        size = np.abs(np.where(np.isfinite(x), x, 0.0))
        at = np.searchsorted(values, size, side="right") - 1
        top = at == len(values) - 1
        following = np.where(top, 2 * values[at], values[np.minimum(at + 1, len(values) - 1)])
        middle = (values[at] + following) / 2
        odd = np.where(powers[at], True, (at - np.argmin(powers)) % 2 == 1)  # powers of two: ties go away from zero
        up = (size > middle) | ((size == middle) & odd & (size > 0))
        inside = np.where(up, following, values[at])
        over = values[-1] if saturate else math.inf
        size = np.where((top & up) | np.isinf(x), over, inside)
        return np.where(np.isnan(x), math.nan, np.copysign(size, x))

    check(lambda x: quant.superfp_quantize(x, exp, man, binades, saturate=saturate), want, "bfloat16", beyond)


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
@pytest.mark.parametrize("wl", [2, 4, 8])
def test_blocks_to_nearest(wl, dim):
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(wl)) * torch.logspace(-3, 3, 5)
    others = [d for d in range(3) if d != dim] if dim >= 0 else [0, 1, 2]
    largest = x.double().abs().amax(others, keepdim=True)
    step = torch.exp2(torch.floor(torch.log2(largest)) + 2 - wl)
    want = torch.round(x.double() / step).clamp(1 - 2 ** (wl - 1), 2 ** (wl - 1) - 1) * step
    assert torch.equal(quant.block_quantize(x, wl, dim, "nearest"), want.float())
    if dim == -1:
        assert torch.equal(quant.block_quantize(x, wl, rounding="nearest"), want.float())


@pytest.mark.parametrize(
    "rounded",
    [
        lambda x: quant.float_quantize(x, 5, 2),
        lambda x: quant.fixed_point_quantize(x, 8, 2),
        lambda x: quant.block_quantize(x, 4),
        lambda x: quant.quantizer(number.FloatingPoint(5, 2))(x),
    ],
    ids=["float", "fixed", "block", "quantizer"],
)
def test_the_default_rounding_of_these_is_stochastic(rounded):
    """1.3 lies a fifth of the way from 1.25 to 1.5."""
    got = rounded(torch.full((20000,), 1.3))
    assert got.unique().tolist() == [1.25, 1.5]
    assert abs((got == 1.5).double().mean().item() - 0.2) < 6 * math.sqrt(0.2 * 0.8 / 20000)


def test_fewer_random_bits_of_floats_make_steps_of_probability():
    """1/64 above 1 is a sixteenth of the distance: one random bit never sees it."""
    x = torch.full((4000,), 1 + 1 / 64)
    assert quant.float_quantize(x, 5, 2, prng=1).unique().tolist() == [1.0]
    up = (quant.float_quantize(x, 5, 2) > 1).double().mean().item()
    assert abs(up - 1 / 16) < 6 * math.sqrt(15 / 16 / 16 / 4000)
