"""What mptorch's documentation says of each class and function, called with its documented defaults. Roundings are PyTorch's and numpy's own casts here, and steps are done one number at a time: float16 is
``FloatingPoint(5, 10, True, False)``, bfloat16 (8, 7), float8_e5m2 (5, 2). Roundings themselves are in
test_mptorch_roundings.py, argument orders in test_mptorch_arguments.py, cuBLAS in test_mptorch_cublas.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.mptorch import BF16, E5M2, F16, F32, gradients, h, leaf, q8, q16, randn, same, slow_product, slow_sum
from torch import Tensor
from torch.nn import functional as nnf

import gemmsim as gs
from gemmsim.compat.mptorch import number, quant
from gemmsim.compat.mptorch.quant import functional as F

# mptorch.number


def test_kinds_of_numbers():
    for kind in (number.FloatingPoint, number.SuperNormalFloat, number.Binary8):
        assert issubclass(kind, number.FloatType) and issubclass(kind, number.Number)
    for kind in (number.FixedPoint, number.BlockFloatingPoint):
        assert issubclass(kind, number.Number) and not issubclass(kind, number.FloatType)


def test_numbers_by_default():
    fixed, block = number.FixedPoint(8, 4), number.BlockFloatingPoint(8)
    assert (fixed.wl, fixed.fl, fixed.clamp, fixed.symmetric, fixed.tie) == (8, 4, True, False, "even")
    assert (block.wl, block.dim) == (8, -1)
    plain, pair = number.SuperNormalFloat(4, 3, 1), number.SuperNormalFloat(4, 3, (1, 2))
    assert (plain.binades, plain.saturate) == ((1, 1), False) == (number.SuperNormalFloat(4, 3, (1,)).binades, False)
    assert (pair.binades_l, pair.binades_u) == (1, 2)
    small = number.FloatingPoint(4, 3)
    assert (small.subnormals, small.saturate, small.normal_max) == (False, True, 240.0)
    binary8 = number.Binary8(3)
    assert (binary8.exp, binary8.man, binary8.signed, binary8.subnormals) == (5, 2, True, True)
    assert (binary8.overflow_policy, binary8.saturate_infty) == ("saturate_maxfloat2", "coded")


@pytest.mark.parametrize("widths", [(8, 23), (5, 10), (8, 7), (4, 3)])
def test_which_widths_are_a_dtypes(widths):
    f = number.FloatingPoint(*widths)
    found = [f.is_fp32, f.is_fp16, f.is_bfloat16]
    assert found == [widths == w for w in ((8, 23), (5, 10), (8, 7))]


# mptorch.quant.quant_format


def test_the_module_of_the_formats():
    from gemmsim.compat.mptorch.quant import quant_format

    for name in ("QAffineFormats", "QSoftmaxFormats", "QLayerNormFormats", "QGELUFormats"):
        assert getattr(quant_format, name) is getattr(quant, name) and issubclass(
            getattr(quant, name), getattr(gs, name)
        )
        assert name in quant_format.__all__


@pytest.mark.parametrize(
    "mac, fused", [(F16, True), ((F16,), True), ((F16, BF16), False)], ids=["one", "one in a tuple", "add and mul"]
)
def test_one_format_is_a_fused_step_and_a_pair_is_sum_and_product(mac, fused):
    formats = quant.QAffineFormats(fwd_mac=mac, bwd_mac=mac)
    x, w = leaf(randn(5, 40)), leaf(randn(6, 40, seed=1))
    assert (formats.fwd_fma, formats.bwd_fma, formats.fwd_rnd, formats.bwd_rnd) == (fused, fused, "nearest", "nearest")
    y = F.qlinear(x, w, formats=formats)
    same(y.detach(), slow_product(x, w.T, fused))
    g, (dx, dw) = gradients(y, x, w)
    same(dx, slow_product(g, w, fused))
    same(dw, slow_product(g.T, x, fused))
    same(F.qmm(x, w.T, formats).detach(), y.detach())
    same(F.qmatmul(x[None], w.T, formats).detach(), y.detach()[None])
    same(quant.mp_mm(x.detach(), w.detach().T, formats), y.detach())
    same(quant.mp_bmm(x.detach()[None], w.detach().T[None], formats), y.detach()[None])


@pytest.mark.parametrize("empty", [None, ()])
def test_without_formats_products_are_pytorchs(empty):
    formats = quant.QAffineFormats(empty, empty)
    assert formats.fwd_use_default_prec and formats.bwd_use_default_prec
    x, w, b = leaf(randn(2, 5, 40)), leaf(randn(6, 40, seed=1)), leaf(randn(6, seed=2))
    y, plain = F.qlinear(x, w, b, formats), nnf.linear(x, w, b)
    same(y.detach(), plain.detach())
    for got, want in zip(gradients(y, x, w, b)[1], gradients(plain, x, w, b)[1], strict=True):
        same(got, want)
    same(F.qlinear(x, w).detach(), nnf.linear(x, w).detach())
    same(F.qmm(x[0], w.T).detach(), torch.mm(x[0], w.T).detach())
    same(F.qmatmul(x, w.T).detach(), torch.matmul(x, w.T).detach())


def test_random_bits_as_a_number_a_tuple_of_one_and_a_pair():
    def bits(rbits):
        formats = quant.QAffineFormats((F16, BF16), fwd_rnd="stochastic", rbits=rbits)
        return formats.rbits_add, formats.rbits_mul, str(formats.fprop)

    assert bits((4,)) == bits(4) == bits((4, 4)) and bits((4,))[:2] == (4, 4) and bits((3, 5))[:2] == (3, 5)
    assert bits((4,))[2] == ":mul=e8m7/sr4, add=e5m10/sr4"
    assert quant.QAffineFormats().rbits_add == quant.QAffineFormats().rbits_mul == 0
    for wrong in ((), (1, 2, 3)):
        with pytest.raises(gs.SpecError, match="rbits"):
            quant.QAffineFormats(F16, rbits=wrong)


def test_quantisers_of_the_signals_of_a_product():
    """Functions and pairs (number, rounding) say the same; the bias is added after the product, in float32."""
    names = ("weight", "bias", "input", "output", "grad")
    x, w, b = (leaf(t) for t in (torch.randn(3, 7), torch.randn(4, 7), torch.randn(4)))
    for quants in (dict.fromkeys(names, q8), dict.fromkeys(names, (E5M2, "nearest"))):
        formats = quant.QAffineFormats(F16, F16, **{f"{name}_quant": q for name, q in quants.items()})
        y = F.qlinear(x, w, b, formats)
        qx, qw = q8(x).detach(), q8(w).detach()
        same(y.detach(), q8(slow_product(qx, qw.T, True) + q8(b)).detach())
        g, (dx, dw, db) = gradients(y, x, w, b)
        same(dx, q8(slow_product(g, qw, True)))
        same(dw, q8(slow_product(g.T, qx, True)))
        ones = torch.ones(3, 1)
        same(db, q8(slow_product(g.T, ones, True))[:, 0])


@pytest.mark.parametrize("margin", [0, 2])
def test_scaling_to_the_largest_number_of_a_format(margin):
    """floor(log2(largest / amax)) - margin for each matrix, before its quantiser; what it gave is divided out after."""
    seen: dict[str, Tensor] = {}

    def keep(name: str):
        return lambda t: (seen.setdefault(name, t.detach().clone()), t)[1]  # grad_quant rounds results, too

    sides = ("weight", "input", "grad")
    formats = quant.QAffineFormats(
        F32, F32, use_scaling=True, scale_margin=margin,
        **{f"{side}_scaled_format": E5M2 for side in sides}, **{f"{side}_quant": keep(side) for side in sides},
    )  # fmt: skip
    x, w = leaf(torch.tensor([[3e-6], [-1.5e-6]])), leaf(torch.tensor([[900.0], [-77.0], [3.0]]))
    y = F.qlinear(x, w, None, formats)
    g, (dx, dw) = gradients(y, x, w)
    for name, t in (("input", x), ("weight", w), ("grad", g)):
        power = math.floor(math.log2(57344.0 / t.abs().max().item())) - margin
        same(seen[name], t.detach() * 2.0**power)
    torch.testing.assert_close([y, dx, dw], [x @ w.T, g @ w, g.T @ x])
    assert formats.input_scaled_format == formats.weight_scaled_format == formats.grad_scaled_format == E5M2
    from_pairs = quant.QAffineFormats(
        F32, F32, use_scaling=True, **{f"{side}_quant": (E5M2, "nearest") for side in sides}
    )
    assert from_pairs.input_scaled_format == from_pairs.grad_scaled_format == E5M2


def test_softmax_formats():
    assert quant.QSoftmaxFormats().fwd_use_default_prec and quant.QSoftmaxFormats().bwd_use_default_prec
    regular = quant.QSoftmaxFormats(fwd_off=F16, fwd_exp=F16, fwd_acc=F16)
    assert not regular.use_lse and not regular.fwd_use_default_prec and regular.bwd_use_default_prec
    lse = quant.QSoftmaxFormats(fwd_off=F16, fwd_lse=F16)
    assert lse.use_lse and not hasattr(lse, "fwd_exp") and not hasattr(lse, "fwd_acc")
    for incomplete in ({"fwd_off": F16}, {"fwd_off": F16, "fwd_exp": F16}):  # mptorch's page calls the second one LSE
        with pytest.raises(ValueError, match="fwd_lse"):
            quant.QSoftmaxFormats(**incomplete)
    assert quant.QSoftmaxFormats(bwd_add=F16).bwd_use_default_prec


def test_layer_norm_formats_need_all_steps_of_a_direction():
    assert (
        quant.QLayerNormFormats().fwd_use_default_prec and quant.QLayerNormFormats(F16, F16, F16).fwd_use_default_prec
    )
    full = quant.QLayerNormFormats(*[F16] * 7)
    assert not full.fwd_use_default_prec and not full.bwd_use_default_prec
    assert quant.QLayerNormFormats(*[F16] * 4, bwd_acc=F16).bwd_use_default_prec


# mptorch.quant.functional: each operation and each step of a gradient rounded, by functions and by pairs

BOTH_WAYS = pytest.mark.parametrize(
    "fwd, bwd", [(q16, q8), ((F16, "nearest"), (E5M2, "nearest"))], ids=["functions", "pairs"]
)


@BOTH_WAYS
def test_sums_products_and_quotients(fwd, bwd):
    x, y = leaf(randn(30)), leaf(randn(30, seed=1).abs() + 0.25)
    z = F.qadd(x, y, fwd, bwd)
    g, grads = gradients(z, x, y)
    same(z.detach(), q16(x + y).detach())
    assert all(torch.equal(d, q8(g)) for d in grads)
    z = F.qmul(x, y, fwd, bwd)
    g, (dx, dy) = gradients(z, x, y)
    same(z.detach(), q16(x * y).detach())
    same(dx, q8(g * y).detach())
    same(dy, q8(g * x).detach())
    z = F.qdiv(x, y, fwd, bwd)
    g, (dx, dy) = gradients(z, x, y)
    same(z.detach(), q16(x / y).detach())
    same(dx, q8(g / y).detach())
    same(dy, q8(q8(-g * z) / y).detach())


@BOTH_WAYS
def test_roots_and_powers(fwd, bwd):
    x = leaf(randn(30).abs() + 0.25)
    y = F.qsqrt(x, fwd, bwd)
    g, (dx,) = gradients(y, x)
    same(y.detach(), q16(x.sqrt()).detach())
    same(dx, q8(g / q8(2 * y)).detach())
    y = F.qpow(x, fwd, bwd)  # n is 2
    g, (dx,) = gradients(y, x)
    same(y.detach(), q16(x * x).detach())
    same(dx, q8(g * q8(q8(x) * 2)).detach())


@BOTH_WAYS
def test_powers_by_a_tensor(fwd, bwd):
    x, n = leaf(randn(8, 1).abs() + 0.25), torch.tensor([1.0, 2.0, 3.0])
    y = F.qpow(x, fwd, bwd, n)
    assert y.shape == (8, 3)
    powers = torch.cat([x, x * x, x * x * x], 1).detach().double()
    same(y.detach(), q16(powers.float()))
    g, (dx,) = gradients(y, x)
    lower = torch.cat([torch.ones(8, 1), x, x * x], 1).detach()
    parts = q8(g * q8(q8(lower) * n))
    want = q8(q8(parts[:, 0] + parts[:, 1]) + parts[:, 2])  # of a broadcast operand: a sum in the backward format
    if isinstance(fwd, tuple):
        same(dx, want[:, None])
    exponent = leaf(n)
    (dn,) = torch.autograd.grad(F.qpow(x.detach(), n=exponent).sum(), exponent)
    torch.testing.assert_close(dn, (powers * x.detach().double().log()).sum(0).float())


def test_without_quantisers_functions_are_pytorchs():
    x, y = randn(3, 4), randn(3, 4, seed=1).abs() + 0.5
    for ours, theirs in ((F.qadd, torch.add), (F.qmul, torch.mul), (F.qdiv, torch.div)):
        same(ours(x, y), theirs(x, y))
    same(F.qsqrt(y), y.sqrt())
    same(F.qpow(x), x * x)
    same(F.qsum(x), x.sum(0).sum(0))
    same(F.qmean(x[None, None]), x.mean(1)[None, None])  # over dimension 3


@BOTH_WAYS
def test_sums_and_means_over_dimensions_in_their_order(fwd, bwd):
    x = leaf(randn(3, 4, 5))
    same(F.qsum(x, (2, 0), fwd).detach(), slow_sum(slow_sum(x, 2, q16), 0, q16).detach())
    same(F.qsum(x, quant=fwd).detach(), slow_sum(slow_sum(slow_sum(x, 0, q16), 0, q16), 0, q16).detach())
    y = F.qsum(x, 1, fwd, keepdim=True)
    g, (dx,) = gradients(y, x)
    assert y.shape == (3, 1, 5) and torch.equal(dx, g.expand(3, 4, 5))
    y = F.qmean(x, fwd, bwd, dim=1)
    same(y.detach(), q16(slow_sum(x, 1, q16) / 4).detach())
    g, (dx,) = gradients(y, x)
    same(dx, q8(g / 4)[:, None].expand(3, 4, 5))


def test_softmax_steps():
    x = randn(4, 9)
    regular, lse = quant.QSoftmaxFormats(F16, F16, F16), quant.QSoftmaxFormats(F16, fwd_lse=F16)
    for row, got, by_log in zip(x.tolist(), F.qsoftmax(x, 1, regular), F.qsoftmax(x, 1, lse), strict=True):
        off = [h(v - max(row)) for v in row]
        powers = [h(math.exp(o)) for o in off]
        total = 0.0
        for p in powers:
            total = h(total + p)
        assert got.tolist() == [float(np.float32(p) / np.float32(total)) for p in powers]
        level = off[0]
        for o in off[1:]:
            level = h(math.log(math.exp(level) + math.exp(o)))
        want = [math.exp(h(o - level)) for o in off]
        assert all(abs(a - b) <= 2.0**-23 * b for a, b in zip(by_log.tolist(), want, strict=True))
    same(F.qsoftmax(x, 0, quant.QSoftmaxFormats()), torch.softmax(x, 0))
    y, grads = leaf(x), quant.QSoftmaxFormats(bwd_add=F16, bwd_mul=F16)
    z = F.qsoftmax(y, 1, grads)
    g, (dy,) = gradients(z, y)
    for p, c, got in zip(z.tolist(), g.tolist(), dy.tolist(), strict=True):
        total = 0.0
        for a, b in zip(p, c, strict=True):
            total = h(total + h(a * b))
        assert got == [float(np.float32(h(b - total)) * np.float32(a)) for a, b in zip(p, c, strict=True)]


def test_layer_norm_steps():
    x, w, b = randn(3, 6), randn(6, seed=1), randn(6, seed=2)
    got = F.qlayernorm(x, 6, w, b, formats=quant.QLayerNormFormats(*[F16] * 7))
    for row, out in zip(x.tolist(), got.tolist(), strict=True):
        mean = var = 0.0
        for v in row:
            mean = h(mean + v)
        mean = h(mean / 6)
        centred = [h(v - mean) for v in row]
        for c in centred:
            var = h(var + h(c * c))
        std = h(math.sqrt(h(h(var / 6) + float(np.float32(1e-5)))))
        want = [
            np.float32(h(a * h(c / std))) + np.float32(s)
            for c, a, s in zip(centred, w.tolist(), b.tolist(), strict=True)
        ]
        assert out == [float(v) for v in want]
    same(F.qlayernorm(x, (6,), w, b, formats=quant.QLayerNormFormats()), nnf.layer_norm(x, (6,), w, b))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_steps(approximate):
    x = torch.randn(50, generator=torch.Generator().manual_seed(1))
    names = ("input", "inter", "output", "grad")
    formats = quant.QGELUFormats(**{f"{name}_quant": (F16, "nearest") for name in names})
    for v, got in zip(q16(x).tolist(), F.qgelu(x, formats, approximate).tolist(), strict=True):
        inner = v / math.sqrt(2) if approximate == "none" else math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)
        gate = h(math.erf(inner) if approximate == "none" else math.tanh(inner))
        assert got == h(0.5 * v * (1 + gate))
    plain = F.qgelu(x, quant.QGELUFormats(), approximate)
    torch.testing.assert_close(plain, nnf.gelu(x, approximate=approximate))
