"""Weights that hooks and parametrisations compute: read as the next call finds them, and nothing changed by the look."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import gemmsim as gs
from gemmsim.nn.weights import computed_parameter, current_weight, refuse_computed, take_hooks

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def pruned(layer):
    prune.random_unstructured(layer, "weight", 0.5)
    return prune.l1_unstructured(layer, "weight", 0.5)  # the second makes a container of both


MADE = {
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "prune": pruned,
    "parametrized weight_norm": parametrizations.weight_norm,
    "parametrized spectral_norm": parametrizations.spectral_norm,
    "dropout": lambda layer: nn.utils.parametrize.register_parametrization(layer, "weight", nn.Dropout(0.5)) or layer,
}
OLD = ("weight_norm", "spectral_norm", "prune")


def made(name):
    torch.manual_seed(0)
    layer = MADE[name](nn.Linear(12, 7))
    with torch.no_grad():  # as an optimizer or load_state_dict does, after which a hook's attribute is stale
        for p in layer.parameters():
            p.mul_(3)
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MADE)
def test_the_weight_is_what_the_next_call_finds(name, training):
    layer = made(name).train(training)
    before = {key: t.clone() for key, t in layer.state_dict().items()}
    attributes = dict(vars(layer))
    state = torch.get_rng_state()
    found = current_weight(layer)
    assert torch.equal(torch.get_rng_state(), state) and dict(vars(layer)) == attributes
    assert all(torch.equal(t, before[key]) for key, t in layer.state_dict().items())
    x = torch.randn(5, 12)
    torch.set_rng_state(state)
    out = layer(x)
    assert torch.equal(out, nn.functional.linear(x, found, layer.bias))
    if name in OLD:
        assert torch.equal(layer.weight, found)


def test_parameters_and_buffers_are_themselves():
    layer = nn.Linear(3, 2)
    assert current_weight(layer) is layer.weight and current_weight(layer, "bias") is layer.bias
    norm = nn.BatchNorm1d(2)
    assert current_weight(norm, "running_mean") is norm.running_mean


def test_a_plain_attribute_may_be_set_anew_before_the_next_call():
    layer = nn.Linear(3, 2)
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    with pytest.raises(
        gs.nn.ComputedWeightError, match="the code around the layer may set it(.|\n)*Calibrate with data"
    ):
        current_weight(layer)
    assert layer.weight is weight and current_weight(layer, "bias") is layer.bias


def test_hooks_of_others_may_compute_anything():
    layer = nn.Linear(3, 2)
    weight = layer.weight.detach()
    layer.register_forward_pre_hook(lambda module, args: None)
    assert current_weight(layer) is layer.weight  # a parameter: hooks do not replace it
    del layer.weight
    layer.weight = weight
    with pytest.raises(gs.nn.ComputedWeightError, match="its weight is no parameter, and .* may set it"):
        current_weight(layer)


@pytest.mark.parametrize("name", MADE)
def test_reasons(name):
    reason = computed_parameter(made(name))
    hook = {"weight_norm": "WeightNorm", "spectral_norm": "SpectralNorm", "prune": "PruningContainer"}.get(name)
    assert reason == (
        f"its weight is computed by a hook ({hook})" if hook else "parametrised (torch.nn.utils.parametrize)"
    )
    with pytest.raises(gs.nn.ComputedWeightError, match="made of a Linear|made of a Parametrized.*") as caught:
        refuse_computed("made", made(name))
    assert isinstance(caught.value, TypeError) and "remove_weight_norm" in str(caught.value)


def test_plain_layers_have_no_reason():
    assert computed_parameter(nn.Linear(3, 2)) == computed_parameter(nn.Linear(3, 2, bias=False)) == ""
    assert computed_parameter(nn.ReLU()) == "" and refuse_computed("made", nn.Linear(3, 2)) is None
    biased = prune.identity(nn.Linear(3, 2), "bias")
    assert computed_parameter(biased) == "its bias is computed by a hook (Identity)"
    assert computed_parameter(biased, "weight") == ""
    frozen = nn.Linear(3, 2, bias=False)
    weight = frozen.weight.detach()
    del frozen.weight
    frozen.register_buffer("weight", weight)
    assert computed_parameter(frozen) == "its weight is no parameter"

    class Derived(nn.Linear):
        weight = property(lambda self: self.other)

        def __init__(self):
            nn.Module.__init__(self)
            self.bias, self.other = None, nn.Parameter(torch.ones(2, 2))

    assert computed_parameter(Derived()) == "its weight is no parameter"


def test_a_look_at_what_a_converter_did_changes_no_parametrised_layer():
    model = nn.Sequential(nn.Linear(32, 32), parametrizations.spectral_norm(nn.Linear(32, 32)))
    before = {key: t.clone() for key, t in model.state_dict().items()}
    gs.mx.swap_linear_with_mx_linear(model, report=lambda table: None)
    assert all(torch.equal(t, before[key]) for key, t in model.state_dict().items())


def test_hooks_are_taken_along():
    seen = []
    layer, other = nn.Linear(3, 2), gs.mx.MXLinear(3, 2)
    layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    layer.register_forward_hook(lambda module, args, kwargs, out: seen.append("after"), with_kwargs=True)
    layer.register_full_backward_hook(lambda module, before, after: seen.append("back"))
    take_hooks(other, layer)
    other(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert seen == ["before", "after", "back"]
    layer.register_forward_hook(lambda *args: seen.append("later"))
    other(torch.ones(1, 3))
    assert "later" not in seen
