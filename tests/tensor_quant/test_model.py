"""Models: quantisers by name, calibration, integer products in emulated accumulators."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import assert_near, largest, magnitudes
from torch import nn

import gemmsim as gs
from gemmsim import reference
from gemmsim import tensor_quant as tq

INT8 = {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}}


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 8), nn.ReLU(), nn.Linear(8, 3))


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def test_patterns():
    model = network()
    keys, parameters = set(model.state_dict()), [id(p) for p in model.parameters()]
    assert tq.quantize_(model, {**INT8, "5.*": None}) is model
    assert isinstance(model[0], tq.QuantConv2d) and isinstance(model[3], tq.QuantLinear) and type(model[5]) is nn.Linear
    assert set(model.state_dict()) == keys and [id(p) for p in model.parameters()] == parameters
    assert model[3].weight_quantizer.axis == 0 and not model[3].output_quantizer.is_enabled
    tq.quantize_(model, {"quant_cfg": {"nn.Linear": {"*input_quantizer": {"num_bits": 4}}}, "algorithm": "max"})
    assert model[3].input_quantizer.num_bits == 4 and model[0].input_quantizer.num_bits == 8
    assert isinstance(model[5], tq.QuantLinear) and not model[5].weight_quantizer.is_enabled
    with pytest.raises(ValueError, match="name no quantiser"):
        tq.quantize_(model, {"*wieght_quantizer": {"num_bits": 8}})
    with pytest.raises(ValueError):
        tq.quantize_(model, {"*": 8})
    single = tq.quantize_(nn.Linear(3, 2), {"default": {"num_bits": 8}})
    assert single.output_quantizer.is_enabled and isinstance(single, nn.Linear)


def test_a_quantised_layer_is_the_layer_of_quantised_operands():
    model, x = network(), data(2, 2, 6, 6)
    conv, linear = copy.deepcopy(model[0]), copy.deepcopy(model[3])
    tq.quantize_(model, INT8)
    fake = tq.fake_tensor_quant
    weight = fake(conv.weight, conv.weight.abs().amax((1, 2, 3), keepdim=True), 8, False, False)
    y = nn.functional.conv2d(fake(x, x.abs().max(), 8, False, False), weight, conv.bias)
    assert torch.equal(model[0](x), y)
    h = data(2, 64)
    weight = fake(linear.weight, linear.weight.abs().amax(1, keepdim=True), 8, False, False)
    assert torch.equal(model[3](h), nn.functional.linear(fake(h, h.abs().max(), 8, False, False), weight, linear.bias))


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
def test_calibration_does_not_depend_on_the_split(method):
    x, results = data(24, 16), []
    for size in (24, 5, 1):
        model = tq.quantize_(mlp(), INT8)
        seen = []
        tq.calibrate(model, x.split(size), method, progress=lambda *step: seen.append(step))  # noqa: B023
        assert seen[-1] == (-(-24 // size),) * 2
        results.append(model.state_dict())
    assert {"0.input_quantizer._amax", "2.weight_quantizer._amax"} <= set(results[0])
    first = [results[i]["0.input_quantizer._amax"] for i in range(3)]
    assert torch.equal(first[0], first[1]) and torch.equal(first[0], first[2])
    assert torch.equal(results[0]["0.weight_quantizer._amax"], mlp()[0].weight.abs().amax(1, keepdim=True))
    if method == "max":
        assert first[0] == x.abs().max()


def test_calibration_takes_arguments_and_functions_and_restores_the_switches():
    x = data(8, 16)
    for batches in ([(x,)], [{"input": x}], x, lambda model: model(x)):
        model = tq.quantize_(mlp(), INT8)
        tq.calibrate(model, batches)
        assert model[0].input_quantizer.amax == x.abs().max()
        assert not any(q._if_calib or not q._if_quant for q in model.modules() if isinstance(q, tq.TensorQuantizer))
    model = tq.quantize_(mlp(), INT8)
    with pytest.raises(AssertionError, match="NaN"):
        tq.calibrate(model, [x / 0 * 0])
    assert not model[0].input_quantizer._if_calib
    with pytest.raises(RuntimeError, match="nothing was collected"):
        tq.calibrate(model, [])
    with pytest.raises(RuntimeError, match="method"):
        tq.calibrate(model, [x], "median")


def test_calibrated_models_load_copy_and_pickle():
    x = data(8, 16)
    model = tq.calibrate(tq.quantize_(mlp(), INT8, spec="int(18, wrap)"), [x])
    fresh = tq.quantize_(mlp(), INT8, spec={"*": "int(18, wrap)"})
    fresh.load_state_dict(model.state_dict())
    for other in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
    assert "int(18, wrap)" in repr(model)


@pytest.mark.parametrize("accumulator", ["int(32)", "int(12, wrap)", "int(12, saturate)", "e5m10"])
def test_integer_products_are_those_of_the_reference(accumulator):
    a, b = torch.randint(-127, 128, (3, 40)).float(), torch.randint(-7, 8, (40, 5)).float()
    sa, sb = torch.rand(3, 1) + 1, torch.rand(1, 5) + 1
    total = reference.gemm(a.tolist(), b.tolist(), gs.GemmSpec.parse(f": {accumulator}"))
    want = (torch.tensor(total, dtype=torch.float64) / (sa.double() * sb.double())).float()
    assert_bitwise_equal(tq.int_matmul(a, b, sa, sb, spec=accumulator), want)
    assert_bitwise_equal(tq.int_matmul(a.to(torch.int8), b.to(torch.int8), sa, sb, spec=accumulator), want)


def test_native_integer_products_have_the_same_bits():
    a, b = torch.randint(-128, 128, (20, 64)).to(torch.int8), torch.randint(-128, 128, (64, 24)).to(torch.int8)
    want = tq.int_matmul(a, b, 3.0, 7.0)
    with gs.cublas_acceleration(True):
        assert_bitwise_equal(tq.int_matmul(a, b, 3.0, 7.0), want)
        assert "_int_mm" in str(gs.last_backend())
    with pytest.raises(ValueError, match="along the contraction"):
        tq.int_matmul(a, b, torch.rand(20, 64))


def test_int_linear_is_the_integers_product_with_straight_through_gradients():
    x, w, bias = data(5, 3, 24).requires_grad_(), data(7, 24, seed=1).requires_grad_(), data(7, seed=2)
    wide = w.detach().abs().amax(1, keepdim=True)
    y = tq.int_linear(x, w, bias, input_amax=2.0, weight_amax=wide, num_bits=(8, 4))
    (qx, sx), (qw, sw) = tq.tensor_quant(x.detach(), 2.0), tq.tensor_quant(w.detach(), wide, 4)
    want = ((qx.double() @ qw.double().T) / (sx.double() * sw.double().T)).float() + bias
    assert_bitwise_equal(y.detach(), want)
    y.sum().backward()
    x2, w2 = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
    nn.functional.linear(tq.fake_tensor_quant(x2, 2.0), tq.fake_tensor_quant(w2, wide, 4), bias).sum().backward()
    # sums over 7 outputs and 15 rows of numbers that were quantised: products of two roundings
    assert_near(x.grad, x2.grad, 7 + 3, size=7 * largest(w))
    assert_near(w.grad, w2.grad, 15 + 3, size=15 * largest(x))


def test_models_run_in_emulated_accumulators_end_to_end():
    x = data(12, 16)
    model = tq.calibrate(tq.quantize_(mlp(), INT8), [x])
    plain, size = model(x), largest(magnitudes(model, x)[0])
    for layer in (model[0], model[2]):
        layer.accumulator = "int(32)"
    assert_near(model(x), plain, model[0].in_features + model[2].in_features + 8, size=size)  # sums, scales, biases
    model[0].accumulator = "int(14, wrap)"
    assert not torch.allclose(model(x), plain, atol=1e-2)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    blocks = tq.quantize_(
        mlp(),
        {"*weight_quantizer": {"block_sizes": {-1: 16}}, "*input_quantizer": {"num_bits": 8}},
        spec="int(32)",
    )
    with pytest.raises(ValueError, match="integer products"):
        blocks(x)
    batch = nn.Sequential(model)
    with torch.no_grad(), gs.cublas_acceleration(True):
        assert batch(x[:0]).shape == (0, 4)


def test_a_few_steps_of_training_lower_the_loss():
    torch.manual_seed(1)
    model = tq.quantize_(
        mlp(), {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 4, "learn_amax": "lsq"}}
    )
    x, target = data(64, 16), data(64, 4, seed=3)
    tq.calibrate(model, [x])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert model[0].input_quantizer.learned_amax.grad is not None


def test_compiled():
    x = data(6, 16)
    model = tq.calibrate(tq.quantize_(mlp(), INT8), [x])
    assert_bitwise_equal(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_integer_convolutions_are_sums_of_windows_in_the_accumulator(dims):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    torch.manual_seed(0)
    layer = nn.Sequential(kind(4, 6, 3, stride=2, padding=1, groups=2))
    x = data(2, 4, *[5] * dims)
    tq.quantize_(layer, {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}})
    tq.calibrate(layer, [x])
    plain, size = layer(x), largest(magnitudes(layer, x)[0])
    layer[0].accumulator = "int(32)"
    leaf = x.clone().requires_grad_()
    y = layer(leaf)
    assert_near(y, plain, 2 * 3**dims + 4, size=size)
    y.square().sum().backward()
    assert leaf.grad is not None and layer[0].weight.grad is not None
    layer[0].accumulator = "int(12, wrap)"
    conv = layer[0]
    (qx, sx), (qw, sw) = (
        tq.integer_values(t, q.amax, 8, False, False)
        for t, q in ((x, conv.input_quantizer), (conv.weight.detach(), conv.weight_quantizer))
    )
    total = getattr(gs.ops, f"qconv{dims}d")(qx, qw, None, 2, 1, 1, 2, ": int(12, wrap)", out_dtype=torch.float64)
    ones = [1] * dims
    want = (total / (sx.double() * sw.double().reshape(-1, *ones))).float() + conv.bias.reshape(-1, *ones)
    assert_bitwise_equal(layer(x).detach(), want.detach())
    assert not torch.allclose(want, plain, atol=1e-2)


def test_a_convolutional_model_runs_in_integer_accumulators():
    x = data(3, 2, 6, 6)
    model = tq.calibrate(tq.quantize_(network(), INT8, spec="int(24, saturate)"), [x])
    quantised = tq.calibrate(tq.quantize_(network(), INT8), [x])
    # sums of fewer than 100 terms in each layer, with scales and biases
    assert_near(model(x), quantised(x), 3 * (100 + 4), size=largest(magnitudes(quantised, x)[0]))
    model(x).sum().backward()
    with pytest.raises(ValueError, match="axis=None"):
        tq.quantize_(model, {"0.input_quantizer": {"axis": 1}})
        model(x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolutions(dims):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    native = (nn.functional.conv_transpose1d, nn.functional.conv_transpose2d, nn.functional.conv_transpose3d)[dims - 1]
    torch.manual_seed(0)
    layer = nn.Sequential(kind(4, 6, 3, stride=2, padding=1, groups=2, output_padding=1))
    keys, x = list(layer.state_dict()), data(2, 4, *[4] * dims)
    tq.quantize_(layer, {"*weight_quantizer": {"axis": 1}, "*input_quantizer": {"num_bits": 8}})
    assert list(layer.state_dict()) == keys and isinstance(layer[0], getattr(tq, f"QuantConvTranspose{dims}d"))
    tq.calibrate(layer, [x])
    conv, where = layer[0], (2, 1, 1, 2)
    plain = native(conv.input_quantizer(x), conv.weight_quantizer(conv.weight), conv.bias, *where)
    assert_bitwise_equal(layer(x), plain)
    assert list(conv(x, output_size=[7] * dims).shape[2:]) == [7] * dims
    size = largest(magnitudes(layer, x)[0])
    conv.accumulator = "int(32)"
    leaf = x.clone().requires_grad_()
    y = layer(leaf)
    assert_near(y, plain, 2 * 3**dims + 4, size=size)
    y.square().sum().backward()
    assert leaf.grad is not None and conv.weight.grad is not None
    conv.accumulator = "int(12, wrap)"
    (qx, sx), (qw, sw) = (
        tq.integer_values(t, q.amax, 8, False, False)
        for t, q in ((x, conv.input_quantizer), (conv.weight.detach(), conv.weight_quantizer))
    )
    transposed = getattr(gs.ops, f"qconv_transpose{dims}d")
    total = transposed(qx, qw, None, *where, spec=": int(12, wrap)", out_dtype=torch.float64)
    ones = [1] * dims
    channel = sw.double().reshape(-1).repeat(2).reshape(-1, *ones)
    want = (total / (channel * sx.double())).float() + conv.bias.reshape(-1, *ones)
    assert_bitwise_equal(layer(x).detach(), want.detach())
    assert not torch.allclose(want, plain, atol=1e-2)
    tq.quantize_(layer, {"*weight_quantizer": {"axis": 0}})
    with pytest.raises(ValueError, match="axis=1"):
        layer(x)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("mode", ["wrap", "saturate"])
def test_calibrated_models_in_registers_of_every_width(bits, mode):
    """Against the integers summed in Python: outputs of each layer, overflow counts, and the width that weights prove."""
    x = data(6, 16)
    config = {"*weight_quantizer": {"num_bits": bits, "axis": 0}, "*input_quantizer": {"num_bits": 8}}
    model = tq.calibrate(tq.quantize_(mlp(), config), [x])
    layer = model[0]
    (q, sq), (w, sw) = (
        tq.tensor_quant(x, layer.input_quantizer.amax, 8, False, False),
        tq.tensor_quant(layer.weight.detach(), layer.weight_quantizer.amax, bits, False, False),
    )
    proven = gs.acc.min_accumulator_bits(w, "int8", k_dim=1)
    assert bool(gs.acc.overflow_certificate(w, "int8", proven, k_dim=1).all())
    seen = 0
    for width in (bits + 3, bits + 5, proven):
        low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        total, count = torch.zeros(6, w.shape[0], dtype=torch.int64), torch.zeros(6, w.shape[0], dtype=torch.int64)
        for k in range(16):
            total += q[:, k].long()[:, None] * w[:, k].long()[None]
            out = (total < low) | (total > high)
            count += out
            total = (total - low) % 2**width + low if mode == "wrap" else total.clamp(low, high)
        layer.accumulator = f"int({width}, {mode})"
        want = (total.double() / (sq.double() * sw.double().mT)).float() + layer.bias
        with torch.no_grad():
            assert_bitwise_equal(layer(x), want)
        assert torch.equal(gs.count_overflows(q, w.mT, f": int({width}, {mode})"), count)
        seen += int(count.sum())
    assert seen > 0 and int(count.sum()) == 0
    layer.accumulator = "int(32)"
    with torch.no_grad():
        wide = model(x)
        with gs.cublas_acceleration(True):
            assert_bitwise_equal(model(x), wide)
    model(x).sum().backward()
    assert layer.weight.grad is not None


class Experts(nn.Module):
    """Three layers of which each batch takes the first."""

    def __init__(self):
        super().__init__()
        self.e = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        return self.e[0](x)


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
def test_quantisers_that_no_batch_reaches_are_named_and_may_be_left(method):
    torch.manual_seed(0)
    config = {"*weight_quantizer": {"num_bits": 8, "axis": 0}, "*input_quantizer": {"num_bits": 8, "axis": None}}
    model, x = tq.quantize_(Experts(), config), torch.randn(64, 8)
    with pytest.raises(RuntimeError, match=r"collected by e\.1\.input_quantizer, e\.2\.input_quantizer; allowed"):
        tq.calibrate(model, [x], method)
    assert all(layer.input_quantizer.amax is None for layer in model.e)  # nothing half done
    tq.calibrate(model, [x], method, unreached="keep")
    assert [layer.input_quantizer.amax is not None for layer in model.e] == [True, False, False]
    assert all(layer.weight_quantizer.amax is not None for layer in model.e)
    model(x)
    before = model.e[0].input_quantizer.amax.clone()
    tq.calibrate(model, lambda m: m.e[1](2 * x), method, unreached="keep")
    assert torch.equal(model.e[0].input_quantizer.amax, before) and model.e[1].input_quantizer.amax is not None
    with pytest.raises(RuntimeError, match="unreached='drop'; allowed: 'error', 'keep'"):
        tq.calibrate(model, [x], method, unreached="drop")


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
def test_data_that_is_not_finite_is_placed(method):
    """In which quantiser, of all of a model."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    model[1].register_forward_hook(lambda module, inputs, output: output * float("nan"))
    gs.tensor_quant.quantize_(model, {"*input_quantizer": {"num_bits": 8, "axis": None}})
    with pytest.raises(gs.tensor_quant.CalibrationDataError, match=r"^2\.input_quantizer: calibration: NaN"):
        gs.tensor_quant.calibrate(model, [torch.randn(4, 8)], method=method)
