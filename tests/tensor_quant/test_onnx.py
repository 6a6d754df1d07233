"""Exported graphs: the nodes, and onnxruntime's results within one step of the grid."""

from __future__ import annotations

import io

import pytest
import torch
from support.rounding import assert_near, largest, magnitudes
from torch import nn

from gemmsim import tensor_quant as tq

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.filterwarnings("ignore")


#: onnxruntime takes a quotient's rounding for its value: numbers next to a tie go to the next step, which is a difference
#: of numbers up to 255 steps, themselves rounded.
CLOSE = 1 + 4 * 255 * 2.0**-24


class Calls(nn.Module):
    """A function of one tensor, with buffers."""

    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def exported(function, x, **buffers):
    stored = io.BytesIO()
    model = Calls(function, **buffers).eval()
    torch.onnx.export(model, (x,), stored, dynamo=False, opset_version=17, custom_opsets={"trt": 1})
    return model, onnx.load_from_string(stored.getvalue())


def kinds(graph):
    return [node.op_type for node in graph.graph.node if node.op_type != "Constant"]


def run(graph, x):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # others spin, on cores that other tests have
    session = runtime.InferenceSession(graph.SerializeToString(), options)
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_int8_runs(unsigned, axis):
    x = data(5, 7).abs() if unsigned else data(5, 7)
    amax = x.abs().amax() * 0.8 if axis is None else x.abs().amax(1 - axis, keepdim=True) * 0.8
    model, graph = exported(lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 8, unsigned, False), x, amax=amax)
    onnx.checker.check_model(graph)
    assert kinds(graph) == ["QuantizeLinear", "DequantizeLinear"]
    quantize = next(n for n in graph.graph.node if n.op_type == "QuantizeLinear")
    assert [a.i for a in quantize.attribute if a.name == "axis"] == ([] if axis is None else [axis])
    step = amax / (255 if unsigned else 127)
    assert ((run(graph, x) - model(x)).abs() <= step * CLOSE).all()


def test_affine_runs_with_its_zero_point():
    x = data(6, 8)
    model, graph = exported(
        lambda m, x: tq.fake_affine_tensor_quant(x, m.low, m.high), x, low=torch.tensor(-0.5), high=torch.tensor(2.0)
    )
    assert kinds(graph)[-2:] == ["QuantizeLinear", "DequantizeLinear"]
    assert ((run(graph, x) - model(x)).abs() <= 2.5 / 255 * CLOSE).all()


def test_an_amax_of_zero_has_scale_one():
    x = data(4)
    model, graph = exported(
        lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 8, False, False), x, amax=torch.tensor(0.0)
    )
    scale = next(n for n in graph.graph.node if n.op_type == "QuantizeLinear").input[1]
    constants = {
        n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t) for n in graph.graph.node if n.op_type == "Constant"
    }
    constants |= {t.name: onnx.numpy_helper.to_array(t) for t in graph.graph.initializer}
    assert constants[scale] == 1


def test_a_calibrated_model_runs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    tq.quantize_(model, {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}})
    x = data(2, 2, 6, 6)
    tq.calibrate(model, [x])
    stored = io.BytesIO()
    torch.onnx.export(model, (x,), stored, dynamo=False, opset_version=13)
    graph = onnx.load_from_string(stored.getvalue())
    assert kinds(graph).count("QuantizeLinear") == 4
    # sums of 18 and of 48 numbers of grids that are the same, scales and biases
    assert_near(run(graph, x), model(x), 18 + 48 + 8, size=largest(magnitudes(model, x)[0]))


def test_floats_and_blocks_have_the_nodes_of_tensorrt():
    x, amax = data(4, 32), torch.tensor(2.0)
    _, graph = exported(lambda m, x: tq.scaled_e4m3(x, m.amax, None, 4, 3), x, amax=amax)
    assert kinds(graph) == ["TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"]
    _, graph = exported(lambda m, x: tq.scaled_e4m3(x, None), x)
    assert kinds(graph) == ["TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"]
    _, graph = exported(lambda m, x: tq.scaled_e4m3(x, m.amax, None, 4, 3, "Half"), x, amax=amax)
    assert kinds(graph) == ["Cast", "TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear", "Cast"]
    _, graph = exported(lambda m, x: tq.dynamic_block_quant(x, 32), x)
    assert kinds(graph) == ["TRT_MXFP8DynamicQuantize", "TRT_MXFP8DequantizeLinear"]
    _, graph = exported(lambda m, x: tq.dynamic_block_quant(x, 16, m.amax, None, (2, 1), (4, 3)), x, amax=amax)
    assert kinds(graph) == ["TRT_FP4DynamicQuantize", "DequantizeLinear", "DequantizeLinear"]
    _, graph = exported(
        lambda m, x: tq.dynamic_block_quant(x, 16, m.amax, None, (2, 1), (4, 3), None, "static"), x, amax=amax
    )
    assert kinds(graph) == ["TRT_FP4QDQ"]
    _, graph = exported(
        lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 4, False, False, None, False, 16, -1), x, amax=amax
    )
    assert kinds(graph)[-1] == "DequantizeLinear"


