"""``torch.fx.symbolic_trace`` without a tracer of one's own: layers stay whole, functions are one call each."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from support import assert_bitwise_equal
from support.functional import calls, first, make, modules
from torch import nn

import gemmsim as gs
from gemmsim import tensor_quant as tq
from gemmsim.formats import parse_cast

NAMES = [name for name in sorted(modules("e5m10")) if "Lazy" not in name]
#: Modules whose forward is one call of a function: these may be the root of a trace. The others look at their
#: input first, as torch.nn's of the same names do, which cannot be one either.
LOOK = ("QMultiheadAttention", "QLSTM", "QGRU", "QLSTMCell", "QGRUCell", "Quantizer", "QBatchNorm")
ROOTS = [name for name in NAMES if not name.startswith(LOOK)]
X = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))


class Around(nn.Module):
    """A model of one layer: something before it, the first of its results, something after it."""

    def __init__(self, layer, arguments=1):
        super().__init__()
        self.layer, self.arguments = layer, arguments

    def forward(self, x, y=None, z=None):
        out: Any = self.layer(*(x, y, z)[: self.arguments])
        return out


def quantised(layer: nn.Module, data: torch.Tensor, accumulator: str | None = None) -> nn.Module:
    """A layer of ``tensor_quant``, calibrated."""
    model = tq.quantize_(Around(layer), {"*weight_quantizer": {"axis": 0}, "*input_quantizer": {"num_bits": 8}})
    tq.calibrate(model, [data])
    model.layer.accumulator = accumulator
    return model.layer


def other_layers() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Layers of ``gemmsim.mx`` and ``gemmsim.tensor_quant``."""
    torch.manual_seed(0)
    image = torch.randn(2, 3, 6, 6)
    quantiser = tq.TensorQuantizer(tq.ScaledQuantDescriptor(num_bits=8, amax=2.0))
    return {
        "MXLinear": (gs.mx.MXLinear(32, 5, config="mxfp8_e4m3"), X),
        "NVFP4Linear": (gs.mx.NVFP4Linear(32, 5), X),
        "MXInferenceLinear": (gs.mx.MXInferenceLinear(32, 5, config="mxfp4"), X),
        "NVFP4InferenceLinear": (gs.mx.NVFP4InferenceLinear(32, 5), X),
        "QuantLinear": (quantised(nn.Linear(32, 5), X), X),
        "QuantLinear, int(16)": (quantised(nn.Linear(32, 5), X, "int(16, wrap)"), X),
        "QuantConv2d": (quantised(nn.Conv2d(3, 4, 3), image), image),
        "TensorQuantizer": (quantiser, X),
    }


def same(traced: nn.Module, module: nn.Module, inputs) -> None:
    got, want = traced(*inputs), module(*inputs)
    assert_bitwise_equal(first(got), first(want))


@pytest.mark.parametrize("name", NAMES)
def test_modules_of_nn_stay_whole(name):
    torch.manual_seed(0)
    inputs = modules("e5m10")[name].inputs
    model = Around(make(name, "e5m10"), len(inputs)).eval()
    traced = torch.fx.symbolic_trace(model)
    assert [n.target for n in traced.graph.nodes if n.op.startswith("call")] == ["layer"]
    same(traced, model, inputs)
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        same(other, model, inputs)


@pytest.mark.parametrize("name", other_layers())
def test_layers_of_block_formats_and_calibrated_integers_stay_whole(name):
    layer, x = other_layers()[name]
    model = nn.Sequential(nn.ReLU(), layer, nn.ReLU())
    traced = torch.fx.symbolic_trace(model)
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["0", "1", "2"]
    same(traced, model, [x])


@pytest.mark.parametrize("name", ROOTS)
def test_a_module_alone_becomes_one_call(name):
    torch.manual_seed(0)
    inputs = modules("e5m10")[name].inputs
    module = make(name, "e5m10").eval()
    traced = torch.fx.symbolic_trace(module)
    same(traced, module, inputs)


@pytest.mark.parametrize("name", sorted(calls("e5m10")))
def test_functions_become_one_call(name):
    call, tensors = calls("e5m10")[name]

    class Model(nn.Module):
        def forward(self, x, y=None, z=None):
            return call(*(x, y, z)[: len(tensors)])

    traced = torch.fx.symbolic_trace(Model())
    names = [n.target.__name__ for n in traced.graph.nodes if n.op == "call_function"]
    assert names[-1] == name and set(names[:-1]) <= {"formats_from"}
    assert_bitwise_equal(traced(*tensors), call(*tensors))


def test_gradients_and_hooks_of_a_traced_model_are_those_of_the_model():
    torch.manual_seed(0)
    model = nn.Sequential(gs.nn.QLinear(32, 8, spec="e4m3 : e5m10"), nn.ReLU(), gs.mx.MXLinear(8, 2, config="mxfp4"))
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output) or output * 2)
    traced = torch.fx.symbolic_trace(model)
    assert not seen
    want = torch.autograd.grad(model(X).sum(), list(model.parameters()))
    got = torch.autograd.grad(traced(X).sum(), list(traced.parameters()))
    assert len(seen) == 2
    for g, w in zip(got, want, strict=True):
        assert_bitwise_equal(g, w)


def test_specs_and_formats_in_graphs_are_names():
    formats, cast = gs.QAffineFormats(fprop="e4m3 : e5m10", grad_quant="e5m2"), parse_cast("e4m3/rtz")

    class Model(nn.Module):
        def forward(self, x, w):
            y = gs.qlinear(x, w, None, formats)
            return gs.quantize(gs.qmatmul(y, w, gs.GemmSpec.of(":bf16/sr"), seed=3), cast)

    traced = torch.fx.symbolic_trace(Model())
    w = torch.randn(32, 32, generator=torch.Generator().manual_seed(2))
    assert_bitwise_equal(traced(X, w), Model()(X, w))
    assert all(text in traced.code for text in ("'e4m3 : e5m10'", "e8m7/sr", "'e4m3/rtz'"))


def test_formats_that_no_text_can_name_are_refused():
    layer = gs.nn.QLinear(4, 4, spec=gs.QAffineFormats(fprop="e4m3 : fp32", input_quant=torch.relu))
    with pytest.raises(gs.FormatError, match="input_quant is the function"):
        torch.fx.symbolic_trace(layer)
    torch.fx.symbolic_trace(nn.Sequential(layer))  # whole, its formats stay where they are
