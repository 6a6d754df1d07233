"""Every name of ModelOpt's ``tensor_quant``, with the positional arguments of its old and its new versions."""

from __future__ import annotations

import inspect

import pytest
import torch

from gemmsim import tensor_quant as tq
from gemmsim.compat.modelopt import tensor_quant as facade

NAMES = """TensorQuantFunction tensor_quant FakeTensorQuantFunction fake_tensor_quant LegacyFakeTensorQuantFunction
legacy_fake_tensor_quant FakeAffineTensorQuantFunction fake_affine_tensor_quant ScaledE4M3Function scaled_e4m3
scaled_e4m3_impl scaled_e4m3_abstract DynamicBlockQuantizationFunction dynamic_block_quant
StaticBlockQuantizationFunction static_block_quant fake_quant_impl fp8_eager quantize_op dynamic_block_quantize_op
mx_format_map int_cast_ste fp4_cast_ste static_blockwise_fp4_fake_quant ScaledQuantDescriptor QuantDescriptor
QUANT_DESC_8BIT_PER_TENSOR QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW""".split()
OURS = "MaxCalibrator HistogramCalibrator MseCalibrator BiasCalibrator TensorQuantizer".split()

G = torch.Generator().manual_seed(0)
X = torch.randn(4, 32, generator=G)
A = torch.tensor(1.5)
BIAS = torch.tensor(0.25)
#: name, arguments after (inputs, amax) in the old order, in the new one.
VINTAGES = [
    ("fake_tensor_quant", (), (None,)),
    ("fake_tensor_quant", (4,), (None, 4)),
    ("fake_tensor_quant", (4, False, False), (None, 4, False, False)),
    ("fake_tensor_quant", (4, False, True, "Float"), (None, 4, False, True, "Float", False, None, None)),
    ("fake_tensor_quant", (4, False, True), (None, 4, False, True, None, False, 16, -1)),
    ("legacy_fake_tensor_quant", (), (None,)),
    ("legacy_fake_tensor_quant", (4, False, False), (None, 4, False, False)),
    ("tensor_quant", (), (None,)),
    ("tensor_quant", (4, False, False), (None, 4, False, False)),
    ("scaled_e4m3", (4, 3), (None, 4, 3)),
    ("scaled_e4m3", (4, 3), (None, 4, 3, None, False)),
    ("scaled_e4m3", (5, 2), (None, 5, 2, "Half", True)),
]
CLASSES = {
    "fake_tensor_quant": "FakeTensorQuantFunction",
    "legacy_fake_tensor_quant": "LegacyFakeTensorQuantFunction",
    "tensor_quant": "TensorQuantFunction",
    "scaled_e4m3": "ScaledE4M3Function",
    "fake_affine_tensor_quant": "FakeAffineTensorQuantFunction",
    "dynamic_block_quant": "DynamicBlockQuantizationFunction",
    "static_block_quant": "StaticBlockQuantizationFunction",
}


def equal(a, b):
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    assert getattr(tq, name) is getattr(facade, name) and name in tq.__all__ and name in dir(tq)


def test_calibrators_are_there_too():
    assert all(hasattr(tq, name) for name in OURS)


@pytest.mark.parametrize("number", range(len(VINTAGES)), ids=lambda i: f"{VINTAGES[i][0]}-{i}")
def test_both_orders(number):
    name, old, new = VINTAGES[number]
    function, kind = getattr(tq, name), getattr(tq, CLASSES[name])
    want = function(X, A, *old)
    assert equal(want, function(X, A, *new)) and equal(want, function(X, 1.5, *new))
    assert equal(want, kind.apply(X, A, *old)) and equal(want, kind.apply(X, A, *new))
    with_bias = function(X, A, BIAS, *new[1:])
    assert not equal(want, with_bias) and equal(with_bias, kind.apply(X, A, BIAS, *new[1:]))


def test_functions_of_one_order():
    calls = {
        "fake_affine_tensor_quant": (X, torch.tensor(-1.0), torch.tensor(2.0), 8),
        "dynamic_block_quant": (X, 16, A, None, (2, 1), (4, 3), None, "dynamic", True),
        "static_block_quant": (X, 16, torch.full((8, 1), 1.5), None, 8, False, True),
    }
    for name, arguments in calls.items():
        function = getattr(tq, name)
        assert equal(function(*arguments), getattr(tq, CLASSES[name]).apply(*arguments)), name
        by_name = dict(zip(inspect.signature(function).parameters, arguments, strict=False))
        assert equal(function(*arguments), function(**by_name)), name
    assert tq.scaled_e4m3_abstract(X, A).shape == X.shape
    assert list(inspect.signature(tq.scaled_e4m3_impl).parameters) == ["inputs", "amax"]
    assert list(inspect.signature(tq.scaled_e4m3_abstract).parameters) == ["input", "amax"]


def test_classes_are_autograd_functions_with_their_three_methods():
    for name in CLASSES.values():
        kind = getattr(tq, name)
        assert issubclass(kind, torch.autograd.Function), name
        if name != "StaticBlockQuantizationFunction":  # which reshapes and calls another one
            assert all(callable(getattr(kind, method)) for method in ("forward", "backward", "symbolic")), name


def test_descriptors():
    for name in NAMES:
        if name.startswith("QUANT_DESC"):
            found = getattr(tq, name)
            assert found.num_bits == 8 and found.unsigned == ("UNSIGNED" in name)
            assert found.axis == (None if "TENSOR" in name else 0)
    assert tq.QuantDescriptor is tq.ScaledQuantDescriptor
