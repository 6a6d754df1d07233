"""What mptorch's documentation says of its quantisers, modules and optimizers, called with their documented defaults, as
test_documented_mptorch.py does of numbers and functions.
"""

from __future__ import annotations

import inspect

import pytest
import torch
from support.mptorch import E5M2, F16, gradients, leaf, q8, q16, randn, same, slow_product, slow_sum
from torch import Tensor, nn
from torch.nn import functional as nnf
from torch.nn.modules.lazy import LazyModuleMixin

from gemmsim.compat.mptorch import number, optim, quant
from gemmsim.compat.mptorch.quant import functional as F

# mptorch.quant: quantizer and modules


def test_quantizers_round_both_ways():
    x = leaf(torch.randn(40))
    rounded = quant.quantizer(F16, E5M2, "nearest", "nearest")
    y = rounded(x)
    g = torch.randn(40)
    same(y.detach(), q16(x).detach())
    same(torch.autograd.grad(y, x, g)[0], q8(g))
    module = quant.Quantizer(F16, E5M2)
    assert isinstance(module, nn.Module) and torch.equal(module(x), y)
    through = quant.quantizer()(x)
    assert torch.equal(through, x) and torch.equal(torch.autograd.grad(through, x, g)[0], g)


def test_clamped_gradients_and_hooks():
    x = leaf(torch.tensor([-9.0, -1.0, 0.5, 7.5, 8.5]))
    fixed = number.FixedPoint(4, 0)
    y = quant.quantizer(fixed, None, "nearest", clamping_grad_zero=True)(x)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]
    seen: list[Tensor] = []
    hooks = [lambda g: g * 3, lambda g: seen.append(g) or g + 1]
    y = quant.quantizer(None, E5M2, backward_rounding="nearest", backward_hooks=hooks)(x)
    assert torch.autograd.grad(y, x, torch.full((5,), 1.1))[0].tolist() == [4.0] * 5  # 4.3 in (5, 2)
    assert len(seen) == 1 and seen[0].unique().tolist() == [torch.tensor(1.1).mul(3).item()]
    with pytest.raises((ValueError, AssertionError)):
        quant.quantizer(F16, clamping_grad_zero=True)


FORMATS = quant.QAffineFormats(
    F16, F16, weight_quant=(E5M2, "nearest"), bias_quant=(E5M2, "nearest"), input_quant=(E5M2, "nearest")
)


def test_linear_layers():
    layer = quant.QLinear(7, 4, FORMATS)
    assert isinstance(layer, nn.Linear) and layer.formats is FORMATS
    same(q8(layer.weight.detach()), layer.weight.detach())  # rounded where it is made
    same(q8(layer.bias.detach()), layer.bias.detach())
    x = torch.randn(3, 7)
    same(layer(x), F.qlinear(x, layer.weight, layer.bias, FORMATS))
    assert quant.QLinear(7, 4, FORMATS, bias=False).bias is None
    with torch.no_grad():
        layer.weight.fill_(1.1)
    layer.quant_parameters()
    assert layer.weight.unique().tolist() == [1.0]
    layer.reset_quant_function()
    for name in ("Qw", "Qb", "Qi", "Qo"):
        assert getattr(layer, name)(torch.tensor([1.1])).item() == pytest.approx(1.1 if name == "Qo" else 1.0)


def test_lazy_linear_layers_are_linear_before_their_first_input():
    layer = quant.QLazyLinear(4, FORMATS)
    assert isinstance(layer, quant.QLinear) and isinstance(layer, LazyModuleMixin) and isinstance(layer, nn.LazyLinear)
    assert layer.has_uninitialized_params() and type(layer) is not quant.QLinear
    assert list(inspect.signature(quant.QLazyLinear).parameters)[:2] == ["out_features", "formats"]
    x = torch.randn(3, 7)
    y = layer(x)
    assert type(layer) is quant.QLinear and layer.in_features == 7 and torch.equal(y, layer(x))
    same(q8(layer.weight.detach()), layer.weight.detach())
    unbiased = quant.QLazyLinear(4, FORMATS, bias=False)
    assert unbiased(x).shape == (3, 4) and unbiased.bias is None
    fresh = quant.QLazyLinear(4, FORMATS)
    fresh.load_state_dict(layer.state_dict())
    same(fresh(x), y)


