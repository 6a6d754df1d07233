"""Exported graphs with the functions' own bits: signed narrow ranges, integers and scales, and every plain program."""

from __future__ import annotations

import io
import math

import pytest
import torch
from support import assert_bitwise_equal
from torch import nn

from gemmsim import tensor_quant as tq

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")


class Calls(nn.Module):
    """A function of one tensor, with buffers."""

    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def torchscript(model, x):
    stored = io.BytesIO()
    torch.onnx.export(model.eval(), (x,), stored, dynamo=False, opset_version=17)
    return onnx.load_from_string(stored.getvalue())


def program(model, x):
    return torch.onnx.export(model, (x,), dynamo=True, verbose=False).model_proto


def translated(model, x):
    table = tq.onnx_translations()
    exported = torch.onnx.export(
        model, (x,), dynamo=True, opset_version=18, custom_translation_table=table, verbose=False
    )
    return exported.model_proto


EXPORTERS = {"dynamo=False": torchscript, "dynamo=True": program, "with onnx_translations": translated}


def kinds(graph):
    return {node.op_type for node in graph.graph.node if node.op_type != "Constant"}


def run(graph, x):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(graph.SerializeToString(), options)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return [torch.from_numpy(result) for result in found]


def wide_data(dtype=torch.float32):
    """Numbers of sixteen binades, ties of the grid under amax 127, and every special value."""
    x = torch.randn(16, 40, generator=torch.Generator().manual_seed(0)) * torch.logspace(-8, 7, 16, base=2.0)[:, None]
    x[0, :8] = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, -1e-30, 1e-45, 3.4e38])
    x[1] = torch.arange(-20, 20) + 0.5
    return x.to(dtype)


def amaxes(name, x):
    """One amax, one for each column (with zero, the largest without a scale, and the next), or one for each element."""
    if name == "tensor":
        return torch.tensor(127.0)
    if name == "columns":
        found = x[1:].float().abs().amax(0, keepdim=True) * 0.7
        found[0, 5:8] = torch.tensor([0.0, 2.0**-24, 2.0**-24 * (1 + 2.0**-23)])
        return found
    return x.float().abs().nan_to_num(1.0, 2.0) + 0.25


def assert_exports_exactly(model, x, exporter):
    want = model(x)
    graph = EXPORTERS[exporter](model, x)
    onnx.checker.check_model(graph)
    got = run(graph, x)
    for mine, theirs in zip(want if isinstance(want, tuple) else (want,), got, strict=True):
        assert theirs.dtype == mine.dtype and theirs.shape == mine.shape
        assert_bitwise_equal(theirs, mine, nan_is_nan=True)
    return graph


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("amax", ["tensor", "columns", "elements"])
def test_the_default_narrow_range_is_exported_bit_for_bit(amax, exporter):
    x = wide_data()
    model = Calls(lambda m, x: tq.fake_tensor_quant(x, m.amax), amax=amaxes(amax, x))
    graph = assert_exports_exactly(model, x, exporter)
    assert {"Round", "Clip"} <= kinds(graph) and "QuantizeLinear" not in kinds(graph)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("unsigned, narrow", [(False, True), (False, False), (True, True)])
def test_integers_and_their_scale_are_exported_bit_for_bit(unsigned, narrow, exporter):
    x = wide_data()
    x = torch.where(x < 0, -x, x) if unsigned else x
    model = Calls(lambda m, x: tq.tensor_quant(x, m.amax, 8, unsigned, narrow), amax=amaxes("columns", x))
    q, scale = model(x)
    lowest = {(False, True): -127, (False, False): -128, (True, True): 0}[unsigned, narrow]
    assert (q[~q.isnan()].min(), q[~q.isnan()].max()) == (lowest, 255 if unsigned else 127) and scale[0, 5] == 1
    assert_exports_exactly(model, x, exporter)


