"""Descriptors and configs: checks, equality, dict round trips."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from gemmsim import tensor_quant as tq
from gemmsim.tensor_quant import QuantizerAttributeConfig as Config
from gemmsim.tensor_quant import ScaledQuantDescriptor as Descriptor

DESCRIPTORS = [
    Descriptor(),
    Descriptor(num_bits=4, name="w", axis=0),
    Descriptor(num_bits=(4, 3), fake_quant=False, amax=[1.0, 2.5], axis=(0, 1)),
    Descriptor(unsigned=True, narrow_range=True, calib_method="histogram", scale_amax=0.5),
    Descriptor(learn_amax=True, amax=3.0),
    Descriptor(num_bits=(2, 1), block_sizes={-1: 16, "type": "dynamic", "scale_bits": (4, 3)}),
    Descriptor(block_sizes={-1: 32, -2: None, "scale_bits": 8, "scale_block_sizes": {-1: 256}}, dynamic=True),
    tq.QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR,
]


@pytest.mark.parametrize("number", range(len(DESCRIPTORS)))
def test_round_trips(number):
    d = DESCRIPTORS[number]
    assert Descriptor.from_dict(d.dict()) == d == pickle.loads(pickle.dumps(d))
    assert Descriptor.from_dict(json.loads(json.dumps(d.dict()))) == d
    assert hash(Descriptor.from_dict(d.dict())) == hash(d)
    assert sum(d == other for other in DESCRIPTORS) == 1
    assert str(d).startswith("QuantDescriptor(")


def test_fields():
    d = Descriptor(amax=2)
    assert d.dict() == {"amax": 2.0} and d.amax.dtype == np.float32 and Descriptor().dict() == {}
    assert d.narrow_range is False and d.calib_method == "max" and d.fake_quant
    assert str(Descriptor()) == "QuantDescriptor(8bit fake axis= per-tensor)"
    assert Descriptor.get_block_quant_axes_and_sizes({-1: 32, "type": "dynamic", "scale_bits": 8}) == {-1: 32}
    assert Descriptor.get_block_quant_axes_and_sizes(None) is None
    assert tq.QuantDescriptor is Descriptor and tq.QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL.axis == 0
    with pytest.raises(AttributeError):
        d.num_bits = 4
    with pytest.raises(AttributeError):
        _ = d.bits


@pytest.mark.parametrize(
    "kind, fields",
    [
        (ValueError, {"num_bits": -1}),
        (TypeError, {"num_bits": (5, 5)}),
        (TypeError, {"num_bits": 8.0}),
        (TypeError, {"num_bits": True}),
        (TypeError, {"name": 3}),
        (AssertionError, {"block_sizes": {-1: 32}, "axis": 0}),
        (AssertionError, {"block_sizes": [32]}),
        (AssertionError, {"block_sizes": {"x": 32}}),
        (AssertionError, {"block_sizes": {-1: 0}}),
        (TypeError, {"learn_amax": True, "axis": 0}),
        (ValueError, {"learn_amax": "pact"}),
        (TypeError, {"amax": "1"}),
        (TypeError, {"bits": 8}),
    ],
)
def test_descriptor_errors(kind, fields):
    with pytest.raises(kind):
        Descriptor.from_dict(fields)


def test_config_round_trip():
    c = Config(num_bits=(2, 1), block_sizes={-1: 16, "type": "dynamic", "scale_bits": (4, 3)}, pass_through_bwd=True)
    assert Config.from_dict(c.dict()) == c
    assert Config.from_dict(json.loads(json.dumps(c.dict()))) == c
    assert Config(num_bits=[4, 3]).num_bits == (4, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"enable": True},
        {"num_bits": 0},
        {"num_bits": (0, 3), "block_sizes": {-1: 32, "type": "dynamic"}},
        {"num_bits": (5, 2)},
        {"num_bits": (7, 7)},
        {"type": "dynamic", "axis": (0, 1)},
        {"type": "sometimes"},
        {"block_sizes": {-1: 32}, "axis": 0},
        {"trt_high_precision_dtype": "Double"},
        {"calibrator": "median"},
        {"learn_amax": True, "axis": 1},
        {"bits": 8},
    ],
)
def test_config_errors(fields):
    with pytest.raises(ValueError):
        Config.from_dict(fields)
