"""Every converter: layers whose weight is computed by hooks or parametrisations, and errors half way."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import gemmsim as gs
from gemmsim.compat import torchao
from gemmsim.compat.modelopt.torch import opt
from gemmsim.compat.modelopt.torch import quantization as mtq
from gemmsim.compat.torchao.prototype.mx_formats import inference_workflow, mx_linear
from gemmsim.compat.torchmx import quant_api
from gemmsim.compat.torchmx.config import MXConfig, QLinearConfig
from gemmsim.compat.torchmx.layers.mx_linear import MXInferenceLinear

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TORCHMX = QLinearConfig(MXConfig("float8_e4m3", 32), MXConfig("float8_e4m3", 32))
E4M3 = torch.float8_e4m3fn

PREPARE = torchao.NVFP4DynamicActivationNVFP4WeightConfig(step=inference_workflow.QuantizationStep.PREPARE)

#: Converters that take a layer's weight over.
CONVERTERS = {
    "mx.swap_linear_with_mx_linear": lambda m: gs.mx.swap_linear_with_mx_linear(m, "mxfp8_e4m3"),
    "mx.swap_linear_with_mx_inference_linear": lambda m: gs.mx.swap_linear_with_mx_inference_linear(m, "mxfp8_e4m3"),
    "mx.quantize_, training": lambda m: gs.mx.quantize_(m, gs.mx.MXLinearConfig()),
    "mx.quantize_, inference": lambda m: gs.mx.quantize_(m, gs.mx.MXInferenceConfig()),
    "torchao.swap_linear_with_mx_linear": lambda m: torchao.swap_linear_with_mx_linear(m, E4M3, 32),
    "torchao.swap_linear_with_mx_inference_linear": lambda m: torchao.swap_linear_with_mx_inference_linear(m, E4M3, 32),
    **{
        f"torchao.quantize_, {type(config).__name__}": lambda m, config=config: torchao.quantize_(m, config)
        for config in (
            torchao.MXDynamicActivationMXWeightConfig(),
            torchao.MXLinearConfig(),
            torchao.MXFP8TrainingOpConfig(),
            torchao.NVFP4WeightOnlyConfig(),
            torchao.NVFP4DynamicActivationNVFP4WeightConfig(),
        )
    },
    "torchao.quantize_, observed": lambda m: torchao.quantize_(m, PREPARE),
    "torchmx.quantize_linear_": lambda m: quant_api.quantize_linear_(m, TORCHMX),
}
COMPUTED = {
    "weight_norm": (weight_norm, "WeightNorm"),
    "spectral_norm": (spectral_norm, "SpectralNorm"),
    "prune": (lambda layer: prune.l1_unstructured(layer, "weight", 0.5), "L1Unstructured"),
    "prune the bias": (lambda layer: prune.l1_unstructured(layer, "bias", 0.5), "bias is computed by a hook"),
    "parametrized": (parametrizations.weight_norm, "parametrised"),
}
INT8 = {"*weight_quantizer": {"num_bits": 8, "axis": 0}, "*input_quantizer": {"num_bits": 8, "axis": None}}


class Model(nn.Module):
    def __init__(self, second):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(64, 64), second, nn.Linear(64, 64)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


def values(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def kinds(model):
    return {name: (type(m), type(m._parameters.get("weight"))) for name, m in model.named_modules()}


def stale(make):
    """A layer whose parameters changed after its hook ran."""
    torch.manual_seed(0)
    layer = make(nn.Linear(64, 64)).bfloat16()
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(3)
    return layer


@pytest.mark.parametrize("computed", COMPUTED)
@pytest.mark.parametrize("name", CONVERTERS)
def test_computed_weights_are_left_and_reported(name, computed, caplog):
    make, word = COMPUTED[computed]
    model = Model(stale(make)).bfloat16().eval()
    second, before = model.second, kinds(model)
    x = values(3, 64)
    want = stale(make).eval()(x)
    with caplog.at_level(logging.INFO, "gemmsim"):
        CONVERTERS[name](model)
    assert model.second is second and torch.equal(model.second(x), want)
    after = kinds(model)
    assert {n for n in after if after[n] != before[n]} == {"first", "third"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "2 converted, 1 left" in record.message
    (line,) = [line for line in record.message.splitlines() if line.startswith("  second")]
    assert word in line and "stays native" in line
    model(x)


@pytest.mark.parametrize("computed", COMPUTED)
@pytest.mark.parametrize(
    "make",
    [
        gs.mx.MXLinear.from_float,
        gs.mx.MXInferenceLinear.from_float,
        lambda m: torchao.MXLinear.from_float(m, E4M3, 32),
        lambda m: torchao.MXInferenceLinear.from_float(m, E4M3, 32),
        inference_workflow.NVFP4ObservedLinear.from_float,
        lambda m: MXInferenceLinear.from_float(m, TORCHMX),
        quant_api.mx_dynamic_activation_mx_weights(),
    ],
)
def test_single_layers_with_computed_weights_are_refused(make, computed):
    layer = COMPUTED[computed][0](nn.Linear(64, 64))
    kind = type(layer)
    with pytest.raises(gs.nn.ComputedWeightError, match=r"allowed: layers whose weight and bias are parameters"):
        make(layer)
    assert type(layer) is kind


#: Converters that make another layer, or another class of it.
EXCHANGING = {
    **{
        name: convert
        for name, convert in CONVERTERS.items()
        if not name.startswith("torchao.quantize_, MXDynamic") and not name.startswith("torchao.quantize_, NVFP4")
    },
    "tensor_quant.quantize_": lambda m: gs.tensor_quant.quantize_(m, INT8),
    "modelopt.quantize": lambda m: mtq.quantize(m, mtq.INT8_DEFAULT_CFG, lambda made: made(values(3, 64))),
}


def own(layer):
    """A layer with a forward of its own, which calls that of its class."""
    class_forward = layer.forward
    layer.forward = lambda x: class_forward(x) * 2
    return layer


@pytest.mark.parametrize("name", EXCHANGING)
def test_layers_with_a_forward_of_their_own_are_left_and_reported(name, caplog):
    torch.manual_seed(0)
    model = Model(own(nn.Linear(64, 64))).bfloat16().eval()
    second, before, x = model.second, kinds(model), values(3, 64)
    want = second(x)
    with caplog.at_level(logging.INFO, "gemmsim"):
        EXCHANGING[name](model)
    assert model.second is second and torch.equal(model.second(x), want)
    after = kinds(model)
    assert {n for n in before if after[n] != before[n]} == {"first", "third"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "2 converted, 1 left" in record.message
    (line,) = [line for line in record.message.splitlines() if line.startswith("  second")]
    assert "its own forward" in line and "stays native" in line
    model(x)


@pytest.mark.parametrize("name", sorted(set(CONVERTERS) - set(EXCHANGING)))
def test_encoded_weights_are_what_a_forward_of_its_own_multiplies(name):
    torch.manual_seed(0)
    layer = own(nn.Linear(64, 64).bfloat16())
    model = nn.Sequential(layer).eval().requires_grad_(False)
    plain = nn.Sequential(nn.Linear(64, 64, dtype=torch.bfloat16)).eval().requires_grad_(False)
    plain.load_state_dict(model.state_dict())
    CONVERTERS[name](model)
    CONVERTERS[name](plain)
    x = values(3, 64)
    assert model[0] is layer and torch.equal(model(x), plain(x) * 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: gs.nn.QLinear.from_float(m, "e4m3 : fp16"),
        lambda m: gs.nn.QMultiheadAttention.from_float(m),
        lambda m: gs.nn.QLayerNorm.from_float(m),
        lambda m: gs.nn.QSoftmax.from_float(m),
        lambda m: gs.nn.QLSTM.from_float(m),
        lambda m: torchao.MXLinear.from_float(m, E4M3, 32),
    ],
    ids=["Linear", "MultiheadAttention", "LayerNorm", "Softmax", "LSTM", "torchao"],
)
def test_single_modules_with_a_forward_of_their_own_are_refused(make, request):
    name = request.node.callspec.id
    arguments = {"MultiheadAttention": (4, 2), "LayerNorm": (4,), "Softmax": (-1,), "LSTM": (4, 4)}
    module = own(getattr(nn, name if name != "torchao" else "Linear")(*arguments.get(name, (32, 32))))
    kind = type(module)
    with pytest.raises(TypeError, match=r"it has its own forward(.|\n)*Convert it before"):
        make(module)
    assert type(module) is kind


def test_a_converted_model_computes_products_of_forwards_of_their_own():
    torch.manual_seed(0)
    layer = own(nn.Linear(8, 8, bias=False))
    model, x = nn.Sequential(layer), values(3, 8, dtype=torch.float32)
    want = gs.qlinear(x, layer.weight, None, "e4m3 : fp16") * 2
    assert torch.equal(gs.convert(model, "e4m3 : fp16")(x), want)


def broken():
    """Two layers that every converter takes, and one with a weight of integers, which none does."""
    torch.manual_seed(0)
    model = Model(nn.Linear(64, 64)).bfloat16()
    model.third.weight = nn.Parameter(torch.zeros(64, 64, dtype=torch.int8), requires_grad=False)
    return model


#: Those that read the weight; the others share it with the layer that they make, and find nothing wrong.
READERS = [
    name
    for name in CONVERTERS
    if "inference" in name or "Dynamic" in name or "NVFP4Weight" in name or name.startswith("torchmx")
]


@pytest.mark.parametrize("name", READERS)
def test_errors_leave_the_model_as_it_was(name):
    model = broken()
    before = {name: dict(vars(m)) for name, m in model.named_modules()}
    modules = dict(model.named_modules())
    with pytest.raises((TypeError, AssertionError, RuntimeError), match=r"^third: "):
        CONVERTERS[name](model)
    assert dict(model.named_modules()) == modules
    assert all(type(m) is nn.Linear for m in model.children())
    assert {name: dict(vars(m)) for name, m in model.named_modules()} == before
    model.first(values(2, 64))


def test_filters_and_functions_that_raise_leave_the_model_as_it_was():
    def fails(module, name):
        if name == "third":
            raise LookupError(name)
        return isinstance(module, nn.Linear)

    def make(module):
        if module.out_features == 7:
            raise LookupError("seven")
        module.__class__ = torchao.MXLinear
        return module

    for run in (
        lambda m: gs.mx.swap_linear_with_mx_linear(m, "mxfp4", fails),
        lambda m: torchao.quantize_(m, torchao.MXLinearConfig(), fails),
        lambda m: torchao.swap_linear_with_mx_linear(m, E4M3, 32, fails),
        lambda m: torchao.quantize_(m, make),
        lambda m: mx_linear.replace_with_custom_fn_if_matches_filter(m, make, lambda m, n: isinstance(m, nn.Linear)),
    ):
        model = Model(nn.Linear(64, 64))
        model.third = nn.Linear(64, 7)
        with pytest.raises(LookupError):
            run(model)
        assert all(type(m) is nn.Linear for m in model.children())


def test_a_model_is_back_on_its_device():
    model = broken()
    with pytest.raises(AssertionError):
        torchao.quantize_(model, torchao.MXDynamicActivationMXWeightConfig(), device="meta")
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert model.first.weight.isfinite().all()


def test_quantised_layers_take_weights_as_their_calls_compute_them():
    for make, _ in list(COMPUTED.values())[:3]:
        for training in (False, True):
            model = nn.Sequential(stale(make).float()).train(training)
            want = nn.Sequential(stale(make).float()).train(training)
            x = values(5, 64, dtype=torch.float32)
            gs.tensor_quant.quantize_(model, INT8)
            state = {key: t.clone() for key, t in model.state_dict().items()}
            gs.tensor_quant.calibrate(model, lambda m, x=x: m[0].input_quantizer(x))
            assert all(torch.equal(model.state_dict()[key], t) for key, t in state.items())
            want(x)  # which computes the weight
            assert torch.equal(model[0].weight_quantizer.amax.flatten(), want[0].weight.detach().abs().amax(1))


def test_modelopt_takes_weights_as_their_calls_compute_them():
    config = {"quant_cfg": INT8, "algorithm": "max"}
    for make in (weight_norm, parametrizations.weight_norm):
        model, want = (nn.Sequential(stale(make).float()) for _ in range(2))
        mtq.quantize(model, config)  # weights alone
        want(torch.zeros(1, 64))
        amax = want[0].weight.detach().abs().amax(1)
        assert torch.equal(model[0].weight_quantizer.amax.flatten(), amax)
        before = {key: t.clone() for key, t in model.state_dict().items()}
        with pytest.raises(gs.nn.ComputedWeightError, match=r"^0: fold_weight of a"):
            mtq.fold_weight(model)
        with pytest.raises(gs.nn.ComputedWeightError), mtq.temporarily_fold_weights(model):
            pass
        assert all(torch.equal(model.state_dict()[key], t) for key, t in before.items())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))

    def forward(self, x):
        return x @ self.weight.T


def test_modules_of_ones_own_see_quantised_weights_of_hooks():
    class QuantScaled(mtq.nn.modules.quant_module.QuantLinearConvBase):
        pass

    mtq.register(Scaled, QuantScaled)
    try:
        plain, hooked = nn.Sequential(Scaled()), nn.Sequential(weight_norm(Scaled(), dim=None))
        with torch.no_grad():
            hooked[0].weight_g.mul_(2)
        for model in (plain, hooked):
            mtq.quantize(model, {"quant_cfg": {"*weight_quantizer": {"num_bits": 3}}, "algorithm": "max"})
            mtq.disable_quantizer(model, "*input_quantizer")
        eye = torch.eye(4)
        assert torch.equal(plain(eye).T, gs.tensor_quant.fake_tensor_quant(plain[0].weight.detach(), torch.ones(()), 3))
        seen = hooked(eye).T
        assert seen.unique().numel() <= 7 and not torch.equal(seen, hooked[0].weight)
        assert hooked[0].weight.requires_grad
        with pytest.raises(gs.nn.ComputedWeightError, match=r"^0: quantize of a ParametrizedScaled"):
            mtq.quantize(nn.Sequential(parametrizations.weight_norm(Scaled())), {"quant_cfg": INT8, "algorithm": None})
    finally:
        mtq.unregister(Scaled)


def test_quantisers_are_put_into_a_model_all_or_none():
    fails = {"*weight_quantizer": {"num_bits": 8}, "nothing.here": {"num_bits": 8}}
    model = Model(nn.Linear(64, 64))
    with pytest.raises(gs.tensor_quant.DescriptorError, match="name no quantiser"):
        gs.tensor_quant.quantize_(model, fails)
    assert all(type(m) is nn.Linear for m in model.children()) and not list(model.first.children())
    off = {"*": {"enable": False}}
    for config in (
        {"quant_cfg": {**INT8, "*_quantizer": {"enable": False}}, "algorithm": "max"},
        {"quant_cfg": {"*weight_quantizer": {"num_bits": 8, "axis": 5}, **off}, "algorithm": "max"},
    ):
        with pytest.raises(mtq.NothingQuantizedError):
            mtq.quantize(model, config)
        assert all(type(m) is nn.Linear for m in model.children())

    def loop(m):
        m(torch.full((2, 64), torch.nan))

    with pytest.raises(gs.tensor_quant.CalibrationDataError):
        mtq.quantize(model, {"quant_cfg": INT8, "algorithm": "max"}, loop)
    assert all(type(m) is nn.Linear for m in model.children()) and model.training


def test_calibration_gives_all_amaxes_or_none():
    model = Model(nn.Linear(64, 64))
    gs.tensor_quant.quantize_(model, INT8)
    x = values(5, 64, dtype=torch.float32)
    gs.tensor_quant.calibrate(model, [x])
    before = {key: t.clone() for key, t in model.state_dict().items()}
    calibrators = [q._calibrator for q in model.modules() if isinstance(q, gs.tensor_quant.TensorQuantizer)]
    with pytest.raises(gs.tensor_quant.CalibrationDataError):
        gs.tensor_quant.calibrate(model, [x * 3, x * torch.nan], "percentile")
    model.third.weight.data.fill_(torch.nan)
    with pytest.raises(gs.tensor_quant.CalibrationDataError, match=r"^third\.weight_quantizer: "):
        gs.tensor_quant.calibrate(model, [x * 3])
    assert [q._calibrator for q in model.modules() if isinstance(q, gs.tensor_quant.TensorQuantizer)] == calibrators
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(t, before[key]) for key, t in after.items() if key != "third.weight")


def test_attributes_and_amaxes_of_quantisers_are_set_on_all_or_none():
    model = mtq.quantize(Model(nn.Linear(64, 64)), {"quant_cfg": INT8, "algorithm": "max"})
    before = {name: str(q) for name, q in model.named_modules() if name.endswith("quantizer")}
    calls = []

    def twice(amax):
        calls.append(amax)
        return amax * 2 if len(calls) < 3 else torch.ones(7)

    with pytest.raises((ValueError, RuntimeError), match=r"^third.weight_quantizer: "):
        mtq.postprocess_amax(model, "*weight_quantizer", twice)
    model.third.weight_quantizer = mtq.nn.SequentialQuantizer(mtq.nn.TensorQuantizer())
    kept = {name: str(q) for name, q in model.named_modules() if name.endswith("quantizer")}
    with pytest.raises(gs.tensor_quant.DescriptorError):
        mtq.set_quantizer_attribute(model, "*weight_quantizer", {"num_bits": 8, "no_such_field": 1})
    with pytest.raises(gs.tensor_quant.DescriptorError):
        cfg = {"*input_quantizer": {"num_bits": 4}, "*weight_quantizer": {"num_bits": 4, "no_such_field": 1}}
        mtq.set_quantizer_by_cfg(model, cfg)
    assert {name: str(q) for name, q in model.named_modules() if name.endswith("quantizer")} == kept
    assert {key: before[key] for key in before if "third" not in key} == {
        key: kept[key] for key in before if "third" not in key
    }


def test_a_state_is_restored_as_a_whole_or_not():
    source = mtq.quantize(Model(nn.Linear(64, 64)), {"quant_cfg": INT8, "algorithm": "max"})
    state = opt.modelopt_state(source)
    other = nn.Sequential(nn.Linear(64, 64))
    with pytest.raises(gs.tensor_quant.DescriptorError, match="on one side alone"):
        opt.restore_from_modelopt_state(other, state)
    assert type(other[0]) is nn.Linear


def test_hooks_stay_on_exchanged_layers():
    for name, convert in CONVERTERS.items():
        model, seen = Model(nn.Linear(64, 64)).bfloat16(), []
        model.first.register_forward_pre_hook(lambda module, args, seen=seen: seen.append("before"))
        model.first.register_forward_hook(lambda module, args, out, seen=seen: seen.append("after"))
        convert(model)
        model(values(2, 64))
        assert seen == ["before", "after"], name


def test_a_forward_of_the_instance_is_left():
    model = Model(nn.Linear(64, 64))
    model.second.forward = lambda x: x * 2  # as packages do that wrap layers in place
    gs.mx.swap_linear_with_mx_linear(model, report=lambda table: None)
    x = values(2, 64, dtype=torch.float32)
    assert torch.equal(model.second(x), x * 2) and type(model.first) is gs.mx.MXLinear


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["swap_linear_with_mx_linear", "swap_linear_with_mx_inference_linear"])
def test_modules_of_torchscript_are_left(name):
    scripted = torch.jit.script(nn.Sequential(nn.Linear(32, 32), nn.ReLU()))
    model = nn.Sequential(nn.Linear(32, 32), scripted)
    getattr(gs.mx, name)(model, "mxfp8_e4m3")
    assert type(model[0]).__name__.startswith("MX") and model[1] is scripted