@pytest.mark.parametrize(
    "kind, text, function",
    [
        (ValueError, "8 bits", lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 4, False, False)),
        (ValueError, "8 bits", lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 4)),
        (ValueError, "8 bits", lambda m, x: tq.tensor_quant(x, m.amax, 4)),
        (AssertionError, "one axis", lambda m, x: tq.fake_tensor_quant(x, m.wide, None, 8, False, False)),
        (AssertionError, "one amax", lambda m, x: tq.scaled_e4m3(x, m.wide[:, :1], 4, 3)),
        (AssertionError, "E=5", lambda m, x: tq.scaled_e4m3(x, m.amax, 5, 2)),
        (AssertionError, "bias", lambda m, x: tq.fake_tensor_quant(x, m.amax, m.amax, 8, False, False)),
        (AssertionError, "bias", lambda m, x: tq.scaled_e4m3(x, m.amax, m.amax, 4, 3)),
        (AssertionError, "bias", lambda m, x: tq.dynamic_block_quant(x, 16, None, m.amax)),
    ],
)
def test_what_cannot_be_exported_raises(kind, text, function):
    with pytest.raises(kind, match=text):
        exported(function, data(4, 32), amax=torch.tensor(1.0), wide=torch.ones(4, 32))


def exported_program(model, x, opset=18):
    pytest.importorskip("onnxscript")
    table = tq.onnx_translations(opset)
    program = torch.onnx.export(
        model, (x,), dynamo=True, opset_version=opset, custom_translation_table=table, verbose=False
    )
    return program.model_proto


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("axis", [None, 1])
def test_exported_programs_run(unsigned, axis):
    x = data(5, 7).abs() if unsigned else data(5, 7)
    amax = x.abs().amax() * 0.8 if axis is None else x.abs().amax(0, keepdim=True) * 0.8
    model = Calls(lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 8, unsigned, False), amax=amax)
    graph = exported_program(model, x)
    assert kinds(graph) == ["QuantizeLinear", "DequantizeLinear"]
    assert ((run(graph, x) - model(x)).abs() <= amax / (255 if unsigned else 127) * CLOSE).all()


def test_exported_programs_of_ranges_and_models_run():
    x = data(6, 8)
    model = Calls(
        lambda m, x: tq.fake_affine_tensor_quant(x, m.low, m.high), low=torch.tensor(-0.5), high=torch.tensor(2.0)
    )
    assert ((run(exported_program(model, x), x) - model(x)).abs() <= 2.5 / 255 * CLOSE).all()
    torch.manual_seed(0)
    layers = tq.quantize_(
        nn.Sequential(nn.Linear(8, 4)), {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}}
    )
    tq.calibrate(layers, [x])
    assert_near(run(exported_program(layers, x), x), layers(x), 8 + 4, size=largest(magnitudes(layers, x)[0]))


@pytest.mark.parametrize("name", ["e4m3 per tensor", "e5m2 per axis", "e4m3 without amax"])
def test_exported_programs_of_float8_run(name):
    x = data(5, 7) * 3
    x[0, :3] = torch.tensor([1000.0, -0.0, 2.0**-12])
    amax = {"e4m3 per tensor": x.abs().amax() / 2, "e5m2 per axis": x.abs().amax(0, keepdim=True)}.get(name)
    bits = (5, 2) if "e5m2" in name else (4, 3)
    if amax is not None and amax.numel() > 1:
        amax[0, 1] = 0.0  # counts as 1
    model = Calls(lambda m, x: tq.scaled_e4m3(x, m.amax, None, *bits), amax=amax)
    graph = exported_program(model, x, 19)
    onnx.checker.check_model(graph)
    assert [i.version for i in graph.opset_import] == [19] and kinds(graph) == ["QuantizeLinear", "DequantizeLinear"]
    want, got = model(x), run(graph, x)
    largest = torch.ones(()) if amax is None else torch.where(amax == 0, 1.0, amax)
    quantum = 2.0 ** -bits[1] * torch.maximum(want.abs(), largest * 2.0**-14)
    assert ((got - want).abs() <= quantum).all() and got.unique().numel() > 10


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: tq.fake_tensor_quant(x, 1.0, 4),
        lambda m, x: tq.tensor_quant(x, 1.0, 4),
        lambda m, x: tq.scaled_e4m3(x, 1.0, 4, 3),
        lambda m, x: tq.dynamic_block_quant(x, 8),
        lambda m, x: tq.fake_tensor_quant(x, torch.ones(4, 8), None, 8, False, False),
        lambda m, x: tq.fake_affine_tensor_quant(x, -1.0, 1.0, 4),
    ],
)
def test_programs_that_cannot_be_exported_raise(function):
    with pytest.raises(Exception) as found:
        exported_program(Calls(function), data(4, 8))
    chain, error = [], found.value
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    assert any(isinstance(error, tq.ExportError) for error in chain)


def test_affine_ranges_without_zero():
    x = data(6, 8).abs() + 1
    for ends in ((torch.tensor(1.0), torch.tensor(4.0)), (torch.full((1, 8), 0.5), torch.arange(3.0, 11.0)[None])):
        model = Calls(lambda m, x: tq.fake_affine_tensor_quant(x, m.low, m.high), low=ends[0], high=ends[1])
        got, step = run(exported_program(model, x), x), (ends[1] - ends[0]) / 255
        assert ((got - model(x)).abs() <= step * CLOSE).all()
        with pytest.raises(tq.ExportError, match="without zero"):
            exported(lambda m, x: tq.fake_affine_tensor_quant(x, m.low, m.high), x, low=ends[0], high=ends[1])


def test_what_has_no_nodes_raises():
    x = data(4, 8)
    layers = tq.quantize_(
        nn.Sequential(nn.Linear(8, 4)),
        {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}},
        spec="int(16, wrap)",
    )
    with pytest.raises(tq.ExportError, match="accumulator=int"):
        torch.onnx.export(layers, (x,), io.BytesIO(), dynamo=False, opset_version=13)
    layers[0].accumulator = None
    with pytest.raises(tq.ExportError, match="opset_version=12; allowed: 13"):
        torch.onnx.export(layers, (x,), io.BytesIO(), dynamo=False, opset_version=12)
