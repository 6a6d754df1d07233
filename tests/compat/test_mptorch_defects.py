"""More defects of mptorch 0.3.0 that are none here; the others are in test_mptorch.py and
tests/formats/test_peer_defects.py."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import assert_near, magnitudes
from torch import nn

import gemmsim as gs
from gemmsim.compat.mptorch import number, quant

F = quant.functional
WIDE = number.FloatingPoint(8, 23, True, False)
SHAPES = {
    "4->2, groups": (4, 2, {"groups": 2}),
    "4->8, groups": (4, 8, {"groups": 2}),
    "1->many": (1, 5, {}),
    "padding beyond the kernel": (3, 2, {"padding": 3}),
    "output_padding without bias": (4, 2, {"stride": 2, "output_padding": 1, "bias": False}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_cv5_transposed_convolutions_of_all_shapes_are_torchs(name):
    inputs, outputs, options = SHAPES[name]
    torch.manual_seed(0)
    ours = quant.QConvTranspose2d(inputs, outputs, 3, quant.QAffineFormats(WIDE, WIDE), **options)
    plain = nn.ConvTranspose2d(inputs, outputs, 3, **options)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(2, inputs, 7, 6)
    terms = inputs * 9 + 1
    size, sizes = magnitudes(plain, x)
    assert_near(ours(x), plain(x), terms, size=size.double())
    ours(x).square().sum().backward()
    plain(x).square().sum().backward()
    for p, q, size in zip(ours.parameters(), plain.parameters(), sizes, strict=True):
        assert_near(p.grad, q.grad, plain(x).numel() // outputs + terms + 2, size=size.double())  # sums over the batch


@pytest.mark.parametrize("n", [1, 2, 3])
def test_cv2_cv3_cv4_paddings_and_unbatched_input(n):
    x = torch.randn(2, 2, *[5] * n)
    formats = quant.QAffineFormats(WIDE)
    for options in ({"padding": "same"}, {"padding": "valid"}, {"padding": 1, "padding_mode": "circular"}):
        ours = getattr(quant, f"QConv{n}d")(2, 3, 3, formats, **options)
        plain = getattr(nn, f"Conv{n}d")(2, 3, 3, **options)
        plain.load_state_dict(ours.state_dict())
        size = magnitudes(plain, x)[0].double()
        assert_near(ours(x), plain(x), 2 * 3**n + 1, size=size)
        assert_near(ours(x[0]), plain(x[0]), 2 * 3**n + 1, size=size[0])


@pytest.mark.parametrize("bwd", [{}, {"bwd_acc": WIDE, "bwd_mul": WIDE, "bwd_div": WIDE}], ids=["default", "custom"])
def test_n_input_quant_counts_without_forward_formats(bwd):
    x, coarse = torch.randn(3, 8), (number.FloatingPoint(5, 2, True), "nearest")
    formats = quant.QLayerNormFormats(**bwd, input_quant=coarse)
    want = nn.functional.layer_norm(quant.float_quantize(x, 5, 2, "nearest"), (8,))
    assert_near(F.qlayernorm(x, 8, None, None, 1e-5, formats), want, 2 * 8 + 8)  # two sums of 8


def test_the_slope_of_gelus_tanh_is_the_true_one():
    """At 2 it is 1.0861; mptorch 0.3.0 has 1.239."""
    x = torch.linspace(-3, 3, 61).requires_grad_()
    plain = x.detach().clone().requires_grad_()
    F.qgelu(x, quant.QGELUFormats(*[(WIDE, "nearest")] * 4), "tanh").sum().backward()
    nn.functional.gelu(plain, approximate="tanh").sum().backward()
    assert_near(x.grad, plain.grad, 24, size=9.0)  # fewer than 24 roundings of numbers up to 3^2
    assert round(x.grad[50].item(), 4) == 1.0861


def test_sc2_infinities_do_not_poison_the_scale():
    f = number.FloatingPoint(4, 3, True)
    rounded = {"weight_quant": (f, "nearest"), "input_quant": (f, "nearest"), "grad_quant": (f, "nearest")}
    formats = quant.QAffineFormats(WIDE, WIDE, use_scaling=True, **rounded)
    x = torch.tensor([[1.0, 2.0], [float("inf"), 1.0]])
    y = F.qmatmul(x, torch.eye(2), formats)
    assert y[0].tolist() == [1.0, 2.0]


def test_softmax_of_dim_none_is_the_last_and_masked_entries_are_zero():
    f = number.FloatingPoint(5, 10, True)
    x = torch.tensor([[0.0, 1.0, float("-inf")]])
    for formats in (quant.QSoftmaxFormats(f, f, f), quant.QSoftmaxFormats(f, fwd_lse=f)):
        y = F.qsoftmax(x, None, formats)
        assert y[0, 2] == 0 and abs(y.sum().item() - 1) <= 6 * 2.0**-11  # each of two is rounded to e5m10 three times


def test_formats_of_other_classes_and_flags_make_softmax_and_norms():
    """mptorch takes one class with the first format's flags; fixed point and stochastic rounding not at all."""
    mixed = [number.FloatingPoint(5, 10, True, False), number.FixedPoint(16, 8), number.SuperNormalFloat(5, 4, 1)]
    x = torch.randn(4, 6)
    assert F.qsoftmax(x, 1, quant.QSoftmaxFormats(*mixed)).isfinite().all()
    norm = quant.QLayerNormFormats(*mixed, number.Binary8(4), fwd_rnd="stochastic")
    assert F.qlayernorm(x, 6, torch.ones(6), torch.zeros(6), 1e-5, norm).shape == x.shape