def test_convolutions_are_products_of_windows():
    layer = quant.QConv2d(2, 3, 3, FORMATS, padding=1)
    assert isinstance(layer, nn.Conv2d)
    x = torch.randn(2, 2, 5, 5)
    windows = nnf.unfold(q8(x), 3, padding=1).mT.flatten(0, 1)
    want = slow_product(windows, layer.weight.detach().flatten(1).T, True) + layer.bias.detach()
    same(layer(x).detach(), want.view(2, 25, 3).mT.reshape(2, 3, 5, 5))
    for n in (1, 2, 3):
        for name in (f"QConv{n}d", f"QConvTranspose{n}d"):
            made = getattr(quant, name)(2, 3, 3, FORMATS)
            assert isinstance(made, getattr(nn, name[1:])) and made(torch.randn(1, 2, *[4] * n)).shape[1] == 3


def test_average_pooling():
    layer = quant.QAvgPool2d(2, q16, q8)
    assert isinstance(layer, nn.AvgPool2d)
    x = leaf(randn(1, 1, 4, 4))
    y = layer(x)
    windows = nnf.unfold(x.detach(), 2, stride=2)[0]
    same(y.detach().flatten(), q16(slow_sum(windows, 0, q16) / 4))
    g, (dx,) = gradients(y, x)
    same(dx, nnf.interpolate(q8(g / 4), scale_factor=2))


@pytest.mark.parametrize("name, shape, dims", [("QBatchNorm1d", (6, 3), 0), ("QBatchNorm2d", (2, 3, 4, 4), (0, 2, 3))])
def test_batch_norms_have_one_base(name, shape, dims):
    layer = getattr(quant, name)(3, (F16, "nearest"), (E5M2, "nearest"))
    assert isinstance(layer, quant.QBatchNorm) and isinstance(layer, getattr(nn, name[1:]))
    assert quant.QBatchNorm is quant.modules.QBatchNorm and not isinstance(layer, nn.BatchNorm3d)
    x = randn(*shape)
    mean = F.qmean(x, (F16, "nearest"), dim=dims, keepdim=True)
    centred = q16(x - mean)
    var = F.qmean(q16(centred * centred), (F16, "nearest"), dim=dims, keepdim=True)
    same(layer(x).detach(), q16(centred / q16(q16(var + torch.tensor(1e-5)).sqrt())))
    assert layer.moving_mean is layer.running_mean and layer.moving_var is layer.running_var
    with pytest.raises(TypeError, match="QBatchNorm1d or QBatchNorm2d"):
        quant.QBatchNorm(3, q16, q8)


def test_norms_softmax_and_gelu_as_layers():
    x = randn(3, 6)
    norm = quant.QLayerNormFormats(*[F16] * 7)
    softmax, gelu = quant.QSoftmaxFormats(F16, F16, F16), quant.QGELUFormats(inter_quant=(F16, "nearest"))
    layers = [quant.QLayerNorm(6, norm), quant.QSoftmax(-1, softmax), quant.QGELU(gelu)]
    assert [isinstance(m, k) for m, k in zip(layers, (nn.LayerNorm, nn.Softmax, nn.GELU), strict=True)] == [True] * 3
    same(layers[0](x).detach(), F.qlayernorm(x, 6, torch.ones(6), torch.zeros(6), 1e-5, norm))
    same(layers[1](x), F.qsoftmax(x, -1, softmax))
    same(layers[2](x), F.qgelu(x, gelu))


# mptorch.optim


def test_optimizers_round_gradients_master_copies_and_weights():
    assert optim.OptimLP is optim.OptimMP is optim.QOptim
    w = nn.Parameter(torch.tensor([1.0, 2.0]))
    wrapped = optim.QOptim(torch.optim.SGD([w], lr=0.1), weight_quant=q8, grad_quant=q8, acc_quant=q16)
    for _ in range(3):
        master = torch.tensor([1.0, 2.0]) if wrapped.state[w].get("master") is None else wrapped.state[w]["master"]
        w.grad = torch.tensor([0.31, -0.77])
        want = q16(master - 0.1 * q8(w.grad))
        wrapped.step()
        same(w.detach(), q8(want))
