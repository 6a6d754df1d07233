"""Requantisation against Python's fractions, and against gemmlowp's functions written down in plain integers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch

import gemmsim as gs
from gemmsim.formats import FormatError

LOW, HIGH = -(2**31), 2**31 - 1


def rounded(x: Fraction, how: str) -> int:
    down = math.floor(x)
    if how in ("rd", "ru", "rtz"):
        return {"rd": down, "ru": math.ceil(x), "rtz": math.trunc(x)}[how]
    rest = x - down
    if rest != Fraction(1, 2):
        return down + (rest > Fraction(1, 2))
    return {"half_up": down + 1, "rne": down + down % 2, "rna": down + (x > 0)}[how]


@pytest.mark.parametrize("how", ["half_up", "rne", "rna", "rd", "ru", "rtz"])
def test_one_rounding_of_the_exact_product(how):
    rng = random.Random(how)
    sums = [*range(-40, 41), *(rng.randrange(LOW, HIGH) for _ in range(200))]
    for multiplier, shift in ((1, 0), (1, 1), (3, 2), (1, 4), (77, 11), (-5, 3), (2**30 + 1, 40), (2**30, 62), (0, 5)):
        got = gs.requantize(torch.tensor(sums), multiplier, shift, out=None, rounding=how)
        want = [rounded(Fraction(x * multiplier, 2**shift), how) for x in sums]
        assert got.dtype is torch.int64 and got.tolist() == want, (multiplier, shift)


def high_mul(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul, line by line."""
    if a == b == LOW:
        return HIGH
    product = a * b
    nudge = (1 << 30) if product >= 0 else (1 - (1 << 30))
    total = product + nudge
    return total // 2**31 if total >= 0 else -(-total // 2**31)


def divide_by_power(x: int, exponent: int) -> int:
    """RoundingDivideByPOT, line by line."""
    mask = (1 << exponent) - 1
    remainder = x & mask
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if remainder > threshold else 0)


def test_gemmlowps_two_roundings():
    rng = random.Random(5)
    special = [LOW, LOW + 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30, HIGH]
    multipliers = [LOW, -(2**30), 1, 2**30, 2**30 + 1, HIGH, *(rng.randrange(2**30, 2**31) for _ in range(5))]
    for multiplier in multipliers:
        for shift in (0, 1, 2, 7, 31):
            sums = (
                special
                + [rng.randrange(LOW, HIGH + 1) for _ in range(50)]
                + [rng.randrange(-300, 300) for _ in range(50)]
            )
            got = gs.requantize(torch.tensor(sums), multiplier, shift, out=None, method="gemmlowp")
            assert got.tolist() == [divide_by_power(high_mul(x, multiplier), shift) for x in sums]
        for shift in (-1, -5):
            sums = [rng.randrange(-(2**25), 2**25) for _ in range(50)]
            got = gs.requantize(torch.tensor(sums), multiplier, shift, out=None, method="gemmlowp")
            assert got.tolist() == [high_mul(x << -shift, multiplier) for x in sums]


def test_two_roundings_are_not_one():
    """0.4999... of the last place becomes a half first: the methods differ by one there."""
    multiplier, shift = gs.fixed_point_multiplier(0.25)
    assert (multiplier, shift) == (2**30, 1)
    x = torch.arange(-8, 9)
    two = gs.requantize(x, multiplier, shift, out=None, method="gemmlowp")
    one = gs.requantize(x, multiplier, shift + 31, out=None, rounding="rna")
    assert two.tolist() != one.tolist() and int((two - one).abs().max()) == 1


def test_zero_points_clamps_and_channels():
    sums = torch.tensor([[1000, 1000, 1000], [-1000, -1000, 100000]], dtype=torch.int32)
    multiplier, shift, zero = torch.tensor([1, 3, 5]), torch.tensor([3, 4, 2]), torch.tensor([0, 10, -20])
    got = gs.requantize(sums, multiplier, shift, zero_point=zero, out="uint8")
    assert got.tolist() == [[125, 198, 255], [0, 0, 255]]
    free = gs.requantize(sums, multiplier, shift, zero_point=zero, out=None)
    assert free.tolist() == [[125, 198, 1230], [-125, -177, 124980]]
    assert gs.requantize(sums.double(), 1, 0, out="int4").tolist() == [[7, 7, 7], [-8, -8, 7]]
    assert gs.requantize(sums.numpy(), 1, 3, out="int8").tolist() == [[125, 125, 125], [-125, -125, 127]]
    assert gs.requantize(torch.ones(0, 3), multiplier, shift).shape == (0, 3)
    for lone in range(3):
        one = gs.requantize(
            sums[:, lone], int(multiplier[lone]), int(shift[lone]), zero_point=int(zero[lone]), out=None
        )
        assert torch.equal(one, free[:, lone])


