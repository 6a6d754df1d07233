"""Layers whose weight is encoded and not trained: gradients go on to their input and their bias."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.mx import MXInferenceConfig, MXInferenceLinear

CONFIGS = [
    MXInferenceConfig(),
    MXInferenceConfig("mxfp4", None),
    MXInferenceConfig("mxfp8_e4m3", None, "e5m10"),
    MXInferenceConfig("nvfp4/tensor", "nvfp4/tensor", "scaled(exact(fp32), fp32)"),
    MXInferenceConfig("mxfp8_e4m3", "mxfp8_e4m3", "hw(blackwell, mxf8f6f4, e4m3)"),
    MXInferenceConfig("mxfp8_e4m3", "mxfp8_e4m3", None),
    MXInferenceConfig("mxfp8_e4m3", None, None),
]


def values(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def frozen(config, bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    return MXInferenceLinear(64, 32, bias, dtype=dtype, config=config)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_gradient_of_the_input_is_that_of_the_decoded_weight(config, dtype, bias):
    layer = frozen(config, bias, dtype)
    x = values(2, 3, 64, dtype=dtype).requires_grad_()
    with torch.no_grad():
        want = layer(x)
    out = layer(x)
    assert torch.equal(out, want) and out.requires_grad
    grad = values(2, 3, 32, seed=1, dtype=dtype)
    out.backward(grad)
    rows = grad.reshape(6, 32)
    rows = rows.float() if bias and dtype != torch.float64 else rows
    if config.accumulator is None:
        back = (rows.to(dtype) @ layer.weight.dequantize()).to(dtype)
    else:
        wide, register = (torch.float64, ":fp64") if dtype == torch.float64 else (torch.float32, ":fp32")
        back = gs.qmatmul(rows, layer.weight.dequantize(wide), register, out_dtype=dtype)
    assert x.grad.dtype == dtype and torch.equal(x.grad, back.reshape(2, 3, 64))
    exact = rows.double() @ layer.weight.dequantize(torch.float64)
    assert (back.double() - exact).norm() <= 8 * torch.finfo(dtype).eps * exact.norm()
    assert layer.weight.grad is None
    if bias:
        assert torch.equal(layer.bias.grad, rows.sum(0).to(dtype))


def test_gradients_are_as_close_to_the_original_as_results():
    plain, x = nn.Linear(32, 32), values(4, 32).requires_grad_()

    def gradient(layer):
        return torch.autograd.grad((x + layer(x)).square().sum(), x)[0]

    model = nn.Sequential(plain)
    want, out = gradient(model), model(x)
    gs.mx.swap_linear_with_mx_inference_linear(model, "mxfp8_e4m3")
    near = (model(x) - out).norm() / out.norm()
    assert (gradient(model) - want).norm() / want.norm() < 2 * near < 0.1


def test_adapters_below_a_frozen_layer_are_trained():
    torch.manual_seed(0)
    down, up, base = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False), nn.Linear(32, 32)
    head, x = nn.Linear(32, 8), values(16, 32)

    def loss():
        return head(base(x) + up(down(x))).square().mean()

    want = torch.autograd.grad(loss(), (down.weight, up.weight))
    head = gs.mx.swap_linear_with_mx_inference_linear(head, "mxfp8_e4m3")
    base = gs.mx.swap_linear_with_mx_inference_linear(base, "mxfp8_e4m3")
    got = torch.autograd.grad(loss(), (down.weight, up.weight))
    assert all((g - w).norm() < 0.1 * w.norm() for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[1], CONFIGS[3], CONFIGS[5]], ids=str)
def test_compiled_and_transformed_layers_have_the_same_gradients(config):
    torch._dynamo.reset()
    layer = frozen(config)
    x, grad = values(2, 3, 64).requires_grad_(), values(2, 3, 32, seed=1)
    layer(x).backward(grad)
    want, bias, x.grad, layer.bias.grad = x.grad, layer.bias.grad, None, None
    torch.compile(layer, backend="aot_eager", fullgraph=True)(x).backward(grad)
    assert torch.equal(x.grad, want) and torch.equal(layer.bias.grad, bias)
    each = torch.func.vmap(torch.func.grad(lambda row, g: (layer(row) * g).sum()))(x.detach(), grad)
    assert torch.equal(each, want)
    assert torch.equal(torch.func.vmap(layer, 1, 1)(x.detach()), layer(x.detach()))


@pytest.mark.parametrize("layer", [frozen(CONFIGS[0]), frozen(CONFIGS[5]), gs.mx.MXLinear(64, 32)], ids=str)
def test_batches_of_gradients(layer):
    x = values(2, 64).requires_grad_()
    out = layer(x)
    grads = values(5, 2, 32, seed=1)
    want = torch.stack([torch.autograd.grad(out, x, g, retain_graph=True)[0] for g in grads])
    assert torch.equal(torch.autograd.grad(out, x, grads, is_grads_batched=True)[0], want)


def test_encoded_inputs_pass_their_gradient_on():
    layer, x = frozen(CONFIGS[0]), values(5, 64).requires_grad_()
    layer(gs.mx.to_mx(x, "mxfp8_e4m3")).sum().backward()
    want, x.grad = x.grad, None
    layer(x).sum().backward()
    assert torch.equal(x.grad, want)


def test_results_can_be_changed_in_place():
    layer, x = frozen(CONFIGS[0]), values(2, 3, 64).requires_grad_()
    out = layer(x)
    out += 1
    out[:, 0] = 0
    out.sum().backward()
    assert x.grad[:, 0].eq(0).all() and x.grad[:, 1].ne(0).any()


def test_what_has_no_gradient_says_so():
    layer, x = frozen(CONFIGS[0]), values(2, 64).requires_grad_()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(gs.GradError, match=r"mx\.MXInferenceLinear: derivative of its gradient"):
        first.sum().backward()
    layer.requires_grad_()
    with pytest.raises(gs.GradError, match="its weight, an MXTensor, requires grad"):
        layer(x)
    with torch.no_grad():
        assert not layer(x).requires_grad
    layer.requires_grad_(False)
    assert not layer(x.detach()).requires_grad and layer(x).requires_grad