BLOCKS = number.BlockFloatingPoint(8), number.BlockFloatingPoint(5, 1)


@pytest.mark.parametrize("pick", [quant.mp_mm, quant.mp_bmm])
def test_block_floating_point_in_products_and_sums(pick):
    """AttributeError in mptorch 0.3.0. A register is a block of one number, so ``dim`` does not matter."""
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(6, 20, generator=g), torch.randn(20, 5, generator=g)
    cases = {
        ":bfp(8,1)": quant.QAffineFormats(BLOCKS[0]),
        ":mul=bfp(5,1), add=bfp(8,1)": quant.QAffineFormats(BLOCKS),
        ":mul=bfp(8,1)/rtz, add=bfp(5,1)": quant.QAffineFormats(BLOCKS[::-1], fwd_rnd=("nearest", "truncate")),
        ":mul=e8m7, add=bfp(5,1)": quant.QAffineFormats((BLOCKS[1], number.FloatingPoint(8, 7, True, False))),
        ":chunked(8, bfp(8,1), bfp(8,1))": quant.QAffineFormats(BLOCKS[0], accumulate="mptorch_cuda"),
        ":kahan(bfp(8,1))": quant.QAffineFormats(BLOCKS[0], compensated=True),
    }
    for spec, formats in cases.items():
        want = torch.tensor(gs.reference.gemm(a, b, gs.GemmSpec.parse(spec)))
        assert_bitwise_equal(pick(a, b, formats), want.float(), context=spec)
    random = quant.QAffineFormats(BLOCKS[0], BLOCKS[1], fwd_rnd="stochastic", rbits=8, seed=3)
    assert_bitwise_equal(pick(a, b, random), gs.qmm(a, b, ":bfp(8,1)/sr8", seed=3))
    assert_bitwise_equal(pick(a, b, random, False), gs.qmm(a, b, ":bfp(5,1)", seed=3))


def test_block_floating_point_in_steps_of_layers():
    formats = quant.QAffineFormats(BLOCKS, BLOCKS[1], weight_quant=(BLOCKS[0], "nearest"))
    layer = quant.QLinear(7, 4, formats)
    x = torch.randn(3, 7, requires_grad=True, generator=torch.Generator().manual_seed(1))
    layer(x).sum().backward()
    weight = gs.quantize(layer.weight.detach(), "bfp(8,tensor)")  # a quantiser rounds tensors: one exponent for all
    want = gs.qmm(torch.ones(3, 4), weight, ":bfp(5,1)")
    assert_bitwise_equal(x.grad, want)
    soft = quant.QSoftmaxFormats(BLOCKS[0], BLOCKS[0], BLOCKS[0])
    assert_bitwise_equal(F.qsoftmax(x.detach(), -1, soft), gs.functional.qsoftmax(x.detach(), -1, str(soft.fwd_off)))
