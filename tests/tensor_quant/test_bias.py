"""A quantiser's bias: of each input, or from calibration."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gemmsim import tensor_quant as tq
from gemmsim.tensor_quant import TensorQuantizer


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 2


def middle(x, method, dims):
    if method == "mean":
        return x.double().mean(dims, keepdim=True).float()
    return ((x.double().amin(dims, keepdim=True) + x.double().amax(dims, keepdim=True)) / 2).float()


@pytest.mark.parametrize("method", ["mean", "max_min"])
@pytest.mark.parametrize("dims", [(-1,), (0, 2)])
def test_a_dynamic_bias_is_each_inputs_own(method, dims):
    x = data(3, 4, 5)
    bias = {**dict.fromkeys(dims), "type": "dynamic", "method": method}
    q = TensorQuantizer({"num_bits": 4, "narrow_range": True, "bias": bias})
    want = tq.fake_tensor_quant(x, x.abs().max(), middle(x, method, dims), 4)
    assert torch.equal(q(x), want) and not torch.equal(want, tq.fake_tensor_quant(x, x.abs().max(), None, 4))
    q.amax = 3.0
    assert torch.equal(q(2 * x), tq.fake_tensor_quant(2 * x, 3.0, middle(2 * x, method, dims), 4))
    floats = TensorQuantizer({"num_bits": (4, 3), "bias": bias}, amax=3.0)
    assert torch.equal(floats(x), tq.scaled_e4m3(x, 3.0, middle(x, method, dims), 4, 3))
    blocks = {0: 2, "type": "dynamic", "scale_bits": (8, 0)}
    mx = TensorQuantizer({"num_bits": (2, 1), "block_sizes": blocks, "bias": bias})
    own = middle(x, method, dims)
    want = tq.dynamic_block_quant((x - own).movedim(0, -1), 2, None, None, (2, 1), (8, 0)).movedim(-1, 0) + own
    assert torch.equal(mx(x), want)


def test_a_static_bias_comes_from_calibration_and_is_saved():
    x = data(6, 8)
    describe = {"num_bits": 8, "narrow_range": True, "bias": {0: None, 1: None}}
    model = tq.quantize_(nn.Sequential(nn.Linear(8, 4)), {"*input_quantizer": describe})
    q = model[0].input_quantizer
    assert torch.equal(q(x), tq.fake_tensor_quant(x, x.abs().max(), middle(x, "mean", (0, 1))))  # not calibrated yet
    assert not q.state_dict()
    tq.calibrate(model, [x, 3 * x])
    first, both = middle(x, "mean", (0, 1)), 2 * middle(x, "mean", (0, 1))
    assert torch.equal(q.bias, both) and q.bias.shape == (1, 1)
    assert torch.equal(q.amax, torch.maximum((x - first).abs().max(), (3 * x - q.bias).abs().max()))
    assert torch.equal(q(x), tq.fake_tensor_quant(x, q.amax, q.bias))
    assert set(q.state_dict()) == {"_amax", "_bias_value"}
    again = TensorQuantizer(describe)
    again.load_state_dict(q.state_dict())
    assert torch.equal(again(x), q(x))
    tq.calibrate(model, [x])
    assert torch.equal(q.bias, first)  # from the start
    q.reset_bias()
    assert q.bias is None and torch.equal(q(x), tq.fake_tensor_quant(x, q.amax, middle(x, "mean", (0, 1))))


@pytest.mark.parametrize(
    "bias",
    [
        3,
        {},
        {"type": "dynamic"},
        {-1: 4},
        {"a": None},
        {True: None},
        {-1: None, "type": "x"},
        {-1: None, "method": "x"},
    ],
    ids=str,
)
def test_descriptions_that_are_no_bias_raise(bias):
    with pytest.raises(tq.DescriptorError, match="bias=.*allowed"):
        tq.QuantizerAttributeConfig(bias=bias)


def test_refusals():
    bias = {-1: None}
    for fields in ({"block_sizes": {-1: 4}}, {"learn_amax": True}):
        with pytest.raises(tq.DescriptorError, match="allowed: neither"):
            tq.QuantizerAttributeConfig(bias=bias, **fields)
    with pytest.raises(tq.CalibrationError, match="load_calib_bias"):
        TensorQuantizer({"bias": {-1: None, "type": "dynamic"}}).load_calib_bias()
    model = tq.quantize_(nn.Sequential(nn.Linear(8, 4)), {"*input_quantizer": {"bias": bias}})
    with pytest.raises(tq.AmaxShapeError, match="bias shape changed"):
        tq.calibrate(model, [data(6, 8), data(5, 8)])
    tq.quantize_(model, {"*weight_quantizer": {"axis": 0}}, spec="int(32)")
    with pytest.raises(tq.DescriptorError, match="integer products"):
        model(data(6, 8))
    config = tq.QuantizerAttributeConfig(bias={-1: None, "method": "max_min"})
    assert tq.QuantizerAttributeConfig.from_dict(config.dict()) == config
    assert tq.QuantizerAttributeConfig.from_dict({"bias": {"-1": None, "method": "max_min"}}) == config  # from JSON


def test_a_bias_goes_with_learned_amax_too():
    q, x = TensorQuantizer({"num_bits": 4, "learn_amax": "lsq"}, amax=1.0), data(9)
    q.bias = 0.5
    want = tq.learned_fake_tensor_quant(x - 0.5, torch.tensor(1.0), 4, False, False) + 0.5
    assert torch.equal(q(x), want)