@pytest.mark.parametrize(
    ("args", "options", "error", "says"),
    [
        (([1], 1, 1), {}, gs.DTypeError, "sums is a list"),
        ((torch.tensor([0.5]), 1, 1), {}, gs.DTypeError, "sums holds 0.5"),
        ((torch.tensor([1]), 0.5, 1), {}, gs.DTypeError, "multiplier=0.5.*\n.*fixed_point_multiplier"),
        ((torch.tensor([1]), 1, 1.0), {}, gs.DTypeError, "shift=1.0"),
        ((torch.tensor([1]), 1, -1), {}, ValueError, "shift from -1 to -1; allowed: 0 to 62"),
        ((torch.tensor([1]), 1, 63), {}, ValueError, "0 to 62"),
        ((torch.tensor([1]), 1, 32), {"method": "gemmlowp"}, ValueError, "-31 to 31"),
        ((torch.tensor([2**40]), 2**30, 4), {}, gs.DTypeError, "below 2.62"),
        ((torch.tensor([2**31]), 1, 4), {"method": "gemmlowp"}, gs.DTypeError, "32 bits"),
        ((torch.tensor([2**30]), 1, -2), {"method": "gemmlowp"}, gs.DTypeError, "shifted left"),
        ((torch.tensor([1]), 2**31, 4), {"method": "gemmlowp"}, gs.DTypeError, "multiplier from"),
        ((torch.tensor([1]), 1, 1), {"method": "tflite"}, ValueError, "'shift' or 'gemmlowp'"),
        ((torch.tensor([1]), 1, 1), {"rounding": "up"}, ValueError, "'half_up', 'rne'"),
        ((torch.tensor([1]), 1, 1), {"method": "gemmlowp", "rounding": "rne"}, ValueError, "roundings are its own"),
        ((torch.tensor([1]), 1, 1), {"out": "e4m3"}, FormatError, "integers of N bits"),
        ((torch.tensor([1]), 1, 1), {"out": "fixed(8,4)"}, FormatError, "integers of N bits"),
        ((torch.tensor([1]), 1, 1), {"out": "int9x"}, FormatError, "int9x"),
        ((torch.ones(2, 3), torch.tensor([1, 2]), 1), {}, gs.ShapeError, "channels last"),
        ((torch.ones(3), torch.ones(2, 3), 1), {}, gs.ShapeError, "channels last"),
    ],
)
def test_bad_arguments(args, options, error, says):
    with pytest.raises(error, match=says):
        gs.requantize(*args, **options)


def test_multipliers_are_the_scales_in_31_bits():
    rng = random.Random(1)
    for _ in range(200):
        scale = rng.uniform(0.5, 1) * 2.0 ** rng.randrange(-30, 20)
        multiplier, shift = gs.fixed_point_multiplier(scale)
        assert 2**30 <= multiplier < 2**31
        assert abs(Fraction(multiplier, 2**31) / Fraction(2) ** shift / Fraction(scale) - 1) <= Fraction(1, 2**31)
    assert gs.fixed_point_multiplier(1.0) == (2**30, -1)
    assert gs.fixed_point_multiplier(1 - 2.0**-40) == (2**30, -1)  # rounds up to the next power of two
    assert gs.fixed_point_multiplier(0.0) == gs.fixed_point_multiplier(2.0**-60) == (0, 0)
    multipliers, shifts = gs.fixed_point_multiplier(torch.tensor([[0.25, 0.0375]], dtype=torch.float64))
    assert multipliers.tolist() == [[2**30, 1288490189]] and shifts.tolist() == [[1, 4]]
    for wrong in (-0.5, float("nan"), float("inf"), 2.0**31):
        with pytest.raises(ValueError, match="0 to 2.31"):
            gs.fixed_point_multiplier(wrong)
