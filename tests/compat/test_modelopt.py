"""ModelOpt's names: all there, both argument orders, its configurations on a model."""

from __future__ import annotations

import pytest
import torch
from support import GOLDEN
from torch import nn

import gemmsim as gs
import gemmsim.compat.modelopt as mtq

NAMES = {
    "tensor_quant": (
        "TensorQuantFunction tensor_quant FakeTensorQuantFunction fake_tensor_quant LegacyFakeTensorQuantFunction"
        " legacy_fake_tensor_quant FakeAffineTensorQuantFunction fake_affine_tensor_quant ScaledE4M3Function scaled_e4m3"
        " scaled_e4m3_impl scaled_e4m3_abstract DynamicBlockQuantizationFunction dynamic_block_quant"
        " StaticBlockQuantizationFunction static_block_quant ScaledQuantDescriptor QuantDescriptor fake_quant_impl fp8_eager"
        " quantize_op dynamic_block_quantize_op mx_format_map int_cast_ste fp4_cast_ste static_blockwise_fp4_fake_quant"
        " QUANT_DESC_8BIT_PER_TENSOR QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW"
        " QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL"
    ).split(),
    "calib": ["MaxCalibrator", "HistogramCalibrator", "MseCalibrator", "BiasCalibrator"],
    "nn": ["TensorQuantizer"],
    "config": ["QuantizerAttributeConfig", "INT8_DEFAULT_CFG"],
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    found = getattr(mtq, module)
    assert set(NAMES[module]) <= set(found.__all__)
    assert all(getattr(found, name) is getattr(gs.tensor_quant, name, getattr(found, name)) for name in found.__all__)
    with pytest.raises(AttributeError):
        _ = mtq.nothing


def test_functions_are_those_of_both_versions():
    x, amax = torch.randn(3, 5), torch.tensor(1.0)
    t = mtq.tensor_quant
    assert torch.equal(t.fake_tensor_quant(x, amax, 8, False, True), t.fake_tensor_quant(x, amax, None, 8, False, True))
    assert (GOLDEN / "modelopt" / "modelopt_current.npz").exists()  # compared in tests/tensor_quant


@pytest.mark.parametrize("name", [n for n in mtq.config.__all__ if n.endswith("CFG")])
def test_configurations(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 8))
    x = torch.randn(16, 128)
    plain = model(x)
    seen = []
    assert mtq.quantize(model, getattr(mtq.config, name), lambda m: seen.append(m(x))) is model
    y = model(x)
    assert isinstance(model[0], mtq.nn.QuantLinear) and not model[0].output_quantizer.is_enabled
    assert 0 < (y - plain).abs().max() < 0.5 and y.isfinite().all()
    static = getattr(mtq.config, name)["algorithm"] is not None
    assert bool(seen) == static and any("_amax" in key for key in model.state_dict()) == static


def test_algorithms():
    model = nn.Sequential(nn.Linear(16, 8))
    x = torch.randn(64, 16)
    config = {**mtq.config.INT8_DEFAULT_CFG, "algorithm": {"method": "percentile", "percentile": 90.0}}
    mtq.quantize(model, config, lambda m: m(x))
    assert model[0].input_quantizer.amax < x.abs().max() * 0.9
    before = model[0].input_quantizer.amax
    assert mtq.calibrate(model, None, lambda m: m(x))[0].input_quantizer.amax is before


def test_calibrate_of_nothing_and_of_no_algorithm():
    import gemmsim.compat.modelopt as mtq

    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    off = {"quant_cfg": {"default": {"enable": False}}, "algorithm": "max"}
    assert mtq.quantize(model, off, lambda m: m(torch.ones(1, 4))) is model
    for algorithm in (3, {"bins": 3}):
        with pytest.raises(RuntimeError, match="algorithm=.*allowed"):
            mtq.calibrate(model, algorithm, lambda m: m(torch.ones(1, 4)))
