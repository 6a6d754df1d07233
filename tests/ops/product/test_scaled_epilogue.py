"""The epilogue of scaled products: one exact fused multiply-add, then the roundings that the output names."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

from gemmsim.formats import parse_cast
from gemmsim.ops.product.scaled_epilogue import alpha_of, epilogue

#: Format -> bits of the significand, exponent of the least subnormal, largest finite value.
SHAPES = {"fp32": (24, -149, 2**128 - 2**104), "bf16": (8, -133, 2**128 - 2**120), "fp16": (11, -24, 65504)}


def nearest(x: Fraction, name: str) -> float:
    """``x`` rounded to nearest even, in whole numbers; infinity beyond the largest value."""
    bits, least, largest = SHAPES[name]
    if x == 0:
        return 0.0
    top = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    top -= abs(x) < Fraction(2) ** top
    step = Fraction(2) ** max(top - bits + 1, least)
    found = round(abs(x) / step) * step  # Python rounds halves to even
    return math.copysign(math.inf if found > largest else float(found), x)


def wide(*shape: int, spread: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-spread, spread, shape, generator=g).float()
    return torch.randn(shape, generator=g) * torch.exp2(exponents)


def halves(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs whose sum lies just beside the middle of two neighbours in bfloat16 and float32: ties for double rounding."""
    base = 1 + torch.arange(count) * 2.0**-7
    beside = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0) * torch.exp2(-20.0 - torch.arange(count) % 40)
    return base + 2.0**-8, beside


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("spread", [4, 20, 74])
def test_one_rounding_of_the_exact_value(name, spread):
    acc, c = wide(400, spread=spread, seed=1), wide(400, spread=spread, seed=2)
    tied, beside = halves(120)
    acc, c = torch.cat([acc, tied]), torch.cat([c, beside])
    alpha, beta = torch.tensor(1.0), torch.tensor(0.7)
    for factor, times in ((alpha, None), (wide(1, spread=4, seed=3), beta), (wide(520, spread=9, seed=4), None)):
        found = epilogue(acc, factor, times, c, parse_cast(name))
        b = Fraction(1) if times is None else Fraction(float(times))
        factors = factor.expand(520).tolist()
        want = [
            nearest(Fraction(x) * Fraction(f) + b * Fraction(y), name)
            for x, f, y in zip(acc.tolist(), factors, c.tolist(), strict=True)
        ]
        assert found.dtype == torch.float32
        assert_bitwise_equal(found, torch.tensor(want, dtype=torch.float64).float())


def test_two_roundings_differ_from_one():
    tied, beside = halves(120)
    one = torch.tensor(1.0)
    once = epilogue(tied, one, None, beside, parse_cast("bf16"))
    twice = epilogue(tied, one, None, beside, parse_cast("bf16/via(fp32)"))
    assert_bitwise_equal(twice, (tied.double() + beside.double()).float().bfloat16().float())
    assert not torch.equal(once, twice)


def test_factors_are_multiplied_first():
    """Which differs from one factor after the other in a third of all results."""
    a, b = wide(4096, spread=3, seed=5), wide(4096, spread=3, seed=6)
    acc = wide(4096, spread=9, seed=7)
    found = epilogue(acc, alpha_of(a, b), None, None, parse_cast("fp32"))
    assert_bitwise_equal(found, (acc.double() * (a * b).double()).float())
    differing = (found != acc * a * b).float().mean()
    assert 0.3 < differing < 0.4


def test_zeros_underflow_and_specials():
    minus, tiny = torch.tensor(-1.0), torch.tensor(2.0**-100)
    fp32 = parse_cast("fp32")
    assert_bitwise_equal(epilogue(torch.tensor([0.0, -0.0]), minus, None, None, fp32), torch.zeros(2))
    assert_bitwise_equal(epilogue(-tiny.expand(2), tiny, None, None, fp32), torch.tensor([-0.0, -0.0]))
    assert_bitwise_equal(epilogue(-tiny.expand(2), tiny, None, torch.zeros(2), fp32), torch.tensor([-0.0, -0.0]))
    assert_bitwise_equal(epilogue(torch.tensor([-0.0]), -minus, None, torch.tensor([-0.0]), fp32), torch.tensor([-0.0]))
    inf = torch.tensor([math.inf, -math.inf, math.nan])
    assert_bitwise_equal(epilogue(inf[:2], minus, None, torch.ones(2), fp32), -inf[:2])
    for acc, alpha in ((inf[2:], minus), (inf[:1], torch.tensor(0.0)), (torch.zeros(1), inf[0])):
        assert epilogue(acc, alpha, None, None, fp32).isnan().all()
    big = torch.tensor([2.0**127])
    assert_bitwise_equal(epilogue(big, torch.tensor(4.0), None, None, fp32), inf[:1])


def test_the_last_factor_comes_between_the_roundings():
    acc, last = wide(2048, spread=14, seed=8), torch.tensor(1.7)
    alpha = torch.tensor(0.3)
    out = parse_cast("e4m3/satfinite/via(fp32)")
    found = epilogue(acc, alpha, None, None, out, last)
    scaled = (acc.double() * alpha.double()).float() * last
    assert_bitwise_equal(found, scaled.clamp(-448, 448).to(torch.float8_e4m3fn).float())
    assert (scaled.abs() > 448).any()
    everything = torch.tensor([math.inf, -math.inf, 1e30, -1e30])
    assert_bitwise_equal(
        epilogue(everything, torch.tensor(1.0), None, None, parse_cast("e5m2/satfinite/via(fp32)")),
        torch.tensor([57344.0, -57344.0, 57344.0, -57344.0]),
    )
    with pytest.raises(ValueError, match="casts with via"):
        epilogue(acc, alpha, None, None, parse_cast("e4m3"), last)


def test_compiled():
    acc, c = wide(64, spread=6, seed=9), wide(64, spread=6, seed=10)
    alpha, out = torch.tensor(0.3), "bf16"
    call = torch.compile(lambda x, y: epilogue(x, alpha, None, y, out), fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(call(acc, c), epilogue(acc, alpha, None, c, parse_cast(out)))
