"""``modelopt.torch.quantization`` as its documentation says: quantisers set by name, looked at, registered, folded."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import gemmsim as gs
import gemmsim.compat.modelopt.torch.quantization as mtq
from gemmsim.compat.modelopt.torch.quantization.conversion import (
    set_quantizer_attribute,
    set_quantizer_attributes_full,
    set_quantizer_attributes_partial,
    set_quantizer_by_cfg,
    set_quantizer_by_cfg_context,
)
from gemmsim.compat.modelopt.torch.quantization.nn.modules.tensor_quantizer import SequentialQuantizer, TensorQuantizer

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.act, self.pool = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.MaxPool2d(2)
        self.fc, self.head = nn.Linear(72, 32), nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.fc(self.pool(self.act(self.bn(self.conv(x)))).flatten(1)))


def quantized(config=mtq.INT8_DEFAULT_CFG):
    return mtq.quantize(Net(), config, lambda m: m(X))


def enabled(model):
    return [name for name, q in model.named_modules() if isinstance(q, TensorQuantizer) and q.is_enabled]


def test_modules_become_quantised_ones_and_stay_what_they_were():
    plain = Net()
    keys = list(plain.state_dict())
    model = quantized()
    assert [k for k in model.state_dict() if "quantizer" not in k] == keys
    assert isinstance(model.pool, mtq.nn.QuantMaxPool2d) and isinstance(model.pool, nn.MaxPool2d)
    assert isinstance(model.bn, mtq.nn.QuantInputBase) and isinstance(model.conv, mtq.nn.QuantLinearConvBase)
    want = ["conv.input_quantizer", "conv.weight_quantizer", "pool.input_quantizer", "fc.input_quantizer"]
    assert enabled(model) == [*want, "fc.weight_quantizer", "head.input_quantizer", "head.weight_quantizer"]
    model.eval()
    h = functional.conv2d(
        model.conv.input_quantizer(X), model.conv.weight_quantizer(model.conv.weight), model.conv.bias
    )
    h = model.pool.input_quantizer(functional.leaky_relu(functional.batch_norm(
        h, model.bn.running_mean, model.bn.running_var, model.bn.weight, model.bn.bias)))  # fmt: skip
    h = functional.max_pool2d(h, 2).flatten(1)
    for layer in (model.fc, model.head):
        h = functional.linear(layer.input_quantizer(h), layer.weight_quantizer(layer.weight), layer.bias)
    assert torch.equal(model(X), h)
    amax = X.abs().max()
    assert model.conv.input_quantizer.amax == amax
    assert torch.equal(model.conv.input_quantizer(X), gs.tensor_quant.fake_tensor_quant(X, amax, 8, False, False))


def test_subclasses_with_the_same_forward_become_quantised_too():
    model = nn.MultiheadAttention(16, 2)
    mtq.replace_quant_module(model)
    assert isinstance(model.out_proj, mtq.nn.QuantLinear) and isinstance(
        model.out_proj, nn.modules.linear.NonDynamicallyQuantizableLinear
    )

    class Other(nn.Linear):
        def forward(self, x):
            return x

    assert Other(2, 2) not in mtq.QuantModuleRegistry and nn.Linear in mtq.QuantModuleRegistry
    assert mtq.QuantModuleRegistry.get_key(nn.Conv2d) == "nn.Conv2d" and "nn.Linear" in mtq.QuantModuleRegistry
    with pytest.raises(ValueError, match="quantisers"):
        mtq.replace_quant_module(model)


def test_switches_by_wildcard_and_by_function():
    model = quantized()
    y = model(X)
    mtq.disable_quantizer(model, "fc.*")
    assert not any(name.startswith("fc") for name in enabled(model)) and not torch.equal(model(X), y)
    mtq.enable_quantizer(model, lambda name: name in ("fc.input_quantizer", "fc.weight_quantizer"))
    assert torch.equal(model(X), y)
    with pytest.raises(NotImplementedError, match="wildcard"):
        mtq.disable_quantizer(model, 3)


def test_attributes_partly_and_whole():
    model = quantized()
    set_quantizer_attribute(model, "*weight_quantizer", {"num_bits": 4})
    q = model.fc.weight_quantizer
    assert (q.num_bits, q.axis, q.is_enabled) == (4, 0, True) and q.amax is not None
    set_quantizer_attribute(model, "*weight_quantizer", mtq.config.QuantizerAttributeConfig(num_bits=6), nn.Conv2d)
    assert (model.conv.weight_quantizer.num_bits, model.conv.weight_quantizer.axis, q.num_bits) == (6, None, 4)
    set_quantizer_attributes_partial(model, "fc.weight_quantizer", {"block_sizes": {-1: 8}})
    assert q.axis is None and q.block_sizes == {-1: 8} and q.is_static_block_quant
    set_quantizer_attributes_full(model, "fc.weight_quantizer", mtq.config.QuantizerAttributeConfig(num_bits=8, axis=0))
    assert q.block_sizes is None
    with pytest.raises(ValueError, match="QuantizerAttributeConfig"):
        set_quantizer_attributes_full(model, "*", {"num_bits": 8})
    with pytest.raises(ValueError, match="Mapping"):
        set_quantizer_attributes_partial(model, "*", mtq.config.QuantizerAttributeConfig())
    with pytest.raises(ValueError, match="list"):
        set_quantizer_attributes_partial(model, "*", [{"num_bits": 8}])
    q.num_bits = 5
    q.narrow_range = True
    assert (q.num_bits, q.narrow_range, q.axis) == (5, True, 0)


def test_a_list_of_attributes_is_a_sequence():
    blocks, e4m3 = {"num_bits": 4, "block_sizes": {-1: 8}}, {"num_bits": (4, 3), "axis": None}
    config = {"quant_cfg": {"*weight_quantizer": [blocks, e4m3], "default": {"enable": False}}, "algorithm": "max"}
    model = quantized(config)
    q = model.fc.weight_quantizer
    assert isinstance(q, SequentialQuantizer) and q.is_enabled and len(q) == 2
    w = model.fc.weight.detach()
    first = TensorQuantizer(blocks)(w)
    assert torch.equal(q(w), gs.tensor_quant.scaled_e4m3(first, w.abs().max(), None, 4, 3))
    with SequentialQuantizer.convert_to_single_quantizer(model):
        assert torch.equal(model.fc.weight_quantizer(w), first)
    assert model.fc.weight_quantizer is q and model(X).isfinite().all()
    q.disable()
    assert torch.equal(q(w), w) and not q[1].is_enabled
    with pytest.warns(UserWarning, match="1 descriptions of 2"):
        q.set_from_attribute_config([{"num_bits": 8}])
    with pytest.raises(ValueError, match="TensorQuantizer"):
        SequentialQuantizer(nn.Linear(2, 2))
    other = Net()
    mtq.replace_quant_module(other)
    set_quantizer_by_cfg(other, config["quant_cfg"])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.fc.weight_quantizer[1].amax, q[1].amax)


@pytest.mark.parametrize(
    "quant_cfg",
    [
        {"default": {"enable": False}, "*weight_quantizer": {"num_bits": 4}, "nn.Conv2d": {"*": {"enable": False}}},
        {"nn.Linear": {"*weight_quantizer": {"num_bits": 4}}, "default": {"enable": False}},
        {
            lambda name: name in ("fc.weight_quantizer", "head.weight_quantizer"): {"num_bits": 4},
            "default": {"enable": False},
        },
        [
            {"quantizer_name": "*", "enable": False},
            {"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": 4}, "parent_class": "nn.Linear"},
        ],
        [{"quantizer_path": "*", "enable": False}, {"nn.Linear": {"*weight_quantizer": {"num_bits": 4}}}],
    ],
    ids=["classes off", "class on", "function", "entries", "mixed"],
)
def test_forms_of_configurations(quant_cfg):
    model = quantized({"quant_cfg": quant_cfg, "algorithm": "max"})
    assert enabled(model) == ["fc.weight_quantizer", "head.weight_quantizer"]
    assert model.fc.weight_quantizer.num_bits == 4 and model.fc.weight_quantizer.amax is not None


@pytest.mark.parametrize(
    "quant_cfg",
    [3, [3], {"*": {}}, {"*": {"enable": True}}, {"nn.Linear": 3}, [{"quantizer_name": "*"}], {3: {"num_bits": 8}},
     [{"quantizer_name": "*", "enable": True, "bits": 4}]],
)  # fmt: skip
def test_what_is_no_configuration(quant_cfg):
    with pytest.raises(ValueError, match="allowed"):
        set_quantizer_by_cfg(quantized(), quant_cfg)


def test_a_configuration_for_a_while():
    model = quantized()
    y, kept = model(X), copy.deepcopy(model.state_dict())
    with set_quantizer_by_cfg_context(
        model, {"*weight_quantizer": {"num_bits": 2}, "*input_quantizer": {"enable": False}}
    ):
        assert model.fc.weight_quantizer.num_bits == 2 and not model.fc.input_quantizer.is_enabled
        assert not torch.equal(model(X), y)
    assert torch.equal(model(X), y) and all(
        torch.equal(model.state_dict()[k], v) for k, v in kept.items() if "amax" in k
    )
    with pytest.raises(ZeroDivisionError), set_quantizer_by_cfg_context(model, {"*": {"enable": False}}):
        raise ZeroDivisionError
    assert torch.equal(model(X), y)
    with pytest.raises(ValueError, match="list"), set_quantizer_by_cfg_context(model, {"*": [{"num_bits": 8}]}):
        pass


def test_summary(capsys, tmp_path):
    model = quantized()
    mtq.print_quant_summary(model)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "15 TensorQuantizers found in model" and len(lines) == 16
    assert lines[0].split()[0] == "conv.input_quantizer" and "8 bit" in lines[0]
    mtq.print_quant_summary(model, tmp_path)
    assert (tmp_path / ".quant_summary.txt").read_text().splitlines() == lines


def test_folded_weights():
    model = quantized().eval()
    y, w = model(X), model.fc.weight.detach().clone()
    with mtq.temporarily_fold_weights(model):
        assert not model.fc.weight_quantizer.is_enabled and torch.equal(model(X), y)
        assert not torch.equal(model.fc.weight, w)
    assert torch.equal(model.fc.weight, w) and model.fc.weight_quantizer.amax is not None and torch.equal(model(X), y)
    mtq.fold_weight(model)
    assert torch.equal(model(X), y) and not hasattr(model.fc.weight_quantizer, "_amax")
    assert model.fc.input_quantizer.is_enabled


def test_amaxes_after_calibration():
    model = quantized()
    before = model.fc.input_quantizer.amax.clone()
    assert mtq.postprocess_amax(model, "*input_quantizer", lambda amax: amax * 2) is model
    assert model.fc.input_quantizer.amax == 2 * before
    with pytest.raises(ValueError, match="wildcard"):
        mtq.postprocess_amax(model, 3, abs)


def test_weights_alone_need_no_data():
    model = mtq.quantize(Net(), mtq.INT8_WEIGHT_ONLY_CFG)
    w = model.fc.weight.detach()
    assert torch.equal(
        model.fc.weight_quantizer.amax, w.abs().amax(1, keepdim=True)
    ) and not mtq.config.need_calibration(mtq.INT8_WEIGHT_ONLY_CFG)
    assert mtq.config.need_calibration(mtq.INT8_DEFAULT_CFG) and not mtq.config.need_calibration(
        mtq.MXFP8_DEFAULT_CFG | {"quant_cfg": {}}
    )


def test_calibration_leaves_the_modes_and_asks_for_the_model():
    model = Net().train()
    model.fc.eval()
    with pytest.warns(DeprecationWarning, match="without arguments"):
        mtq.quantize(model, mtq.config.QuantizeConfig(**mtq.FP8_DEFAULT_CFG), lambda: model(X))
    assert model.training and not model.fc.training and model.bn.running_mean.eq(0).all()
    with pytest.raises(AssertionError, match="NaN"):
        mtq.calibrate(model, "max", lambda m: m(X * float("nan")))
    assert model.conv.input_quantizer._if_quant and not model.conv.input_quantizer._if_calib


class QuantLayerNorm(nn.LayerNorm):
    def _setup(self):
        self.input_quantizer, self.weight_quantizer = TensorQuantizer(), TensorQuantizer()

    def forward(self, x):
        weight = self.weight_quantizer(self.weight)
        return functional.layer_norm(self.input_quantizer(x), self.normalized_shape, weight, self.bias, self.eps)


def test_a_registered_class():
    with pytest.raises(ValueError, match="_setup"):
        mtq.register(nn.LayerNorm, nn.LayerNorm)
    mtq.register(original_cls=nn.LayerNorm, quantized_cls=QuantLayerNorm)
    try:
        model = mtq.quantize(nn.Sequential(nn.LayerNorm(8)), mtq.FP8_DEFAULT_CFG, lambda m: m(X))
        assert isinstance(model[0], QuantLayerNorm) and model[0].weight_quantizer.amax == 1
    finally:
        mtq.unregister(nn.LayerNorm)
    assert nn.LayerNorm not in mtq.QuantModuleRegistry
    with pytest.raises(KeyError, match=r"nn\.Linear"):
        mtq.unregister(nn.LayerNorm)


def test_a_registered_class_by_the_base():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.3, 1.0]))

        def forward(self, x):
            return x * self.weight

    mtq.register(Scale, mtq.nn.QuantLinearConvBase)
    try:
        model = mtq.quantize(nn.Sequential(Scale()), mtq.INT8_DEFAULT_CFG | {"algorithm": None})
        w = model[0].weight.detach()
        assert torch.equal(w, torch.tensor([0.3, 1.0]))  # quantised inside forward alone
        x = torch.tensor([[0.5, 2.0]])
        assert torch.equal(model(x), model[0].input_quantizer(x) * model[0].weight_quantizer(w))
        mtq.fold_weight(model)
        assert not model[0].weight_quantizer.is_enabled
    finally:
        mtq.unregister(Scale)


def test_quantised_modules_by_themselves():
    layer = mtq.nn.QuantLinear(8, 4, quant_desc_weight={"num_bits": 4, "axis": 0})
    x = torch.randn(3, 8)
    assert layer.weight_quantizer.num_bits == 4 and not layer.output_quantizer.is_enabled
    want = functional.linear(layer.input_quantizer(x), layer.weight_quantizer(layer.weight), layer.bias)
    assert torch.equal(layer(x), want) and mtq.nn.Linear is mtq.nn.QuantLinear
    conv = mtq.nn.Conv2d(3, 4, 3)
    assert conv(X).isfinite().all() and conv.weight_quantizer.axis == 0
    pool = mtq.nn.QuantAvgPool2d(2, quant_desc_input={"num_bits": 4})
    assert (
        torch.equal(pool(X), functional.avg_pool2d(pool.input_quantizer(X), 2)) and pool.input_quantizer.num_bits == 4
    )
    assert TensorQuantizer(quant_attribute_cfg={"num_bits": 4}).num_bits == 4
    layer.fold_weight()
    assert not layer.weight_quantizer.is_enabled


def test_utilities():
    u, x = mtq.utils, X[0]
    assert u.reduce_amax(x) == x.abs().max() and u.reduce_amax(x, axis=(1, 2)).shape == (3, 1, 1)
    assert u.reduce_amax(x, axis=(0, 1, 2)).dim() == 0 and u.reduce_sum(x, 0, keepdims=False).shape == (8, 8)
    assert u.convert_quantization_axis_to_reduce_axis(x, -1) == [0, 1]
    assert torch.equal(u.reduce_block_amax(x, {-1: 4, -2: 2}), x.abs().reshape(3, 4, 2, 2, 4).amax((2, 4)))
    assert u.reduce_block_padding(x, {-1: 3}).shape == (3, 8, 9)
    with pytest.raises(ValueError, match="divisor"):
        u.reduce_block_amax(x, {-1: 3})
    model = quantized()
    assert u.is_quantized(model) and u.is_quantized_linear(model.fc) and not u.is_quantized_linear(model.conv)
    assert list(u.weight_attr_names(model.fc)) == ["weight"]
    both = mtq.update_quant_cfg_with_kv_cache_quant(mtq.MXFP8_DEFAULT_CFG, mtq.FP8_KV_CFG["quant_cfg"])
    assert (
        "*[kv]_bmm_quantizer" in both["quant_cfg"]
        and both["algorithm"] == "max"
        and mtq.MXFP8_DEFAULT_CFG["algorithm"] is None
    )
    f = gs.compat.modelopt.torch.quantization.nn.functional
    y = f.normalized_hadamard_transform(torch.eye(4))
    assert torch.equal(y.abs(), torch.full((4, 4), 0.5)) and torch.equal(y @ y.T, torch.eye(4))
    leaf, low, high = (
        torch.tensor([-2.0, 0.5, 3.0], requires_grad=True),
        torch.tensor(-1.0, requires_grad=True),
        torch.tensor(1.0, requires_grad=True),
    )
    f.clip(leaf, low, high).sum().backward()
    assert leaf.grad.tolist() == [0, 1, 0] and low.grad == 1 and high.grad == 1


def test_old_paths_are_the_same_modules():
    import gemmsim.compat.modelopt as old
    from gemmsim.compat.modelopt.config import FP8_DEFAULT_CFG

    assert (
        FP8_DEFAULT_CFG is mtq.FP8_DEFAULT_CFG
        and old.quantize is mtq.quantize
        and old.nn.QuantLinear is mtq.nn.QuantLinear
    )
    assert set(mtq.__all__) <= set(dir(old))
    with pytest.raises(AttributeError):
        _ = old.auto_quantize


def test_models_in_files(tmp_path):
    import gemmsim.compat.modelopt.torch.opt as mto

    blocks, e4m3 = {"num_bits": 4, "block_sizes": {-1: 8}}, {"num_bits": (4, 3), "axis": None}
    config = {"quant_cfg": {"*weight_quantizer": [blocks, e4m3], "*input_quantizer": e4m3}, "algorithm": "max"}
    model = quantized(config).eval()
    mtq.disable_quantizer(model, "head*")
    mto.save(model, tmp_path / "model.pt")
    found = mto.restore(Net(), tmp_path / "model.pt").eval()
    assert torch.equal(found(X), model(X)) and enabled(found) == enabled(model)
    assert mto.modelopt_state(found) == mto.modelopt_state(model)
    assert mto.restore_from_modelopt_state(Net(), mto.modelopt_state(Net())).conv.__class__ is nn.Conv2d
    amaxes = mtq.utils.get_quantizer_state_dict(model)
    mtq.postprocess_amax(found, "*", lambda amax: amax * 2)
    mtq.utils.set_quantizer_state_dict(found, amaxes)
    assert torch.equal(found(X), model(X))
    with pytest.raises(ValueError, match="one side alone"):
        mto.restore_from_modelopt_state(nn.Sequential(nn.Linear(2, 2)), mto.modelopt_state(model))
    with pytest.raises(ValueError, match="not ModelOpt's"):
        mto.restore_from_modelopt_state(Net(), {"modelopt_version": "0.40.0"})


def test_quantisers_of_any_class_are_called_inside_pytorchs_own_layers():
    """PyTorch's encoder layers read the weights of their children in evaluation, unless one of them is emulated."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    mtq.register(nn.LayerNorm, QuantLayerNorm)
    try:
        model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        plain = model(x)
        config = {"quant_cfg": {"norm1.*": {"num_bits": 3}, "default": {"enable": False}}, "algorithm": "max"}
        mtq.quantize(model, config, lambda m: m(x))
    finally:
        mtq.unregister(nn.LayerNorm)
    y = model(x)
    with torch.no_grad():
        assert torch.equal(model(x), y) and not torch.equal(y, plain)
    with torch.inference_mode():
        assert torch.equal(model(x), y)
    assert model.norm1.input_quantizer.amax is not None
