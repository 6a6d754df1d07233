"""Converters take what PyTorch itself puts into models, and say what they left."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.compat import torchao
from gemmsim.compat.torchmx.config import MXConfig, QLinearConfig
from gemmsim.compat.torchmx.quant_api import quantize_linear_

Q8 = {"*input_quantizer": {"num_bits": 8}, "*weight_quantizer": {"num_bits": 8}}


class Own(nn.Linear):
    """A linear layer with a ``forward`` of its own."""

    def forward(self, x):
        return 2 * super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(32, 2, batch_first=True)
        self.one, self.own, self.conv = nn.Linear(32, 32), Own(32, 32), nn.Conv1d(32, 32, 1)

    def forward(self, x):
        x = self.own(self.one(self.attend(x, x, x, need_weights=False)[0].contiguous()))
        return self.conv(x.mT)


def of_ours(model):
    return [name for name, m in model.named_modules() if isinstance(m, gs.nn.Emulated) and hasattr(m, "weight")]


def test_the_output_projection_of_attention_is_a_linear_layer():
    projection = nn.MultiheadAttention(32, 2).out_proj
    assert type(projection) is not nn.Linear and gs.nn.stands_for(projection, nn.Linear)
    layer = gs.nn.QLinear.from_float(projection, "e4m3 : e5m10")
    assert layer.weight is projection.weight and type(layer) is gs.nn.QLinear
    for other in (Own(2, 2), nn.LazyLinear(2), nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))):
        assert not gs.nn.stands_for(other, nn.Linear)
        with pytest.raises(TypeError, match="Construct QLinear"):
            gs.nn.QLinear.from_float(other)


#: Each converter on the network above: what it does, and which layers are ours then.
CONVERTERS = {
    "mx.swap_linear_with_mx_linear": (lambda m: gs.mx.swap_linear_with_mx_linear(m, "mxfp8"), ["attend.out_proj", "one"]),
    "mx.swap_linear_with_mx_inference_linear": (gs.mx.swap_linear_with_mx_inference_linear, ["attend.out_proj", "one"]),
    "quantize_": (lambda m: gs.tensor_quant.quantize_(m, Q8), ["attend.out_proj", "one", "conv"]),
    "torchao.swap_linear_with_mx_linear": (
        lambda m: torchao.swap_linear_with_mx_linear(m, torch.float8_e4m3fn, 32), ["attend.out_proj", "one", "own"]),
    "torchao.quantize_": (
        lambda m: torchao.quantize_(m, torchao.MXFP8TrainingOpConfig()), ["attend.out_proj", "one", "own"]),
    "torchao.convert_to_float8_training": (
        torchao.float8.convert_to_float8_training, ["attend.out_proj", "one", "own"]),
    "torchmx.quantize_linear_": (
        lambda m: quantize_linear_(m, QLinearConfig(*[MXConfig("float8_e4m3", 32)] * 2)),
        ["attend.out_proj", "one", "own"]),
}  # fmt: skip


@pytest.mark.parametrize("owner", CONVERTERS)
def test_converters_log_what_they_converted_and_left(owner, caplog):
    convert, ours = CONVERTERS[owner]
    model = Net()
    with caplog.at_level(logging.INFO, "gemmsim"):
        convert(model)
    assert of_ours(model) == ours
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and record.name == "gemmsim"
    text = record.getMessage()
    assert text.startswith(f"{owner}: {len(ours)} converted, {5 - len(ours)} left\n")
    lines = {line.split()[0]: line for line in text.splitlines()[1:]}
    assert list(lines) == [*sorted(ours, key=list(dict(model.named_modules())).index), *(
        name for name in ("attend", "own", "conv") if name not in ours)]  # fmt: skip
    assert "QMultiheadAttention" in lines["attend"] and "->" in lines["one"]
    assert model(torch.randn(2, 4, 32)).shape == (2, 32, 4)


def test_the_table_goes_where_it_is_asked_to(caplog):
    found = []
    gs.mx.quantize_(Net(), gs.mx.MXLinearConfig("mxfp8"), report=found.append)
    (table,) = found
    assert isinstance(table, gs.nn.Conversion) and not caplog.records
    assert [row[0] for row in table.converted] == ["attend.out_proj", "one"]
    assert table.converted[1] == ("one", "Linear", "MXLinear")
    assert {row.name: row.expected for row in table.left} == {"attend": False, "own": False, "conv": True}
    gs.tensor_quant.quantize_(Net(), {"one.*": {"num_bits": 8}}, report=found.append)
    assert {row.name: row.expected for row in found[1].left}["conv"] is True
    assert next(row for row in found[1].left if row.name == "own").why == "no pattern enables a quantiser"


def test_what_was_asked_to_be_left_is_no_warning(caplog):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    with caplog.at_level(logging.INFO, "gemmsim"):
        gs.mx.swap_linear_with_mx_linear(model, "mxfp8", lambda module, name: name == "0")
        gs.mx.swap_linear_with_mx_linear(model, "mxfp4")  # the first one has a format already
    assert [r.levelno for r in caplog.records] == [logging.INFO] * 2
    assert "by filter_fn" in caplog.records[0].getMessage()
    assert [str(layer.config.input) for layer in model] == ["mxfp8_e4m3", "mxfp4"]


def test_a_filter_takes_subclasses_but_nothing_takes_parametrised_layers():
    model = nn.Sequential(Own(32, 32), nn.utils.parametrizations.weight_norm(nn.Linear(32, 32)), nn.LazyLinear(32))
    found = []
    gs.mx.swap_linear_with_mx_linear(model, "mxfp8", lambda module, name: True, report=found.append)
    assert type(model[0]) is gs.mx.MXLinear and not found[0].left[0].expected
    assert [(row.name, row.why.split()[0]) for row in found[0].left] == [("1", "parametrised"), ("2", "lazy,")]


def test_a_model_that_is_one_layer_is_in_the_table():
    found = []
    layer = gs.mx.swap_linear_with_mx_linear(nn.Linear(32, 32), "mxfp8", report=found.append)
    assert type(layer) is gs.mx.MXLinear and found[0].converted == (("", "Linear", "MXLinear"),)
    assert "(the model)" in str(found[0])
