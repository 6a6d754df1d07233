"""mptorch's ``cublas_acceleration``: which of its products go to cuBLAS, in which types; on a stand-in for a GPU and on
the CPU."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap

import pytest
import torch
from support import assert_bitwise_equal, gpu_kit

import gemmsim as gs
from gemmsim.compat.mptorch import FixedPoint, FloatingPoint
from gemmsim.compat.mptorch import quant as qpt

F16 = FloatingPoint(exp=5, man=10, subnormals=True, saturate=False)
F32 = FloatingPoint(exp=8, man=23, subnormals=True, saturate=False)

_SCRIPT = """
import importlib, json, sys
import torch
import gemmsim as gs
from gemmsim.compat.mptorch import FloatingPoint
from gemmsim.compat.mptorch import quant as qpt

F16, F32 = (FloatingPoint(*widths, subnormals=True, saturate=False) for widths in ((5, 10), (8, 23)))
importlib.import_module("gemmsim.backends.cuda")
run = importlib.import_module("gemmsim.backends.cublas.run")
made, real = [], run._cublas_call

def noted(a, b, out, native):
    kinds = [str(t.dtype).removeprefix("torch.") for t in (a, b, out)]
    made.append([*kinds, native.compute.name, list(out.shape), a.shape[-1]])
    return real(a, b, out, native)

run._cublas_call = noted

def calls():
    found = list(made)
    made.clear()
    return found