@pytest.mark.parametrize("exporter", ["dynamo=False", "dynamo=True"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_other_dtypes_come_back(dtype, exporter):
    x = wide_data(dtype)
    x[0, 7] = 100.0
    for function in (
        lambda m, x: tq.fake_tensor_quant(x, m.amax),
        lambda m, x: tq.tensor_quant(x, m.amax),
    ):
        assert_exports_exactly(Calls(function, amax=torch.tensor(20.0)), x, exporter)


def test_the_dtype_around_the_nodes_is_that_asked_for():
    x = torch.tensor([1.0003, -0.5, 2.5])
    model = Calls(lambda m, x: tq.fake_tensor_quant(x, 2.0, None, 8, False, True, "Half"))
    assert_bitwise_equal(run(torchscript(model, x), x)[0], tq.fake_tensor_quant(x.half(), 2.0).float())


CASTS = {
    "full range": lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 8, False, False),
    "4 bits": lambda m, x: tq.fake_tensor_quant(x, m.amax, None, 4, False, False),
    "bias": lambda m, x: tq.fake_tensor_quant(x, m.amax, m.bias),
    "learned": lambda m, x: tq.learned_fake_tensor_quant(x, m.amax, 4),
    "int_cast": lambda m, x: tq.int_cast_ste(x, 4),
    "affine": lambda m, x: tq.fake_affine_tensor_quant(x, -m.amax - 1, m.amax * 2 + 1),
    "affine without zero": lambda m, x: tq.fake_affine_tensor_quant(x, m.amax + 1, m.amax * 2 + 2, 4),
    "e4m3 alone": lambda m, x: tq.scaled_e4m3(x, None),
    "fp4_cast": lambda m, x: tq.fp4_cast_ste(x),
    "amax of the inputs": lambda m, x: tq.fake_tensor_quant(x, x[1:].abs().max()),
    "e5m2 with amax of the inputs": lambda m, x: tq.scaled_e4m3(x, x[1:].abs().amax(0, keepdim=True), 5, 2),
    "a quantiser without amax": lambda m, x: tq.TensorQuantizer({"num_bits": 8, "narrow_range": True})(x[1:]),
    **{
        f"e{E}m{M}": lambda m, x, E=E, M=M: tq.scaled_e4m3(x, m.amax, m.bias if E == 2 else None, E, M)
        for E, M in ((4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (3, 0), (1, 2), (0, 3))
    },
}


@pytest.mark.parametrize("name", CASTS)
def test_plain_programs_have_the_functions_bits(name):
    x = wide_data()
    buffers = {"amax": amaxes("columns", x), "bias": torch.linspace(-1, 1, 40)}
    assert_exports_exactly(Calls(CASTS[name], **buffers), x, "dynamo=True")


@pytest.mark.parametrize(
    "name", ["int8", "int8/narrow", "uint4", "e4m3", "e5m2", "e2m1/toward_zero", "e3m0/away", "mxint8"]
)
def test_the_operators_that_the_exporter_takes_apart_are_the_kernels_in_bits(name):
    x, ops = wide_data(), torch.ops.gemmsim
    x = torch.where(x < 0, -x, x) if name.startswith("u") else x
    for amax in (amaxes("columns", x), torch.tensor(7.0), *([None] if not name.startswith("u") else [])):
        got = ops.tq_fake_quantize_composite(x, amax, name)
        assert_bitwise_equal(got, ops.tq_fake_quantize(x, amax, name), nan_is_nan=True)


def test_a_calibrated_model_is_exported_without_a_table():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    tq.quantize_(model, {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": (4, 3)}})
    x = torch.randn(2, 2, 6, 6)
    tq.calibrate(model, [x])
    got = run(program(model, x), x)[0]
    # one step of e4m3 in the second layer's inputs, where the two convolutions sum in another order
    torch.testing.assert_close(got, model(x), rtol=2.0**-4, atol=2.0**-4)


def test_blocks_are_left_to_the_table():
    x = torch.randn(4, 32)
    with pytest.raises(torch.onnx.OnnxExporterError):
        program(Calls(lambda m, x: tq.dynamic_block_quant(x, 16)), x)
    assert {"TRT_MXFP8DynamicQuantize", "TRT_MXFP8DequantizeLinear"} == kinds(
        torchscript_trt(Calls(lambda m, x: tq.dynamic_block_quant(x, 16)), x)
    )


def torchscript_trt(model, x):
    stored = io.BytesIO()
    torch.onnx.export(model, (x,), stored, dynamo=False, opset_version=17, custom_opsets={"trt": 1})
    return onnx.load_from_string(stored.getvalue())
