"""Bad input: a typed error or a warning, with the number that caused it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import gemmsim as gs
import gemmsim.nn as qnn


def layer(k=16, n=8):
    torch.manual_seed(0)
    return nn.Linear(k, n), torch.randn(40, k)


def search(model=None, inputs=None, **options):
    default = layer()
    return gs.search(default[0] if model is None else model, default[1] if inputs is None else inputs, **options)


@pytest.mark.parametrize("at_most", [0, 0.0, -1, float("nan"), float("inf"), None, "0.05", True])
def test_targets_that_are_no_number_above_0(at_most):
    with pytest.raises(gs.SearchError, match="at_most=.*a number above 0"):
        search(at_most=at_most)


def test_a_target_that_the_widest_setting_misses():
    with pytest.raises(
        gs.SearchError, match=r"at_most=1e-06, .*':e5m10' in all 1 layers, misses with an error of 0\.0"
    ):
        search(at_most=1e-6)


def test_a_target_that_only_the_limit_misses():
    model, x = layer()
    error = gs.search(model, x, ladder="e5m9, e5m10", at_most=1.0).widest
    with pytest.raises(gs.SearchError, match="misses with an error of .*, which for other samples may be"):
        gs.search(model, x, ladder="e5m9, e5m10", at_most=error * 1.0001)


def test_one_calibration_sample():
    model, x = layer()
    with pytest.warns(gs.SearchWarning, match="1 calibration sample: its errors say little"):
        found = gs.search(model, x[:1], at_most=0.1)
    assert found.samples == 1 and found.held_back is None and found.measured.limit == found.measured.error
    with pytest.warns(gs.SearchWarning, match="1 calibration sample"):
        assert gs.search(model, x[:2], at_most=0.1).samples_held_back == 1


def test_hundreds_of_samples_do_not_warn():
    model, x = layer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.search(model, torch.randn(400, 16), at_most=0.1)


def test_inputs_held_back_that_miss_are_told():
    """Calibrated on inputs whose sums are easy, asked about sums that cancel."""
    model, x = nn.Linear(16, 4, bias=False), torch.ones(40, 16)
    nn.init.ones_(model.weight)
    model.weight.data[:, ::2] = -0.97
    hard = torch.randn(40, 16) + 50
    with pytest.warns(gs.SearchWarning, match=r"on the 40 held-back samples, above at_most=0\.05"):
        gs.search(model, x, options=gs.SearchOptions(held_back=hard))


@pytest.mark.parametrize(
    "model, said",
    [
        (nn.ReLU(), r"\(0 of 0\).*\n.*Nothing was multiplied at all"),
        (nn.Sequential(qnn.QLinear(16, 4, spec=":fp32")), r"\(0 of 1\).*\n.*gemmsim.matmul.*gemmsim.nn keep"),
    ],
)
def test_models_without_matched_products(model, said):
    with pytest.raises(gs.SearchError, match=f"without matched products {said}"):
        search(model)


def test_patterns_that_select_nothing():
    with pytest.raises(gs.SearchError, match=r"of modules='7', kinds='\*' \(0 of 1\).*\n.*There is: linear in ''"):
        search(options=gs.SearchOptions(modules="7"))
    with pytest.raises(gs.SearchError, match=r"kinds='conv\*'"):
        search(options=gs.SearchOptions(kinds="conv*"))


def test_converted_models():
    model, x = layer()
    gs.convert(model, ":bf16")
    with pytest.raises(gs.SearchError, match="gemmsim.convert converted.*\n.*undo"):
        gs.search(model, x)
    gs.emulation.undo(model)
    assert gs.search(model, x, at_most=0.1).table


def test_outputs_that_are_nan():
    model, x = layer()
    x[3, 2] = float("nan")
    with pytest.raises(gs.SearchError, match=r"a reference run with \d+ NaN or infinite of \d+ outputs"):
        gs.search(model, x)


def test_registers_that_overflow_have_an_infinite_error():
    model, x = layer()
    with pytest.raises(gs.SearchError, match="misses with outputs that are NaN or infinite.*\n.*exponents"):
        gs.search(model, x * 1e30)
    found = gs.search(model, x * 1000, ladder="e3m4, e4m10, e8m7, e8m10", at_most=0.1)
    assert found.chosen.registers == ("e8m7",)


def test_outputs_that_are_0():
    model, x = layer()
    with pytest.raises(gs.SearchError, match="outputs are all 0"):
        gs.search(nn.Sequential(model, nn.Threshold(1e9, 0.0)), x)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = layer()[0]

    def forward(self, x):
        return nn.functional.dropout(self.inner(x), 0.5)


def test_models_whose_outputs_change():
    with pytest.raises(gs.SearchError, match=r"outputs that differ by \d\S* from one run to the next"):
        search(Noisy())
    model, x = layer()
    assert gs.search(nn.Sequential(model, nn.Dropout(0.5)), x, at_most=0.1).table  # which evaluation turns off


@pytest.mark.parametrize(
    "given, said",
    [
        ({"model": len}, "model of type builtin_function_or_method"),
        ({"cost": "watts"}, r"cost='watts'; allowed: 'bits\*macs', 'bits', or a function"),
        ({"cost": lambda bits, macs: -1.0}, "cost that returned -1"),
        ({"cost": lambda bits, macs: float("nan")}, "cost that returned nan"),
        ({"metric": "logits"}, "metric 'logits'"),
        ({"ladder": "e5m10:e5m1"}, "Write 'e5m1:e5m10'"),
        ({"order": "chunked(64)"}, "with {} in place of a format"),
        ({"inputs": torch.ones(0, 16)}, "inputs without a sample"),
        ({"options": {"seed": 3}}, "options of type dict"),
        ({"ladder": "int(12):int(20)"}, r"int\(20\).*adds whole numbers.*\n.*fixed\(P, frac\)"),
    ],
)
def test_arguments_that_mean_nothing(given, said):
    with pytest.raises(gs.SearchError, match=said):
        search(**given)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"reference": "wide"}, "reference='wide'; allowed: 'native', 'widest'"),
        ({"method": "local"}, "method='local'; allowed: 'auto', 'whole', 'captured'"),
        ({"runs": 0}, "runs=0"), ({"runs": True}, "runs=True"), ({"seed": -1}, "seed=-1"), ({"seed": 1.5}, "seed=1.5"),
        ({"held_back": 1}, "held_back=1"), ({"held_back": -0.1}, "held_back=-0.1"), ({"modules": [3]}, "pattern 3"),
        ({"held_back": float("nan")}, "held_back=nan"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing(given, said):
    with pytest.raises(gs.SearchError, match=said):
        gs.SearchOptions(**given)


def test_kinds_that_no_product_has():
    with pytest.raises(gs.emulation.ConfigError, match="which no product has"):
        gs.SearchOptions(kinds="konv2d")


def test_held_back_inputs_of_another_form():
    with pytest.raises(gs.SearchError, match="held_back with a str without tensors"):
        search(options=gs.SearchOptions(held_back="x"))
