"""Tensor scaling: the exponent formula, exactly, and the layers that use it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.scaling import scale_by_power, scale_exponent


def by_definition(largest: float, amax: float, margin: int) -> int:
    """floor(log2(largest / amax)) - margin in exact arithmetic; 0 for amax = 0."""
    if amax == 0:
        return 0
    ratio = Fraction(largest) / Fraction(amax)
    k = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    while Fraction(2) ** k > ratio:
        k -= 1
    while Fraction(2) ** (k + 1) <= ratio:
        k += 1
    return k - margin


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("largest", [448.0, 57344.0, 6.0, 65504.0, 2.0**127, 1.0])
def test_the_exponent_is_the_formula(largest, dtype):
    tiny = torch.finfo(dtype).smallest_normal / 4  # subnormal
    values = [1.0, 448.0, 447.9, 449.0, 3.5, 0.875, 2.0**-14, 57344.0, 65504.0, 0.0, tiny]
    for value in torch.tensor(values, dtype=torch.float64).to(dtype).tolist():
        if not math.isfinite(value):
            continue
        for v in (value, math.nextafter(value, 1e9)):
            t = torch.tensor([[0.0, -v], [v / 3, 0.0]], dtype=torch.float64).to(dtype)
            amax = t.double().abs().max().item()
            for margin in (0, 3):
                got = scale_exponent(t, largest, margin, (-2, -1))
                assert got.shape == (1, 1) and got.item() == by_definition(largest, amax, margin), (amax, margin)


def test_what_is_not_finite_does_not_count_and_zero_gives_zero():
    t = torch.tensor([[math.inf, math.nan], [2.0, -math.inf]])
    assert scale_exponent(t, 448.0, 0, (-2, -1)).item() == 7
    assert scale_exponent(torch.zeros(2, 2), 448.0, 5, (-2, -1)).item() == 0
    assert scale_exponent(torch.full((2, 2), math.nan), 448.0, 5, (-2, -1)).item() == 0
    assert scale_exponent(torch.empty(3, 0, 2), 448.0, 0, (-2, -1)).shape == (3, 1, 1)


@pytest.mark.parametrize("power", [0, 1, -1, 100, -100, 126, -149, 140, -280, 300, 2000, -2000])
def test_scaling_is_one_rounding(power):
    x = torch.tensor([1.0, -1.5, 0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, 1.1754942e-38, 3.4e38, 1.2345678])
    got = scale_by_power(x, torch.tensor([power]))
    want = [v if not math.isfinite(v) else _times_power(v, power) for v in x.tolist()]
    assert_bitwise_equal(got, torch.tensor(want, dtype=torch.float64).to(torch.float32), nan_is_nan=True)


def _times_power(value: float, power: int) -> float:
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.copysign(math.inf, value)


FORMATS = gs.QAffineFormats(
    "e8m7",
    "e8m7",
    input_quant="e4m3",
    weight_quant="e4m3",
    grad_quant="e5m2",
    use_scaling=True,
    scale_margin=1,
)


def run(call, *tensors, grad):
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = call(*leaves)
    y.backward(grad)
    return (y.detach(), *(t.grad for t in leaves))


def shift(t, power):
    return t * 2.0**power


def test_qlinear_steps_written_out():
    generator = torch.Generator().manual_seed(0)
    x, w, bias, g = (
        torch.randn(s, generator=generator) * f for s, f in (((6, 9), 1e-3), ((5, 9), 1e2), ((5,), 1), ((6, 5), 1e-5))
    )
    y, grad_x, grad_w, grad_b = run(lambda x, w, b: gs.qlinear(x, w, b, FORMATS), x, w, bias, grad=g)
    sx, sw, sg = (by_definition(m, t.abs().max().item(), 1) for m, t in ((448.0, x), (448.0, w), (57344.0, g)))
    qx, qw, qg = gs.quantize(shift(x, sx), "e4m3"), gs.quantize(shift(w, sw), "e4m3"), gs.quantize(shift(g, sg), "e5m2")
    assert_bitwise_equal(y, shift(gs.qmatmul(qx, qw.mT, ":e8m7"), -sx - sw) + bias)
    assert_bitwise_equal(grad_x, gs.quantize(shift(gs.qmatmul(qg, qw, ":e8m7"), -sg - sw), "e5m2"))
    assert_bitwise_equal(grad_w, gs.quantize(shift(gs.qmatmul(qg.mT, qx, ":e8m7"), -sg - sx), "e5m2"))
    sums = gs.qmatmul(torch.ones(1, 6), qg, ":e8m7")[0]
    assert_bitwise_equal(grad_b, gs.quantize(shift(sums, -sg), "e5m2"))
    assert qx.abs().max() >= 448 / 4 and qx.abs().max() <= 448 / 2


def test_one_scale_per_matrix_of_a_batch():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 4, 9, generator=generator), torch.randn(3, 9, 5, generator=generator)
    a = a * torch.tensor([1e-4, 1.0, 1e4])[:, None, None]
    g = torch.randn(3, 4, 5, generator=generator) * torch.tensor([1.0, 1e-6, 1e3])[:, None, None]
    got = run(lambda a, b: gs.qmatmul(a, b, FORMATS), a, b, grad=g)
    each = [run(lambda a, b: gs.qmatmul(a, b, FORMATS), a[i], b[i], grad=g[i]) for i in range(3)]
    for mine, parts in zip(got, zip(*each, strict=True), strict=True):
        assert_bitwise_equal(mine, torch.stack(parts))


def test_matrices_that_share_a_repeated_operand_share_a_scale():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 4, 9, generator=generator), torch.randn(9, 5, generator=generator)
    a = a * torch.tensor([1e-2, 1.0, 1e2])[:, None, None]
    g = torch.randn(3, 4, 5, generator=generator)
    got = run(lambda a, b: gs.qmatmul(a, b, FORMATS), a, b, grad=g)
    flat = run(lambda a, b: gs.qmatmul(a, b, FORMATS), a.reshape(12, 9), b, grad=g.reshape(12, 5))
    for mine, want in zip(got, flat, strict=True):
        assert_bitwise_equal(mine.reshape(want.shape), want)
    linear = run(lambda x, w: gs.qlinear(x, w, None, FORMATS), a, b.mT.contiguous(), grad=g)
    assert_bitwise_equal(linear[0], got[0])
    assert_bitwise_equal(linear[1], got[1])
    assert_bitwise_equal(linear[2].mT, got[2])


@pytest.mark.parametrize(
    ("left", "right"),
    [((5,), (5,)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 6)), ((0, 5), (5, 6))],
    ids=str,
)
def test_all_shapes_scale(left, right):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(left, generator=generator), torch.randn(right, generator=generator)
    y = torch.matmul(a, b)
    got = run(lambda a, b: gs.qmatmul(a, b, FORMATS), a, b, grad=torch.ones_like(y))
    assert got[0].shape == y.shape and got[1].shape == a.shape and got[2].shape == b.shape
    assert bool(((got[0] - y).abs() <= error_bound(a, b)).all())


def error_bound(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Largest error of the scaled product, from the unit roundoffs.

    An operand in e4m3 (u = 2^-4) is off by u|x|, or below its normals by half a quantum, 2^-10 of a scale that puts
    amax at 112 or more (margin 1): less than 2^-16 amax. Each of the K steps multiplies by at most 1 + 2^-8 (e8m7).
    """
    wide_a, wide_b = (x.abs() * (1 + 2.0**-4) + (x.abs().amax() if x.numel() else 0) * 2.0**-16 for x in (a, b))
    float32 = (a.shape[-1] + 1) * 2.0**-24 * torch.matmul(wide_a.double(), wide_b.double())  # y's own sum
    grown = torch.matmul(wide_a.double(), wide_b.double()) * (1 + 2.0**-8) ** a.shape[-1]
    return grown - torch.matmul(a.abs().double(), b.abs().double()) + float32


def test_zero_and_infinite_operands_do_not_poison():
    w = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    assert_bitwise_equal(gs.qlinear(torch.zeros(4, 9), w, None, FORMATS), torch.zeros(4, 5))
    x = torch.ones(4, 9)
    x[1, 2] = math.inf
    y = gs.qlinear(x, w, None, FORMATS)
    assert torch.isfinite(y[[0, 2, 3]]).all()


def test_scaling_needs_its_formats():
    x, w = torch.randn(4, 9), torch.randn(5, 9)
    unscaled = gs.QAffineFormats("e8m7", input_quant="e4m3", use_scaling=True)
    assert_bitwise_equal(
        gs.qlinear(x, w, None, unscaled), gs.qlinear(x, w, None, gs.QAffineFormats("e8m7", input_quant="e4m3"))
    )