torch.manual_seed(0)
answers = {}
BODY
print(json.dumps(answers))
"""


def on_a_gpu(body):
    """What ``body`` puts into ``answers`` on a stand-in for an H100."""
    script = _SCRIPT.replace("BODY", textwrap.dedent(body))
    done = subprocess.run([sys.executable, "-c", script], env=gpu_kit.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


HALF = ["float16", "float16", "float16", "F16"]


@pytest.fixture(scope="module")
def layers():
    """The products of layers of half precision, forward and backward."""
    return on_a_gpu("""
        quant = (F16, "nearest")
        function = qpt.make_quant_function(F16, "nearest")
        kinds = {
            "no quantisers": {},
            "pairs": dict(weight_quant=quant, bias_quant=quant, input_quant=quant, output_quant=quant, grad_quant=quant),
            "functions": dict(weight_quant=function, input_quant=function, grad_quant=function),
        }
        for kind, quants in kinds.items():
            formats = qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F16, **quants)
            for name, layer, size in (
                ("linear", qpt.QLinear(8, 4, formats), (5, 8)),
                ("conv", qpt.QConv2d(3, 4, 3, formats, padding=1), (2, 3, 6, 6)),
                ("transposed", qpt.QConvTranspose2d(3, 4, 2, formats, stride=2), (2, 3, 4, 4)),
            ):
                x = torch.randn(*size, device="cuda", requires_grad=True)
                layer.cuda()
                with qpt.cublas_acceleration(True):
                    y = layer(x)
                    plan = str(gs.last_backend())
                forward = calls()
                y.sum().backward()
                answers[f"{name}, {kind}"] = [plan, forward, calls()]
        formats = qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F16)
        x = torch.randn(5, 8, device="cuda")
        qpt.QLinear(8, 4, formats).cuda()(x)
        answers["outside"] = [str(gs.last_backend()), calls()]
        with gs.cublas_acceleration(True):
            qpt.QLinear(8, 4, formats).cuda()(x)
        answers["gemmsim's own rule"] = [str(gs.last_backend()), calls()]
    """)


@pytest.mark.parametrize("kind", ["no quantisers", "pairs", "functions"])
def test_a_linear_layer_of_half_precision(layers, kind):
    plan, forward, backward = layers[f"linear, {kind}"]
    assert "on cublas: native type fp16/fp16 by cublasGemmEx, compute type F16" in plan and "refused" not in plan
    assert forward == [[*HALF, [5, 4], 8]]
    assert sorted(backward) == sorted([[*HALF, [5, 8], 4], [*HALF, [4, 8], 5]])


@pytest.mark.parametrize("kind", ["no quantisers", "pairs", "functions"])
def test_convolutions_of_half_precision(layers, kind):
    plan, forward, backward = layers[f"conv, {kind}"]
    assert "compute type F16" in plan or kind == "pairs"  # whose last step rounds the output
    assert forward == [[*HALF, [2 * 36, 4], 27]]
    shapes = [[*HALF, [2 * 36, 27], 4], [*HALF, [27, 4], 2 * 36]]  # the input's gradient before its overlap-add
    assert sorted(backward) == sorted(shapes)
    plan, forward, backward = layers[f"transposed, {kind}"]
    assert forward == [[*HALF, [2 * 16, 16], 3]]
    assert sorted(backward) == sorted([[*HALF, [2 * 16, 3], 16], [*HALF, [16, 3], 2 * 16]])


def test_outside_and_by_gemmsims_own_rule_emulation_stays(layers):
    plan, made = layers["outside"]
    assert "on cuda" in plan and made == []
    plan, made = layers["gemmsim's own rule"]
    assert made == [] and "a holds numbers that e5m10 does not have; a cast in the spec rounds them" in plan


def test_functions_fast_modes_and_what_the_rule_leaves_out():
    found = on_a_gpu("""
        a, b = torch.randn(4, 6, device="cuda"), torch.randn(6, 3, device="cuda")
        half = dict(man_add=10, exp_add=5, man_mul=10, exp_mul=5, saturate=False)
        single = dict(saturate=False)
        for mode in (None, "f32", "f16", "bf16", "tf32"):
            with qpt.cublas_acceleration(True, mode):
                for name, widths in (("half", half), ("single", single)):
                    qpt.float_mm(a, b, **widths)
                    answers[f"{name} {mode}"] = calls()
        with qpt.cublas_acceleration(True):
            qpt.float_bmm(torch.stack([a, a]), torch.stack([b, b]), **half)
            answers["bmm"] = calls()
            formats = qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F32)
            for name, function in (("mp_mm", qpt.mp_mm), ("qmm", qpt.qmm), ("qmatmul", qpt.qmatmul)):
                function(a, b, formats)
                answers[name] = calls()
            qpt.mp_mm(a, b, formats, use_forward=False)
            answers["mp_mm backward"] = calls()
            qpt.qlinear(a, b.t().contiguous(), None, formats)
            answers["qlinear"] = calls()
            for name, change in {
                "compensated": dict(compensated=True), "stochastic": dict(rounding="stochastic"),
                "two roundings": dict(fma=False), "no subnormals": dict(subnormals=False),
                "saturating": dict(saturate=True), "bfloat16": dict(man_add=7, exp_add=8),
                "chunks": dict(accumulate="mptorch_cuda"),
            }.items():
                qpt.float_mm(a, b, **{**half, **change})
                answers[name] = [calls(), str(gs.last_backend())]
    """)
    names = {None: "F32", "f32": "F32", "f16": "F32_FAST_16F", "bf16": "F32_FAST_16BF", "tf32": "F32_FAST_TF32"}
    for mode, compute in names.items():
        assert found[f"half {mode}"] == [[*HALF, [4, 3], 6]]
        assert found[f"single {mode}"] == [["float32", "float32", "float32", compute, [4, 3], 6]]
    assert found["bmm"] == [[*HALF, [2, 4, 3], 6]]
    for name in ("mp_mm", "qmm", "qmatmul", "qlinear"):
        assert found[name] == [[*HALF, [4, 3], 6]]
    assert found["mp_mm backward"] == [["float32", "float32", "float32", "F32", [4, 3], 6]]
    for name in ("compensated", "stochastic", "two roundings", "no subnormals", "saturating", "bfloat16", "chunks"):
        made, plan = found[name]
        assert made == [] and "on cuda" in plan and "cublas_acceleration refused: " in plan, name


def test_operands_are_not_read_while_a_graph_is_captured():
    found = on_a_gpu("""
        a, b = torch.ones(4, 6, device="cuda"), torch.ones(6, 3, device="cuda")
        with gs.cublas_acceleration(True):
            gs.qmatmul(a, b, ":fp16")
            answers["before"] = [calls(), str(gs.last_backend())]
            torch.cuda.is_current_stream_capturing = lambda: True
            gs.qmatmul(a, b, ":fp16")
            answers["captured"] = [calls(), str(gs.last_backend())]
        with qpt.cublas_acceleration(True):
            gs.qmatmul(a, b, ":fp16")
            answers["by mptorch's rule"] = [calls(), str(gs.last_backend())]
    """)
    assert found["before"][0] == [[*HALF, [4, 3], 6]] and "operands are numbers of float16" in found["before"][1]
    assert found["captured"][0] == [] and "cannot be read while a graph is captured" in found["captured"][1]
    assert found["by mptorch's rule"][0] == [[*HALF, [4, 3], 6]]  # which rounds without reading


def test_the_matching_rule_is_what_decides():
    """Every format of a MAC near the two: cuBLAS' type exactly where mptorch's function names one."""
    a, b = torch.randn(3, 5), torch.randn(5, 2)
    flags = (True, False)
    for (man, exp), rounding, fma, sub, sat in itertools.product(
        ((10, 5), (23, 8), (7, 8), (10, 8), (9, 5)), ("nearest", "truncate"), flags, flags, flags
    ):
        types = qpt.match_mac_format_with_cublas_types(man, exp, man, exp, rounding, fma, sub, sat)
        with qpt.cublas_acceleration(True):
            qpt.float_mm(a, b, man, exp, man, exp, rounding, fma, sub, sat)
        record = gs.last_backend()
        assert (record.backend == "blas") == (types is not None), (man, exp, rounding, fma, sub, sat)
        if types is not None:
            assert ("fp16/fp16" if types[0] is qpt.CUBLASMatrixType.F16 else "native type fp32") in record.plan


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_on_the_cpu_it_is_pytorchs_product_of_rounded_operands(dtype):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(6, 40, generator=g).to(dtype)
    x[0, 0] = 1 + 2.0**-11 + 2.0**-40  # to 1 + 2**-10; through float32 it would be a tie, to 1
    w = torch.eye(40)[:8].to(dtype)
    formats = qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F16)
    with qpt.cublas_acceleration(True):
        got = qpt.qlinear(x, w, None, formats)
    record = gs.last_backend()
    assert record.backend == "blas" and "native type fp16/fp16 by torch.matmul" in record.plan
    assert "operands rounded to fp16 by mptorch's rule" in record.plan
    assert_bitwise_equal(got, gs.quantize(x, "fp16")[:, :8].contiguous())
    with qpt.cublas_acceleration(True), qpt.cublas_acceleration(False):
        qpt.qlinear(x, w, None, formats)
        assert gs.last_backend().backend == "cpu"


def test_the_backward_pass_keeps_the_rule_of_its_forward_pass():
    layer = qpt.QLinear(8, 4, qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F16), bias=False)
    x = torch.randn(5, 8, requires_grad=True)
    with qpt.cublas_acceleration(True):
        y = layer(x)
    y.sum().backward()
    assert "by mptorch's rule" in str(gs.last_backend())


def test_compiled_layers_ask_when_they_run():
    layer = qpt.QLinear(8, 4, qpt.QAffineFormats(fwd_mac=F16, bwd_mac=F16))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 8)
    plain = compiled(x)
    with qpt.cublas_acceleration(True):
        assert_bitwise_equal(compiled(x), layer(x))
        assert gs.last_backend().backend == "blas"
    assert_bitwise_equal(compiled(x), plain)


def test_the_switch_is_a_class_with_mptorchs_attributes():
    on = qpt.cublas_acceleration
    assert issubclass(on, gs.cublas_acceleration) and not on.enabled and on.fast_mode is None
    with on(True, "tf32"):
        assert on.enabled and on.fast_mode == "tf32" and gs.cublas_acceleration.enabled
    on.enable(True, "bf16")
    assert on.enabled and on.fast_mode == "bf16"
    qpt.float_mm(torch.ones(2, 2), torch.ones(2, 2), 10, 5, 10, 5, saturate=False)
    assert "by mptorch's rule" in str(gs.last_backend()) or "operands are numbers" in str(gs.last_backend())
    on.enable(False)
    assert not on.enabled
    on.enabled = True
    assert on.enabled
    on.disable()
    assert not on.enabled


def test_other_formats_have_no_type():
    formats = qpt.QAffineFormats(fwd_mac=FixedPoint(16, 8), bwd_mac=FixedPoint(16, 8))
    with qpt.cublas_acceleration(True):
        qpt.qmm(torch.ones(2, 2), torch.ones(2, 2), formats)
    assert gs.last_backend().backend == "cpu" and "refused: no native accumulator" in gs.last_backend().plan
