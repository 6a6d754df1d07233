"""Linear layers and attention in block formats: which operand is rounded along which dimension, product by product."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from support.rounding import assert_near, largest
from torch import nn

import gemmsim as gs
from gemmsim.mx import MXAttentionConfig, MXInferenceConfig, MXInferenceLinear, MXLinear, MXLinearConfig, MXTensor

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def values(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def q(x, fmt, dim):
    return gs.mx.quantize(x.detach(), fmt, dim=dim, dtype=torch.float32)


def linear(config=None, bias=True, dtype=torch.float32, kind=MXLinear, sizes=(70, 6)):
    torch.manual_seed(1)
    return kind(*sizes, bias=bias, dtype=dtype, config=config)


FOUR = MXLinearConfig("mxfp8_e4m3", "mxfp6_e2m3", "mxfp8_e5m2", "bf16", "fp16", "chunked(8, fp32, fp32)")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hp", [False, True], ids=["wgrad", "wgrad_with_hp"])
def test_the_three_products_encode_along_their_own_sums(dtype, hp):
    config = MXLinearConfig(*(getattr(FOUR, f) for f in ("input", "weight", "grad", "accumulator", "dgrad_accumulator", "wgrad_accumulator")), hp)  # fmt: skip
    layer = linear(config, dtype=dtype)
    x = values(2, 37, 70, dtype=dtype).requires_grad_()
    grad = values(2, 37, 6, seed=2, dtype=dtype)
    out = layer(x)
    out.backward(grad)
    rows, g, w = x.detach().reshape(74, 70), grad.reshape(74, 6), layer.weight.detach()
    work = torch.float64 if dtype is torch.float64 else torch.float32
    want = gs.qmatmul(q(rows, "mxfp8_e4m3", 1), q(w, "mxfp6_e2m3", 1).t(), ": bf16", out_dtype=work)
    assert out.dtype == dtype and torch.equal(out.reshape(74, 6), (want + layer.bias.to(work)).to(dtype))
    g_n, w_n = q(g, "mxfp8_e5m2", 1), q(w, "mxfp6_e2m3", 0)
    assert torch.equal(x.grad.reshape(74, 70), gs.qmatmul(g_n, w_n, ": fp16", out_dtype=dtype))
    left, right = (g, rows) if hp else (q(g, "mxfp8_e5m2", 0), q(rows, "mxfp8_e4m3", 0))
    assert torch.equal(layer.weight.grad, gs.qmatmul(left.t(), right, ": chunked(8, fp32, fp32)", out_dtype=dtype))
    assert layer.bias.grad.shape == (6,)


def test_pytorchs_own_product_on_request():
    layer = linear(MXLinearConfig("mxfp4", accumulator=None), bias=False, dtype=torch.bfloat16)
    x = values(5, 70, dtype=torch.bfloat16)
    want = gs.mx.quantize(x, "mxfp4") @ gs.mx.quantize(layer.weight.detach(), "mxfp4").t()
    assert torch.equal(layer(x), want)


def exact_nvfp4(x):
    found = gs.mx.encode(x, "nvfp4/tensor")
    return gs.mx.decode((found.codes, found.scales), "nvfp4").double() * found.tensor_scale.double()


def test_nvfp4():
    layer = gs.mx.NVFP4Linear(32, 4, bias=False)
    x = values(5, 32)
    # element, scale and the tensor's scale have 29 bits together: binary64 holds their product, binary32 does not
    left, right = (exact_nvfp4(t.detach()) for t in (x, layer.weight))
    want = gs.qmatmul(left, right.t(), ": fp32").float()
    assert torch.equal(layer(x), want)
    frozen = gs.mx.NVFP4InferenceLinear.from_float(layer)
    assert torch.equal(frozen(x), want) and frozen.weight.format.tensor_scale


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", [None, "mxfp8_e4m3"])
def test_inference(activation, dtype):
    plain = linear(kind=lambda *a, config, **k: nn.Linear(*a, **k), dtype=dtype)
    layer = MXInferenceLinear.from_float(plain, MXInferenceConfig("mxfp4", activation))
    x = values(2, 5, 70, dtype=dtype)
    work = torch.float64 if dtype is torch.float64 else torch.float32
    left = x if activation is None else q(x, activation, -1)
    want = gs.qmatmul(left, q(plain.weight, "mxfp4", 1).t(), ": fp32", out_dtype=work)
    assert isinstance(layer.weight, MXTensor) and not layer.weight.requires_grad
    assert torch.equal(layer(x), (want + plain.bias.detach().to(work)).to(dtype))
    if activation:
        assert torch.equal(nn.functional.linear(x, layer.weight, layer.bias), layer(x))
    native = MXInferenceLinear.from_float(plain, MXInferenceConfig("mxfp4", activation, None))
    # PyTorch's sum of 70 terms in an order of its own, with the bias: in a narrow dtype the product and the sum are rounded to it.
    assert native(x).dtype == dtype
    size = largest(left.double().abs() @ q(plain.weight, "mxfp4", 1).double().abs().t() + plain.bias.double().abs())
    narrow = dtype in (torch.bfloat16, torch.float16)
    near = {"dtype": dtype if narrow else torch.float32, "size": size}
    assert_near(native(x).float(), layer(x).float(), 3 if narrow else 71, **near)


@pytest.mark.parametrize("kind", [MXLinear, MXInferenceLinear])
def test_layers_copy_store_and_convert(kind):
    layer = linear("mxfp4", kind=kind)
    x = values(3, 70)
    want = layer(x)
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert "mxfp4" in repr(layer) and "in_features=70" in repr(layer)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), want) and [n for n, _ in twin.named_parameters()] == ["weight", "bias"]
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = kind(70, 6, config="mxfp4")
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), want)
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.bfloat16


def test_compiled_layers():
    layer = linear(FOUR)
    x = values(3, 70).requires_grad_()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    compiled(x).sum().backward()
    got = x.grad, layer.weight.grad
    x.grad, layer.weight.grad = None, None
    out = layer(x)
    out.sum().backward()
    assert torch.equal(compiled(x), out) and torch.equal(got[0], x.grad) and torch.equal(got[1], layer.weight.grad)
    frozen = MXInferenceLinear.from_float(layer, "mxfp8_e4m3")
    assert torch.equal(torch.compile(frozen, backend="aot_eager", fullgraph=True)(x), frozen(x))


@pytest.mark.parametrize("config", ["mxfp4", None, MXAttentionConfig("mxfp8_e4m3", grad="mxfp8_e5m2")], ids=str)
def test_compiled_attention_and_products(config):
    given = values(2, 3, 9, 16, seed=3)

    def run(t):
        out = gs.mx.mx_attention(t, t, t, config, is_causal=True)
        return gs.mx.trained_matmul(out, t.mT, "mxint8")

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = []
    for call in (compiled, run):
        t = given.clone().requires_grad_()
        call(t).sum().backward()
        results.append((call(t).detach(), t.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("config", ["mxfp8_e4m3", "nvfp4/tensor", MXLinearConfig("mxfp4", accumulator=None)], ids=str)
def test_gradients_of_each_example(config):
    layer = linear(config)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x = values(4, 3, 70) * torch.tensor([1.0, 30, 0.01, 5]).view(4, 1, 1)  # each example has a tensor scale of its own

    def loss(parameters, rows):
        return torch.func.functional_call(layer, parameters, (rows,)).square().sum()

    got = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for i, rows in enumerate(x):
        layer.zero_grad()
        layer(rows).square().sum().backward()
        assert torch.equal(got["weight"][i], layer.weight.grad)


def test_gradients_have_no_derivative():
    layer, x = linear("mxfp8_e4m3"), values(3, 70).requires_grad_()
    q = values(1, 5, 8).requires_grad_()
    for out, leaf in ((layer(x), x), (gs.mx.mx_attention(q, q, q, "mxfp4"), q)):
        (grad,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
        with pytest.raises(gs.ops.errors.GradError, match="derivative of its gradient"):
            torch.autograd.grad(grad.square().sum() + leaf.sum(), leaf)


def test_the_advice_for_second_derivatives_names_what_the_layers_have():
    layer, frozen = linear("mxfp8_e4m3"), gs.mx.MXInferenceLinear(70, 8, config="mxfp8_e4m3")
    x = values(3, 70).requires_grad_()
    for module in (layer, frozen):
        (grad,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        with pytest.raises(
            gs.GradError, match=r"Take torch.nn.Linear, with weight.dequantize\(\) for an MXTensor"
        ) as told:
            torch.autograd.grad(grad.sum(), x)
        assert "spec" not in str(told.value)
    other = nn.Linear(70, 8)
    other.weight = nn.Parameter(frozen.weight.dequantize())
    (grad,) = torch.autograd.grad(other(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(grad.sum(), x)[0].abs().sum() > 0


@pytest.mark.parametrize("swap", [gs.mx.swap_linear_with_mx_linear, gs.mx.swap_linear_with_mx_inference_linear])
@pytest.mark.parametrize("filter_fn", [None, lambda module, name: isinstance(module, nn.Linear)])
@pytest.mark.parametrize("gone", ["None", "deleted"])
def test_layers_without_a_weight_are_left_and_reported(swap, filter_fn, gone):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    if gone == "None":
        model[1].weight = None
    else:
        del model[1].weight
    tables = []
    assert swap(model, "mxfp8_e4m3", filter_fn, report=tables.append) is model
    assert type(model[1]) is nn.Linear and isinstance(model[0], (gs.mx.MXLinear, gs.mx.MXInferenceLinear))
    assert "1  Linear: stays native, without a weight" in str(tables[0])
    for kind in (gs.mx.MXLinear, gs.mx.MXInferenceLinear):
        with pytest.raises(
            gs.mx.MXConfigError, match=rf"^{kind.__name__}.from_float of a Linear without a weight; allowed"
        ):
            kind.from_float(model[1], "mxfp8_e4m3")


# Models


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), self.first.__class__(32, 3))
        self.tied = self.rest[1]
        self.attention = nn.MultiheadAttention(32, 2)


def test_swapping_keeps_parameters_names_and_sharing():
    model = Model()
    before = {name: id(p) for name, p in model.named_parameters()}
    seen = []
    done = gs.mx.swap_linear_with_mx_linear(model, "mxfp4", lambda module, name: seen.append(name) or name != "rest.2")
    assert done is model and {name: id(p) for name, p in model.named_parameters()} == before
    assert type(model.first) is MXLinear and type(model.rest[2]) is nn.Linear
    assert model.tied is model.rest[1] and type(model.tied) is MXLinear
    assert seen == ["first", "rest.1", "rest.2", "attention.out_proj"]
    assert isinstance(model.attention.out_proj, MXLinear)
    assert gs.mx.swap_linear_with_mx_linear(model, "mxfp8_e4m3").first.config.input == "mxfp4"
    assert type(gs.mx.swap_linear_with_mx_linear(nn.Linear(2, 2))) is MXLinear


def test_quantize_takes_both_kinds_of_config():
    model = gs.mx.quantize_(Model().eval(), MXInferenceConfig("mxfp6_e3m2"))
    assert type(model.first) is MXInferenceLinear and not model.first.training
    assert type(gs.mx.quantize_(Model(), MXLinearConfig()).first) is MXLinear
    with pytest.raises(gs.mx.MXConfigError, match="MXLinearConfig for training"):
        gs.mx.quantize_(Model(), "mxfp4")


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: MXLinearConfig("mxfp5"), gs.FormatError),
        (lambda: MXLinearConfig("e4m3"), gs.FormatError),
        (lambda: MXInferenceConfig(accumulator="chunked"), ValueError),
        (lambda: linear()(torch.ones(3, 71)), gs.ShapeError),
        (lambda: linear()(torch.ones(3, 70, dtype=torch.int32)), gs.DTypeError),
        (lambda: gs.mx.trained_matmul(torch.ones(3), torch.ones(3, 3), MXLinearConfig()), gs.ShapeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_configs_are_values():
    config = MXLinearConfig("mxfp8", accumulator=gs.acc.chunked(8, "e6m9"))
    assert config == MXLinearConfig("mxfp8_e4m3", accumulator="chunked(8, e6m9)")
    assert config.wgrad_accumulator == config.accumulator and config.grad == "mxfp8_e4m3"
    assert hash(config) == hash(eval(repr(config)))


# Attention


def test_attention_encodes_along_the_sums():
    query, key, value = (values(2, 3, n, 40, seed=n) for n in (5, 34, 33))
    value = values(2, 3, 34, 24, seed=9)
    config = MXAttentionConfig("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4", accumulator="bf16")
    scores = gs.qmatmul(q(query, "mxfp8_e4m3", -1), q(key, "mxfp8_e5m2", -1).mT, ": bf16") * (1 / math.sqrt(40))
    mask = torch.ones(5, 34, dtype=torch.bool).tril(3)
    p = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
    want = gs.qmatmul(q(p, "mxfp4", -1), q(value, "mxfp6_e2m3", -2), ": bf16")
    assert torch.equal(gs.mx.mx_attention(query, key, value, config, attn_mask=mask), want)
    added = torch.zeros(5, 34).masked_fill(~mask, -math.inf)
    assert torch.equal(gs.mx.mx_attention(query, key, value, config, attn_mask=added), want)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_close_to_pytorchs_with_gradients(causal):
    tensors = [values(2, 16, 32, seed=n).requires_grad_() for n in range(3)]
    twins = [t.detach().clone().requires_grad_() for t in tensors]
    out = gs.mx.mx_attention(*tensors, "mxfp8_e4m3", is_causal=causal)
    want = nn.functional.scaled_dot_product_attention(*twins, is_causal=causal)
    out.square().sum().backward()
    want.square().sum().backward()
    # An element of e4m3 is off by at most u = 2^-4 of itself, 0.4 u in the mean square. The result has the roundings of
    # four operands, 0.4 u sqrt(4), a gradient those of four more and of what it is multiplied by.
    u = 2.0**-4
    assert (out - want).norm() < 2 * 0.4 * 4**0.5 * u * want.norm()
    for got, twin in zip(tensors, twins, strict=True):
        assert (got.grad - twin.grad).norm() < 2 * 0.4 * 9**0.5 * u * twin.grad.norm()
    with pytest.raises(gs.ShapeError):
        gs.mx.mx_attention(*tensors, is_causal=True, attn_mask=torch.ones(16, 16))


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4", "nvfp4/tensor"])
def test_training_converges(fmt):
    torch.set_num_threads(1)  # small products
    torch.manual_seed(0)
    x = torch.randn(256, 32)
    target = torch.tanh(x @ torch.randn(32, 8) / 6)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    gs.mx.swap_linear_with_mx_linear(model, fmt)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for _ in range(30):
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < (0.05 if "fp4" not in fmt else 0.3) * losses[0]


def test_autocast_leaves_the_layers_as_they_are():
    layer, x = linear("mxfp8_e4m3"), values(3, 70)
    want = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), want)


def test_accumulators_that_take_the_scales_apart():
    config = MXLinearConfig("mxfp8_e4m3", accumulator="scaled(bf16, fp32)")
    layer, x = linear(config, bias=False), values(5, 70)
    assert torch.equal(layer(x), gs.qmatmul(x, layer.weight.detach().t(), "mxfp8_e4m3 : scaled(bf16, fp32)"))
    frozen = MXInferenceLinear.from_float(layer, MXInferenceConfig(accumulator="scaled(bf16, fp32)"))
    assert torch.equal(frozen(x), layer(x))
    with pytest.raises(gs.SpecError, match="hw"):
        MXLinearConfig("nvfp4", accumulator="hw(blackwell, mxf8f6f4, e4m3)")
