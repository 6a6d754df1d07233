"""What mptorch 0.3.0 gets wrong is right here: one test for each row of the sheet's tables, by the sheet's names.

Stochastic roundings are judged exactly: the number of draws R that go up, over all R of one value.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import gemmsim as gs
from gemmsim.formats import parse_cast
from gemmsim.reference import round_value


def rounded(values, fmt, **kwargs):
    return gs.quantize(torch.tensor(values, dtype=torch.float32), fmt, **kwargs).tolist()


def up_share(x: float, name: str) -> Fraction:
    """Share of the draws R that take ``x`` to its upper neighbour, through the reference."""
    cast = parse_cast(name)
    results = [round_value(x, cast, R) for R in range(1 << cast.rounding.bits)]
    return Fraction(sum(result > x for result in results), len(results))


DRAWS = 20000


def deviations(share: float) -> float:
    """Six standard deviations of the share of so many draws."""
    return 6 * (share * (1 - share) / DRAWS) ** 0.5


def mean(x: float, fmt: str, draws: int = DRAWS) -> float:
    return gs.quantize(torch.full((draws,), x, dtype=torch.float64), fmt, seed=11).mean().item()


def test_f1_without_subnormals_the_nearer_of_zero_and_the_smallest():
    got = rounded([x * 2.0**-6 for x in (0.5, 0.51, 0.6, 0.7, 0.75)], "ieee_e4m3/ftz/sat")
    assert got == [0.0, 2.0**-6, 2.0**-6, 2.0**-6, 2.0**-6]


def test_f2_binary32_subnormals_are_rounded_to_the_right_bit():
    x = torch.tensor([1e-40])
    assert gs.quantize(x, "e8m7").item() == x.bfloat16().float().item()


@pytest.mark.parametrize("share", [0.3, 0.51, 0.9])
def test_f3_stochastic_without_subnormals_has_the_right_mean(share):
    smallest = 2.0**-6
    assert abs(mean(share * smallest, "ieee_e4m3/ftz/sr16") / smallest - share) < deviations(share)
    assert up_share(share * smallest, "ieee_e4m3/ftz/sr8") == Fraction(math.floor(share * 256), 256)


@pytest.mark.parametrize("fmt", ["ieee_e4m3/sr/sat", "ieee_e4m3/sr", "binary8(3)/sr", "supernormal(4,3)/sr"])
def test_f4_stochastic_of_nan_is_nan(fmt):
    payload = torch.tensor([0x7FFFFFFF, 0x7F800001, 0x7FC00000], dtype=torch.int32).view(torch.float32)
    assert gs.quantize(payload, fmt, seed=1).isnan().all()


def test_f5_infinity_stays_when_finite_overflow_saturates():
    for rounding in ("rne", "sr", "rtz", "ru", "rd", "rna", "ro"):
        assert rounded([math.inf, -math.inf, 1e9], f"ieee_e4m3/{rounding}/sat") == [math.inf, -math.inf, 240.0]


def test_f6_negative_underflow_keeps_its_sign():
    for fmt in ("ieee_e4m3", "ieee_e4m3/ftz"):
        assert [math.copysign(1, x) for x in rounded([-0.0, -1e-9, 0.0], fmt)] == [-1.0, -1.0, 1.0]


def test_f7_one_random_bit_has_two_probabilities():
    shares = [up_share(1 + k / 64, "ieee_e4m2/sr1") for k in range(16)]
    assert shares == [0] * 8 + [Fraction(1, 2)] * 8


def test_x1_stochastic_fixed_point_leaves_integers_alone():
    values = [2.0**22 + 1, 2.0**23 + 1, -(2.0**23) - 1]
    for seed in range(50):
        assert rounded(values, "fixed(32,0)/sr", seed=seed) == values


def test_b1_blocks_near_the_largest_float():
    assert rounded([1e38, 2.0], "bfp(8,tensor)") == [float(torch.tensor(1e38).div(2.0**120).round() * 2.0**120), 0.0]
    assert rounded([3.4e38, -3.4e38], "bfp(8,2)") == [127 * 2.0**121, -127 * 2.0**121]


def test_b2_blocks_of_many_bits():
    assert rounded([1.5, 1.0], "bfp(24,tensor)") == [1.5, 1.0]
    assert rounded([1.5, 2.0**-30], "bfp(32,tensor)") == [1.5, 2.0**-30]


def test_b3_nan_poisons_itself_alone_and_infinity_saturates():
    got = rounded([1.0, math.nan, 0.3, math.inf, -math.inf], "bfp(8,tensor)")
    assert math.isnan(got[1]) and got[:1] + got[2:] == [1.0, 0.296875, 1.984375, -1.984375]


def test_b4_blocks_of_subnormals():
    tiny = 2.0**-149
    assert rounded([5 * tiny, 3 * tiny, -tiny], "bfp(3,tensor)") == [6 * tiny, 4 * tiny, 0.0][:0] + [
        4 * tiny,
        4 * tiny,
        0.0,
    ]


def test_b5_empty_tensors():
    for fmt in ("bfp(8,tensor)", "bfp(8,16)", "bfp(8,index=0)"):
        assert gs.quantize(torch.empty(0), fmt).shape == (0,)


def test_blocks_round_ties_to_even():
    assert rounded([1.0, 0.125, -0.125, 0.375, -0.375], "bfp(4,tensor)") == [1.0, 0.0, 0.0, 0.5, -0.5]


def test_s1_the_largest_power_takes_what_is_nearest_to_it():
    top = gs.formats.parse_scalar("supernormal(3,2)").max
    got = rounded([top * 1.03, top * 1.49, top * 1.5, math.inf], "supernormal(3,2)")
    assert got == [top, top, math.inf, math.inf]
    assert rounded([top * 9, math.inf], "supernormal(3,2,saturate)") == [2 * top, 2 * top]


def test_s1_of_the_sheet():
    assert rounded([33.0], "supernormal(3,2)") == [32.0]


def test_s2_half_the_smallest_value_becomes_it():
    smallest = gs.formats.parse_scalar("supernormal(4,3)").smallest_subnormal
    got = rounded([smallest * x for x in (0.49, 0.5, 0.75, 1.0)], "supernormal(4,3)")
    assert got == [0.0, smallest, smallest, smallest]


def test_supernormal_ties_between_powers():
    assert rounded([192.0, 384.0], "supernormal(4,3)") == [256.0, 512.0]
    assert rounded([192.0, 384.0], "supernormal(4,3,even_exponent)") == [256.0, 256.0]


@pytest.mark.parametrize("fmt", ["e5m2/sr", "binary8(3)", "binary8(3)/sr", "supernormal(4,3)/sr8", "fixed(8,4)/sr"])
def test_q1_q2_q5_every_format_and_rounding_is_a_quantizer(fmt):
    x = torch.randn(64, requires_grad=True)
    gs.quantizer(fmt, fmt)(x).sum().backward()
    cast = parse_cast(fmt)
    assert all(cast.format.is_representable(value) for value in gs.quantizer(fmt)(x).tolist())


def test_q3_the_mask_needs_no_backward_format():
    x = torch.tensor([0.3, 100.0], requires_grad=True)
    gs.quantizer("fixed(8,4)", clamping_grad_zero=True)(x).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


def test_q4_hooks_run_in_order_with_or_without_the_rest():
    for kwargs in ({}, {"backward_number": "fp32"}, {"forward_number": "fixed(8,4)", "clamping_grad_zero": True}):
        x = torch.ones(2, requires_grad=True)
        gs.quantizer(**kwargs, backward_hooks=[lambda g: g * 3, lambda g: g + 1])(x).sum().backward()
        assert x.grad.tolist() == [4.0, 4.0]


def test_p1_unsigned_truncation_reaches_the_smallest_values():
    assert rounded([1.5 * 2.0**-32], "binary8(3,unsigned)/truncate") == [1.5 * 2.0**-32]


def test_p2_truncation_goes_toward_zero_below_the_smallest_value():
    smallest = gs.formats.parse_scalar("binary8(3)").smallest_subnormal
    assert rounded([smallest * x for x in (0.51, 0.99, 1.99)], "binary8(3)/truncate") == [0.0, 0.0, smallest]


def test_p3_one_random_bit_of_binary8_has_two_probabilities():
    shares = [up_share(1 + k / 64, "binary8(3)/sr1") for k in range(16)]
    assert shares == [0] * 8 + [Fraction(1, 2)] * 8


def test_p4_signed_binary8_of_precision_eight_is_refused():
    with pytest.raises(gs.FormatError, match="1 to 7"):
        gs.formats.parse("binary8(8)")
    assert rounded([1.0], "binary8(8,unsigned)") == [1.0]


def test_p5_below_the_smallest_value_rounding_is_stochastic_too():
    smallest = gs.formats.parse_scalar("binary8(3)").smallest_subnormal
    assert abs(mean(0.25 * smallest, "binary8(3)/sr16") / smallest - 0.25) < deviations(0.25)
    assert up_share(0.25 * smallest, "binary8(3)/sr4") == Fraction(1, 4)


def test_binary8_policies():
    over = [1e9, -1e9, math.inf]
    for rounding in ("nearest", "truncate"):
        assert rounded(over, f"binary8(3,saturate_infty)/{rounding}") == [math.inf, -math.inf, math.inf]
        assert rounded(over, f"binary8(3,saturate_propagate)/{rounding}") == [49152.0, -49152.0, math.inf]
        assert rounded(over, f"binary8(3,saturate_maxfloat)/{rounding}") == [49152.0, -49152.0, 49152.0]
        assert rounded(over, f"binary8(3)/{rounding}") == [57344.0, -57344.0, 57344.0]


def test_unsigned_binary8_has_nothing_below_zero():
    got = rounded([-1e-30, -5.0, -math.inf, -0.0], "binary8(3,unsigned)")
    assert all(math.isnan(x) for x in got[:3]) and math.copysign(1, got[3]) == 1.0 and got[3] == 0.0


def test_binary8_without_subnormals():
    smallest = (1 + 2.0**-2) * 2.0**-16
    got = rounded([smallest * x for x in (0.5, 0.51, 1.0)] + [2.0**-16, 2.0**-15], "binary8(3)/ftz")
    assert got == [0.0, smallest, smallest, smallest, 2.0**-15]
    shares = up_share(0.375 * smallest, "binary8(3)/ftz/sr3")
    assert shares == Fraction(3, 8)


def test_unknown_roundings_are_refused_not_taken_for_stochastic():
    with pytest.raises(gs.FormatError, match="nearest"):
        gs.quantize(torch.ones(1), "e4m3", rounding="neerest")


def test_fixed_point_options():
    assert rounded([0.5, 1.5, 2.5, -0.5], "fixed(8,0)") == [0.0, 2.0, 2.0, 0.0]
    assert rounded([0.5, 1.5, -2.5], "fixed(8,0)", rounding="half_away") == [1.0, 2.0, -3.0]
    assert rounded([0.5, 1.5, -2.5, 0.75], "fixed(8,0)", rounding="half_down") == [0.0, 1.0, -3.0, 1.0]
    assert rounded([-9.0, 9.0, math.inf], "fixed(4,0,symmetric)") == [-7.0, 7.0, 7.0]
    assert rounded([-9.25, math.inf], "fixed(4,1,unbounded)") == [-9.0, math.inf]
