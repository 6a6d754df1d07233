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
    names: dict[str, object] = {}
    exec(f"from gemmsim.compat.modelopt.{module} import *", names)
    assert set(NAMES[module]) <= set(names)
    ours = {name: getattr(gs.tensor_quant, name) for name in names if name in gs.tensor_quant.__all__}
    assert all(
        theirs is getattr(found, name) or issubclass(getattr(found, name), theirs) for name, theirs in ours.items()
    )
    with pytest.raises(AttributeError):
        _ = mtq.nothing


def test_functions_are_those_of_both_versions():
    x, amax = torch.randn(3, 5), torch.tensor(1.0)
    t = mtq.tensor_quant
    assert torch.equal(t.fake_tensor_quant(x, amax, 8, False, True), t.fake_tensor_quant(x, amax, None, 8, False, True))
    assert (GOLDEN / "modelopt" / "modelopt_current.npz").exists()  # compared in tests/tensor_quant


class Parts(nn.Module):
    """Layers by the names that configurations use."""

    def __init__(self):
        super().__init__()
        self.mlp, self.o_proj, self.lm_head = nn.Linear(128, 32), nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.lm_head(self.o_proj(self.mlp(x).relu()))


ABSENT = ("awq", "smoothquant", "svdquant")


def algorithm_of(config):
    algorithm = config["algorithm"]
    return algorithm["method"] if isinstance(algorithm, dict) else algorithm


@pytest.mark.filterwarnings("ignore:quantize. patterns")
@pytest.mark.parametrize("name", sorted(mtq.choices))
def test_configurations(name):
    torch.manual_seed(0)
    model = Parts()
    x = torch.randn(16, 128)
    plain = model(x)
    seen = []
    config = getattr(mtq.config, name)
    assert config is getattr(mtq, name)
    if str(algorithm_of(config)).startswith(ABSENT):
        with pytest.raises(RuntimeError, match="no SmoothQuant"):
            mtq.quantize(model, config, lambda m: m(x))
        assert not mtq.utils.is_quantized(model)  # refused before anything is done
        return
    if "_KV_" in name and "ROTATE" not in name or "EXPERTS" in name:
        with pytest.raises(RuntimeError, match="name no quantiser"):
            mtq.quantize(model, config, lambda m: m(x))
        return
    assert mtq.quantize(model, config, lambda m: seen.append(m(x))) is model
    y = model(x)
    assert isinstance(model.mlp, mtq.nn.QuantLinear) and isinstance(model.mlp, mtq.nn.QuantModule)
    assert not model.mlp.output_quantizer.is_enabled or "KV" in name
    assert model.lm_head.weight_quantizer.is_enabled == (name in ("NVFP4_FP8_MHA_CONFIG", "NVFP4_KV_ROTATE_CFG"))
    assert not torch.equal(y, plain) and y.isfinite().all()
    # e2m1 is off by 2^-2 at most, half of it in the mean square: of two operands in each of a few layers
    assert (y - plain).norm() < 0.5 * 2.0**-2 * 4**0.5 * plain.norm()
    static = config["algorithm"] is not None
    assert bool(seen) == static and any("_amax" in key for key in model.state_dict()) == static


def test_algorithms():
    model = nn.Sequential(nn.Linear(16, 8))
    x = torch.randn(64, 16)
    config = {**mtq.config.INT8_DEFAULT_CFG, "algorithm": {"method": "percentile", "percentile": 90.0}}
    mtq.quantize(model, config, lambda m: m(x))
    assert model[0].input_quantizer.amax < x.abs().max() * 0.9
    before = model[0].input_quantizer.amax
    assert mtq.calibrate(model, None, lambda m: m(x))[0].input_quantizer.amax is before


def test_mse_takes_the_best_multiple():
    torch.manual_seed(1)
    model, x = nn.Sequential(nn.Linear(16, 8)), torch.randn(64, 16)
    mtq.quantize(model, {**mtq.INT8_DEFAULT_CFG, "algorithm": {"method": "mse", "num_steps": 4}}, lambda m: m(x))
    q = model[0].weight_quantizer
    w, largest = model[0].weight.detach(), model[0].weight.detach().abs().amax(1, keepdim=True)
    errors = []
    for multiple in torch.linspace(0.25, 4.0, 4):
        errors.append((gs.tensor_quant.fake_tensor_quant(w, largest * multiple, 8, False, False) - w).square().sum(1))
    want = largest[:, 0] * torch.linspace(0.25, 4.0, 4)[torch.stack(errors).argmin(0)]
    assert torch.equal(q.amax[:, 0], want) and q._if_quant and not q._if_calib


def test_calibrate_of_nothing_and_of_no_algorithm():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    off = {"quant_cfg": {"default": {"enable": False}}, "algorithm": "max"}
    assert mtq.quantize(model, off, lambda m: m(torch.ones(1, 4))) is model
    for algorithm in (3, {"bins": 3}, {"method": "max", "percentile": 3}):
        with pytest.raises(RuntimeError, match="allowed"):
            mtq.calibrate(model, algorithm, lambda m: m(torch.ones(1, 4)))
