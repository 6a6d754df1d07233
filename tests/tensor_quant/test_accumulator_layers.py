"""Layers whose integers are summed in emulated registers: what they mean, and what has no such meaning."""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_near, largest, magnitudes
from torch import nn

from gemmsim import tensor_quant as tq
from gemmsim.formats import FormatError

INT8 = {"*weight_quantizer": {"num_bits": 8, "axis": 0}, "*input_quantizer": {"num_bits": 8}}


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def test_scale_amax_counts_in_integer_products_too():
    x = data(5, 16)
    model = tq.quantize_(network(), {"*weight_quantizer": {"axis": 0}})
    tq.quantize_(model, {"*input_quantizer": tq.ScaledQuantDescriptor(scale_amax=0.5)})
    for calibrated in (False, True):
        if calibrated:
            tq.calibrate(model, [x])
        for layer in (model[0], model[2]):
            layer.accumulator = None
        plain, size = model(x), largest(magnitudes(model, x)[0])
        for layer in (model[0], model[2]):
            layer.accumulator = "int(32)"
        assert_near(model(x), plain, 16 + 8 + 8, size=size)  # sums of 16 and 8, scales and biases


@pytest.mark.parametrize("pattern", ["*input_quantizer", "*weight_quantizer"])
def test_one_quantised_side_has_no_integer_product(pattern):
    model = tq.quantize_(network(), {pattern: {"num_bits": 8}}, spec="int(16, wrap)")
    with pytest.raises(tq.DescriptorError, match="alone quantised"):
        model(data(2, 16))
    tq.quantize_(model, INT8)
    model(data(2, 16))
    for layer in (model[0], model[2]):
        layer.input_quantizer.disable()
        layer.weight_quantizer.disable()
    assert torch.equal(model(data(2, 16)), network()(data(2, 16)))  # switched off as a whole: the plain layer


def test_unsigned_weights_are_unsigned_in_integer_products():
    model = tq.quantize_(network(), {**INT8, "*weight_quantizer": {"unsigned": True}}, spec="int(32)")
    with pytest.raises(tq.SignError):
        model(data(2, 16))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.abs_()
    got = model(data(2, 16))
    for layer in (model[0], model[2]):
        layer.accumulator = None
    assert_near(got, model(data(2, 16)), 16 + 8 + 8, size=largest(magnitudes(model, data(2, 16))[0]))


def test_accumulators_are_checked_when_they_are_given():
    with pytest.raises(FormatError, match="foo"):
        tq.quantize_(network(), INT8, spec="foo")
    with pytest.raises(tq.DescriptorError, match="names no layer"):
        tq.quantize_(network(), INT8, spec={"head*": "int(16, wrap)"})
    model = tq.quantize_(network(), INT8, spec={"0": "int(16, wrap)", "2": None})
    assert (model[0].accumulator, model[2].accumulator) == ("int(16, wrap)", None)


def test_integer_operands_keep_all_their_bits():
    a = torch.tensor([[2**25 + 1, 1]])
    want = torch.tensor([[(2**25 + 1) * 3 + 5]], dtype=torch.float64)
    for dtype in (torch.int32, torch.int64):
        b = torch.tensor([[3], [5]], dtype=dtype)
        assert torch.equal(tq.int_matmul(a.to(dtype), b, spec="int(40)", out_dtype=torch.float64), want)
    with pytest.raises(TypeError, match=r"beyond 2\^53"):
        tq.int_matmul(torch.tensor([[2**53 + 1]]), torch.tensor([[1]]), spec="int(53)")


def test_another_description_keeps_what_belongs_to_the_tensor():
    x = data(5, 16)
    model = tq.quantize_(network(), INT8)
    q = model[0].input_quantizer
    q.pre_quant_scale, q.bias = torch.full((16,), 2.0), 0.25
    tq.calibrate(model, [x])
    q.disable_quant()
    tq.quantize_(model, {"0.input_quantizer": {"num_bits": 4}})
    new = model[0].input_quantizer
    assert new.num_bits == 4 and torch.equal(new.amax, q.amax) and torch.equal(new.pre_quant_scale, q.pre_quant_scale)
    assert torch.equal(new.bias, q.bias) and torch.equal(new(x), 2 * x)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [((None,), {}), (([],), {"percentile": 99.0}), (([], "mse"), {"bins": 3})],
)
def test_calibrate_refuses_what_it_would_ignore(arguments, options):
    with pytest.raises(tq.CalibrationError, match="allowed"):
        tq.calibrate(tq.quantize_(network(), INT8), *arguments, **options)


def test_calibrate_and_quantize_want_models_and_patterns():
    with pytest.raises(tq.CalibrationError, match="quantize_ first"):
        tq.calibrate(network(), [data(2, 16)])
    for config in (3, {3: {"num_bits": 8}}):
        with pytest.raises(tq.DescriptorError, match="quantize_: a config"):
            tq.quantize_(network(), config)
