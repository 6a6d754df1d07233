"""What casts and products lose, against loops over single numbers."""

from __future__ import annotations

import math

import pytest
import torch

import gemmsim as gs
from gemmsim.study.cast_losses import CastLosses, cast_losses, product_losses
from gemmsim.study.errors import StudyError


def blocks(x, rows, terms):
    rows, terms = rows or x.shape[0], terms or x.shape[1]
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], terms):
            yield x[i : i + rows, j : j + terms].flatten().tolist()


def power_down(value):
    return 2.0 ** math.floor(math.log2(value))


def power_up(value):
    return 2.0 ** math.ceil(math.log2(value))


def e4m3(value):
    """To nearest even, from 2^-6 to 448."""
    value = max(value, 2.0**-6)
    step = 2.0 ** (math.floor(math.log2(value)) - 3)
    return min(448.0, round(value / step) * step)


#: Cast -> rows, terms, scale of a block by its and the tensor's amax, largest number, half the smallest, gain.
CASTS = {
    "e4m3/sat@tensor": (0, 0, lambda amax, whole: amax / 448, 448, 2.0**-10, 1),
    "e4m3/sat@1x16/divide": (1, 16, lambda amax, whole: amax / 448, 448, 2.0**-10, 1),
    "e4m3/sat@4x8/divide/pow2": (4, 8, lambda amax, whole: power_up(amax / 448), 448, 2.0**-10, 1),
    "e4m3/sat@row/pow2": (1, 0, lambda amax, whole: power_up(amax / 448), 448, 2.0**-10, 1),
    "e2m1/sat@1x32/floor": (1, 32, lambda amax, whole: power_down(amax) / 4, 6, 0.25, 1),
    "e2m1/sat@1x32/floor/gain(0.75)": (1, 32, lambda amax, whole: power_down(amax) / 4, 6, 0.25, 0.75),
    "e2m1/sat@1x16/nvfp4": (1, 16, lambda amax, whole: e4m3(amax / whole * 448) * whole / 2688, 6, 0.25, 1),
    "e2m1/sat@16x16/nvfp4": (16, 16, lambda amax, whole: e4m3(amax / whole * 448) * whole / 2688, 6, 0.25, 1),
    "mxfp8_e4m3": (1, 32, lambda amax, whole: power_down(amax) / 256, 448, 2.0**-10, 1),
    "mxfp8_e4m3/rceil": (1, 32, lambda amax, whole: power_up(amax / 448), 448, 2.0**-10, 1),
    "e4m3/sat": (0, 0, lambda amax, whole: 1.0, 448, 2.0**-10, 1),
}


@pytest.mark.parametrize("text", CASTS)
def test_counts_are_those_of_a_loop(text):
    rows, terms, scale, largest, half, gain = CASTS[text]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(19, 70, generator=generator) * torch.exp(4 * torch.randn(19, 70, generator=generator))
    x[3, :32], x[5, 7] = 0.0, 0.0
    whole = float(x.abs().max())
    nonzero = zeros = saturated = 0
    for block in blocks(x, rows, terms):
        amax = max(abs(value) for value in block)
        for value in block:
            if value:
                size = abs(value) / scale(amax, whole) * gain
                nonzero += 1
                zeros += size <= half  # a tie goes to zero, which is even
                saturated += size > largest * (1 + 1e-6)
    assert cast_losses(x, gs.GemmSpec.of(f"{text} : fp32").a) == CastLosses(nonzero, zeros, saturated)
    assert zeros > 20 and (saturated > 0) is (text in SATURATING)


SATURATING = {"e2m1/sat@1x32/floor", "e2m1/sat@1x16/nvfp4", "e2m1/sat@16x16/nvfp4", "mxfp8_e4m3", "e4m3/sat"}


def test_without_a_cast_nothing_is_lost():
    x = torch.tensor([[1.0, 0.0, 1e-30]])
    assert cast_losses(x, None) == CastLosses(2, 0, 0)
    assert cast_losses(torch.zeros(2, 16), gs.formats.parse("e2m1/sat@1x16/nvfp4")) == CastLosses(0, 0, 0)


def test_small_gradients_have_the_scales_of_large_ones():
    """Blocks of zeros do not change the scale of the tensor."""
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(2))
    x[0] = 0.0
    cast = gs.formats.parse("e2m1/sat@1x16/nvfp4")
    assert cast_losses(x, cast) == cast_losses(x * 2.0**-30, cast)


def test_a_transform_spreads_what_would_become_zero():
    """One large element beside small ones: all but it are zeros, and behind the transform none is."""
    x = torch.full((4, 16), 0.01)
    x[:, 3] = 80.0
    plain, turned = (gs.formats.parse(f"e2m1/sat@1x16/floor{end}") for end in ("", "/hadamard(16,3)"))
    assert cast_losses(x, plain) == CastLosses(64, 60, 0)
    assert cast_losses(x, turned) == CastLosses(64, 0, 0)


def test_what_another_cast_kept_is_what_a_stored_operand_loses():
    x = torch.randn(32, 48, generator=torch.Generator().manual_seed(3))
    kept = gs.quantize(x.mT.contiguous(), "e2m1/sat@1x16/floor").mT.contiguous()
    stored = gs.formats.parse("e2m1/sat@1x16/divide/stored(e2m1/sat@1x16/floor)")
    assert cast_losses(x, stored) == cast_losses(kept, gs.formats.parse("e2m1/sat@1x16/divide"))


def test_random_bits_depend_on_the_seed():
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(4))
    cast = gs.formats.parse("e2m1/sat/sr16@1x32/floor/gain(0.75)")
    assert cast_losses(x, cast, 1) == cast_losses(x, cast, 1) != cast_losses(x, cast, 2)


def test_bias_and_error_of_a_product():
    """1 + 2^-9 becomes 1 in bf16, and its square is too small by 2^-8 and a little."""
    a = torch.tensor([[1 + 2.0**-9, 0.0]])
    lost = product_losses(a, a, gs.GemmSpec.of("bf16 : fp32"))
    truth = (1 + 2.0**-9) ** 2
    assert lost.bias == pytest.approx((1 - truth) / truth) and lost.error == pytest.approx(-lost.bias)
    assert lost.operands == CastLosses(2, 0, 0)
    exact = product_losses(a, a, gs.GemmSpec.of("fp32 : fp64"))
    assert exact.bias == exact.error == 0.0
    b = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    signed = product_losses(b, b, gs.GemmSpec.of("bf16 : fp32"))
    assert signed.bias == 0.0


def test_a_product_without_a_number_has_no_bias():
    a = torch.tensor([[1e5, 1.0]])
    lost = product_losses(a, a, gs.GemmSpec.of("e5m10 : fp32"))
    assert lost.bias is None and lost.error is None and lost.operands.saturated == 2
    assert product_losses(torch.zeros(2, 4), a.expand(2, 2).repeat(1, 2), gs.GemmSpec.of("bf16 : fp32")).bias is None


def test_a_block_format_with_other_scales_is_refused():
    with pytest.raises(StudyError, match="allowed: scales of powers of two"):
        cast_losses(torch.ones(1, 16), gs.formats.parse("nvfp4"))
    with pytest.raises(StudyError, match="allowed: casts"):
        cast_losses(torch.ones(1, 16), "e4m3")
