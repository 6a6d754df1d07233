"""``torch.export``, ONNX files and ``torch.jit.trace`` of layers: the same bits, or a refusal that says what to do."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from support import ROOT, assert_bitwise_equal
from support.fork import run_forked
from support.functional import first, make, modules
from test_fx import NAMES, other_layers
from torch import nn

import gemmsim as gs
from gemmsim import tensor_quant as tq

ENCODED = ("MXInferenceLinear", "NVFP4InferenceLinear")
OTHERS = [name for name in other_layers() if name not in ENCODED]
#: Layers that the stricter exporter is tried on, which takes longer: one of each kind of operator.
STRICT = ["QLinear", "QConv2d", "QLayerNorm", "QAvgPool2d", "Quantizer"]
STRICT_LONG = ["QLSTMCell", "QMultiheadAttention"]
pytestmark = pytest.mark.filterwarnings("ignore")


def check(program, model, inputs) -> None:
    """The program, decomposed and stored and loaded, gives what the model does."""
    want = first(model(*inputs))
    assert type(want) is torch.Tensor  # nothing that an exporter made is left behind
    assert_bitwise_equal(first(program.module()(*inputs)), want)
    assert_bitwise_equal(first(program.run_decompositions().module()(*inputs)), want)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert_bitwise_equal(first(torch.export.load(file).module()(*inputs)), want)


@pytest.mark.parametrize(
    "name, strict",
    [
        *((n, False) for n in NAMES),
        *((n, True) for n in STRICT),
        *(pytest.param(n, True, marks=pytest.mark.long) for n in STRICT_LONG),
    ],
)
def test_modules_of_nn_are_exported(name, strict):
    torch.manual_seed(0)
    model, inputs = make(name, "e5m10").eval(), tuple(modules("e5m10")[name].inputs)
    check(torch.export.export(model, inputs, strict=strict), model, inputs)


@pytest.mark.parametrize("name, strict", [*((n, False) for n in OTHERS), ("MXLinear", True), ("QuantLinear", True)])
def test_layers_of_block_formats_and_calibrated_integers_are_exported(name, strict):
    model, x = other_layers()[name]
    check(torch.export.export(model.eval(), (x,), strict=strict), model, (x,))


@pytest.mark.parametrize("name", ENCODED)
def test_encoded_weights_are_refused(name):
    model, x = other_layers()[name]
    with pytest.raises(gs.mx.MXOperatorError, match="weight.dequantize"):
        torch.export.export(model, (x,), strict=False)


def test_batch_sizes_may_be_left_open():
    model = nn.Sequential(gs.nn.QLinear(16, 4, spec="e4m3 : e5m10"), gs.nn.QSoftmax(-1, spec="e5m10")).eval()
    shapes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    program = torch.export.export(model, (torch.randn(3, 16),), dynamic_shapes=shapes)
    x = torch.randn(7, 16)
    assert_bitwise_equal(program.module()(x), model(x))


def test_a_process_that_only_loads_can_register_every_operator():
    code = "import torch, gemmsim as gs; gs.load_operators(); print(*sorted(torch.ops.gemmsim))"
    done = run_forked(code)
    assert done.returncode == 0, done.stderr
    helper = re.compile(r"^from \S*registration import .*\bdefine\b", re.M)
    defined = [p for p in (ROOT / "gemmsim").rglob("*.py") if helper.search(p.read_text(encoding="utf-8"))]
    parts = {".".join(p.relative_to(ROOT / "gemmsim").with_suffix("").parts) for p in defined}
    assert parts == set(gs._OPERATORS)
    assert {"matmul", "conv", "row_softmax", "mx_encode", "tq_affine"} <= set(done.stdout.split())


# ONNX


def exported(model, x):
    pytest.importorskip("onnxscript")
    table = gs.ops.onnx_translations() | tq.onnx_translations()
    return torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=table, verbose=False).model_proto


def run(proto, x):
    """The file in onnx's own evaluator, in which our nodes are the operators they are named after."""
    op_run, reference = pytest.importorskip("onnx.reference.op_run"), pytest.importorskip("onnx.reference")
    made = []
    for node in proto.graph.node:
        if node.domain == "gemmsim":
            operator = getattr(torch.ops.gemmsim, node.op_type).default
            made.append(type(node.op_type, (op_run.OpRun,), {"op_domain": "gemmsim", "_run": runner(operator)}))
    session = reference.ReferenceEvaluator(proto, new_ops=made)
    return torch.from_numpy(session.run(None, {proto.graph.input[0].name: x.numpy()})[0].copy())


def runner(operator):
    def _run(self, *inputs, **attributes):
        tensors = iter([None if i is None else torch.from_numpy(np.array(i)) for i in inputs])
        given = {}
        for p in operator._schema.arguments:
            value = next(tensors, None) if "Tensor" in str(p.type) else attributes.get(p.name)
            value = float(value) if "float" in str(p.type) and value is not None else value
            if p.name == "out_dtype" and value is not None:
                value = {1: torch.float32, 11: torch.float64, 10: torch.float16}[value]
            if value is not None:
                given[p.name] = value
        results = operator(**given)
        return tuple(r.numpy() for r in (results if isinstance(results, tuple) else (results,)))

    return _run


def test_layers_become_nodes_of_a_domain_of_our_own():
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(0)
    model = nn.Sequential(
        gs.nn.QConv2d(2, 3, 2, spec=":e5m10"), nn.Flatten(), gs.nn.QLinear(27, 32, spec="e4m3 : e5m10"), nn.ReLU(),
        gs.nn.QLayerNorm(32, spec="e5m10"), gs.nn.Quantizer("e4m3"), gs.mx.MXLinear(32, 4, config="mxfp4"),
    ).eval()  # fmt: skip
    x = torch.randn(2, 2, 4, 4)
    proto = exported(model, x)
    onnx.checker.check_model(proto)
    ours = [n for n in proto.graph.node if n.domain == "gemmsim"]
    assert [n.op_type for n in ours] == ["conv", "matmul_with_operands", "row_norm", "quantize", "matmul"]
    spec = {a.name: onnx.helper.get_attribute_value(a) for a in ours[1].attribute}["spec"]
    assert spec == b"e4m3 : e5m10"
    assert ("gemmsim", 1) in {(o.domain, o.version) for o in proto.opset_import}
    assert_bitwise_equal(run(proto, x), model(x).detach())


@pytest.mark.parametrize(
    "layer",
    [gs.nn.QLinear(32, 4, spec=":fp32"), gs.mx.MXLinear(32, 4), gs.nn.QLayerNorm(32, spec="e5m10")],
    ids=lambda layer: type(layer).__name__,
)
def test_the_older_exporter_is_refused_and_says_which(layer):
    pytest.importorskip("onnx")
    with pytest.raises(gs.ops.ExportError, match=r"dynamo=True.*\n.*onnx_translations"):
        torch.onnx.export(layer, (torch.randn(2, 32),), io.BytesIO(), dynamo=False)


def test_the_older_exporter_takes_layers_that_are_pytorchs_own():
    pytest.importorskip("onnx")
    torch.onnx.export(gs.nn.QLinear(32, 4), (torch.randn(2, 32),), io.BytesIO(), dynamo=False)


def test_jit_traces_hold_operators_and_no_results():
    model = gs.nn.QLinear(32, 4, spec="e4m3 : e5m10")
    with torch.no_grad():
        traced = torch.jit.trace(model, (torch.randn(2, 32),))
        x = torch.randn(2, 32)
        assert_bitwise_equal(traced(x), model(x))
