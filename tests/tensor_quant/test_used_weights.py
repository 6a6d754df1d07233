"""Weights in calibration and in captures: those that the calls use, whoever sets them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import gemmsim.compat.modelopt.torch.quantization as mtq
from gemmsim import tensor_quant as tq

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
WEIGHTS = {"*weight_quantizer": {"num_bits": 8, "axis": None}}


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Around(nn.Module):
    """A layer whose weight is a plain attribute, stale between calls; somebody around it sets it before each."""

    def __init__(self, how, plain=True):
        super().__init__()
        torch.manual_seed(0)
        self.how, self.fc = how, nn.Linear(8, 6)
        self.base = nn.Parameter(self.fc.weight.detach().clone())
        if plain:
            del self.fc.weight
            self.fc.weight = self.base.detach() * 1000
        if how == "hook of the parent":
            self.register_forward_pre_hook(lambda module, args: self.put())
        if how == "hook of the layer":
            self.fc.register_forward_pre_hook(lambda module, args: self.put())

    def put(self):
        self.fc.weight = self.base * 2

    def forward(self, x):
        if self.how == "forward":
            self.put()
        if self.how == "new parameter":
            self.fc.weight = nn.Parameter(self.base.detach() * 2)
        if self.how == "in place":
            self.fc.weight.data.copy_(self.base * 2)
        return self.fc(x)


HOWS = ["forward", "hook of the parent", "hook of the layer", "new parameter", "in place"]


def around(how):
    return Around(how, plain=how not in ("new parameter", "in place"))


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("how", HOWS)
def test_the_weight_that_the_call_uses_is_calibrated(how, method):
    def calibrated(model, batches):
        tq.quantize_(model, WEIGHTS)
        tq.calibrate(model, batches, method)
        return model.get_submodule("fc").weight_quantizer.amax

    plain = nn.Module()
    plain.fc, plain.forward = nn.Linear(8, 6), lambda x: plain.fc(x)
    plain.fc.weight = nn.Parameter(around(how).base.detach() * 2)
    want = calibrated(plain, [data(4, 8)])
    assert torch.equal(calibrated(around(how), [data(4, 8)]), want)
    assert torch.equal(calibrated(around(how), [data(4, 8, seed=i) for i in range(3)]), want)


@pytest.mark.parametrize("method", ["max", "percentile"])
def test_weights_that_change_are_all_taken_in(method):
    class Growing(Around):
        def put(self):
            self.times = getattr(self, "times", 0) + 1
            self.fc.weight = self.base * self.times

    model = tq.quantize_(Growing("forward"), WEIGHTS)
    largest = model.base.abs().max()
    tq.calibrate(model, [data(4, 8)] * 3, method, **({"percentile": 100} if method == "percentile" else {}))
    found = model.fc.weight_quantizer.amax
    assert found == largest * 3 if method == "max" else found > largest * 2


@pytest.mark.parametrize("write", ["data", "in place"])
def test_weights_that_are_written_to_between_calls_are_all_taken_in(write):
    class Written(Around):
        def forward(self, x):
            out = self.fc(x)
            (self.fc.weight.data if write == "data" else self.fc.weight).mul_(2)
            return out

    for method in ("max", "percentile") if write == "in place" else ("max",):
        model = tq.quantize_(Written("nobody", plain=False), WEIGHTS)
        tq.calibrate(model, [data(4, 8)] * 3, method, **({"percentile": 100} if method == "percentile" else {}))
        assert model.fc.weight_quantizer.amax > model.base.abs().max() * 3


def test_histograms_take_a_weight_in_once():
    for make in (lambda layer: layer, weight_norm):
        model = tq.quantize_(nn.Sequential(make(nn.Linear(8, 6))), WEIGHTS)
        tq.calibrate(model, [data(4, 8, seed=i) for i in range(3)], "percentile")
        assert model[0].weight_quantizer._calibrator.calib_hist.sum() == 48


def test_weights_of_layers_that_no_batch_reaches():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle, self.plain = (nn.Linear(8, 8) for _ in range(3))
            weight_norm(self.idle)
            weight = self.plain.weight.detach()
            del self.plain.weight
            self.plain.weight = weight

        def forward(self, x):
            return self.used(x)

    model = tq.quantize_(Experts(), WEIGHTS)
    with pytest.raises(tq.CalibrationError, match=r"nothing was collected by plain\.weight_quantizer;"):
        tq.calibrate(model, [data(4, 8)])
    tq.calibrate(model, [data(4, 8)], unreached="keep")
    assert model.idle.weight_quantizer.amax == model.idle.weight.abs().max()
    assert model.plain.weight_quantizer.amax is None
    assert not any(
        q._forward_pre_hooks.keys() - {-0x6E6F} for q in model.modules() if isinstance(q, tq.TensorQuantizer)
    )


def test_spectral_norm_takes_the_steps_of_its_calls_alone():
    torch.manual_seed(0)
    model, twin = (nn.Sequential(spectral_norm(nn.Linear(8, 6))) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    tq.calibrate(tq.quantize_(model, WEIGHTS), [data(4, 8)] * 2)
    seen = []
    twin[0].register_forward_hook(lambda layer, *rest: seen.append(layer.weight.detach().abs().max()))
    with torch.no_grad():
        for _ in range(2):
            twin(data(4, 8))
    assert model[0].weight_quantizer.amax == max(seen) and torch.equal(model[0].weight_u, twin[0].weight_u)


def test_without_data_a_plain_attribute_is_refused():
    model = Around("forward")
    with pytest.raises(TypeError, match="its weight is no parameter, and the code around the layer may set it"):
        mtq.quantize(model, mtq.INT8_DEFAULT_CFG)
    mtq.quantize(model, mtq.INT8_DEFAULT_CFG, lambda made: made(data(4, 8)))
    assert torch.equal(model.fc.weight_quantizer.amax.flatten(), (model.base * 2).abs().amax(1))


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrised_after_the_conversion(norm):
    model = tq.quantize_(nn.Sequential(nn.Linear(8, 6)), WEIGHTS).eval()
    norm(model[0])
    with torch.no_grad():
        next(model.parameters()).mul_(3)
    tq.calibrate(model, [data(4, 8)] * 2)
    assert model[0].weight_quantizer.amax == model[0].weight.abs().max()
