"""Conversions that are done as a whole or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gemmsim.nn.undoing import naming, unchanged_on_error


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest = nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3))
        self.options = {"a": 1}


class Other(nn.Linear):
    pass


def change(model):
    model.first.__class__ = Other
    model.first.register_forward_hook(lambda *args: None)
    model.first.weight = nn.Parameter(torch.zeros(5, 5))
    model.rest[0] = nn.Tanh()
    model.rest.extra = nn.ReLU()
    model.rest[1].running_mean.fill_(7)
    model.rest[1].running_var = torch.full((3,), 9.0)
    del model.first.in_features
    model.options["b"] = 2
    model.new = 3
    model.double()
    model.eval()


def test_a_model_is_as_it_was():
    model = Model()
    x = torch.randn(4, 3)
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    attributes = {name: dict(vars(module)) for name, module in modules.items()}
    hooks = model.first._forward_hooks
    state = {key: t.clone() for key, t in model.state_dict().items()}
    want = model.rest(model.first(x))  # in training, which moves running_mean
    model.load_state_dict(state)
    with pytest.raises(ZeroDivisionError), unchanged_on_error(model):
        change(model)
        raise ZeroDivisionError
    assert dict(model.named_modules()) == modules and type(model.first) is nn.Linear
    assert all(p is parameters[name] and p.dtype == torch.float32 for name, p in model.named_parameters())
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert model.first._forward_hooks is hooks and not hooks and model.options == {"a": 1}
    assert all(torch.equal(t, state[key]) for key, t in model.state_dict().items())
    assert model.training and torch.equal(model.rest(model.first(x)), want)


def test_interruptions_count_and_success_stays():
    model = Model()
    with pytest.raises(KeyboardInterrupt), unchanged_on_error(model):
        model.first = nn.Linear(9, 9)
        raise KeyboardInterrupt
    assert model.first.in_features == 3
    with unchanged_on_error(model):
        change(model)
    assert type(model.first) is Other and model.new == 3


def test_errors_name_the_module():
    with pytest.raises(ValueError, match=r"^layers\.3: wrong$"), naming("layers.3"):
        raise ValueError("wrong")
    with pytest.raises(ValueError, match=r"^the model: wrong$"), naming(""):
        raise ValueError("wrong")
    with pytest.raises(OSError) as caught, naming("layers.3"):
        raise OSError(2, "wrong")
    assert caught.value.args == (2, "wrong")  # which is no message to write into
