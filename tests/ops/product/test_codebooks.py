"""Lists of values as operands, registers and outputs: bits of the reference, on every way to a product."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.backends import codebook as codebook_backend
from gemmsim.backends import cpu
from gemmsim.backends.cuda.errors import CudaError
from gemmsim.formats import Cast, codebook, parse_cast
from gemmsim.reference import gemm
from gemmsim.reference.rounding import round_value

LIST = "codebook(-3,-1,-0.25,0,0.5,1,8)"
FORMATS = [LIST, "codebook(-3,-1,1,3|-2.5,0.125,3|odd|nan)", "posit(8,2)", "posit(8,0)", "nf4", "codebook(0.1,0.2,0.3)"]


def near(fmt, dtype):
    """Values, boundaries and their neighbours in ``dtype``, and what is no number."""
    points = torch.tensor([*fmt.points, *fmt.limits], dtype=torch.float64).to(dtype)
    around = [points, *(points.nextafter(torch.full_like(points, end)) for end in (-math.inf, math.inf))]
    edges = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30], dtype=dtype)
    return torch.cat([*around, edges])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["", "/rtz", "/ru", "/rd"])
@pytest.mark.parametrize("text", FORMATS)
def test_quantize_is_the_reference(text, mode, dtype):
    cast = parse_cast(text + mode)
    x = near(cast.format, dtype)
    want = torch.tensor([round_value(value, cast) for value in x.tolist()], dtype=torch.float64).to(dtype)
    assert_bitwise_equal(gs.quantize(x, cast), want, nan_is_nan=True)


def test_half_precision_and_strides():
    x = torch.randn(6, 8).half().t()
    want = torch.tensor([[round_value(v, parse_cast("nf4")) for v in row] for row in x.tolist()])
    assert_bitwise_equal(gs.quantize(x, "nf4"), want.half())
    assert_bitwise_equal(gs.quantize(x.float(), "nf4"), want)


SPECS = [
    "{0} * {0} : fp32",
    "{0} * e4m3 : chunked(4, e5m10) -> {0}",
    "{0} : {0}",
    "e4m3 : {0}/rtz",
    "e4m3 : mul={0}, add=fp32",
    "e4m3 : mul=e5m2, add={0}",
    "e4m3 : mul={0}, add={0}",
    "e4m3 : chunked(3, {0}, fp32)",
    "e4m3 : chunked(3, e5m10, {0})",
    "e4m3 : pairwise({0}, 2)",
    "e4m3 : interleaved(3, {0})",
    "e4m3 : splitk(2, fp32, {0})",
    "e4m3 : shuffled({0}, 5)",
]


@pytest.mark.parametrize("text", ["posit(8,2)", LIST])
@pytest.mark.parametrize("spec", SPECS)
def test_products_are_the_reference(spec, text):
    spec = spec.format(text)
    generator = torch.Generator().manual_seed(len(spec))
    a, b = torch.randn(3, 11, generator=generator), torch.randn(11, 2, generator=generator)
    want = torch.tensor(gemm(a.tolist(), b.tolist(), spec))
    assert_bitwise_equal(gs.qmatmul(a, b, spec), want)
    batched = gs.qmatmul(a.expand(2, 3, 11), b.expand(2, 11, 2), spec)
    assert_bitwise_equal(batched, want.expand(2, 3, 2))
    assert GemmSpec.parse(str(GemmSpec.parse(spec))) == GemmSpec.parse(spec)


def test_a_sum_is_rounded_once():
    """1 + 2^-40 is above the boundary 1, and no sum in float32 shows it; nor does one in float64 at 2^-60."""
    fmt = codebook([0, 2], tie="low")
    for small in (2.0**-40, 2.0**-60, 2.0**-90):
        a, b = torch.tensor([[1.0, small]]), torch.tensor([[1.0], [1.0]])
        assert gs.qmatmul(a, b, GemmSpec(accumulator=gs.acc.exact(f"{fmt}"))).item() == 2.0
        assert gs.qmatmul(a, b, f":chunked(1, fp32, {fmt})").item() == 0.0  # 1 becomes 0, then 0 + small


def test_layers_gradients_and_compiled_code():
    layer = gs.nn.QLinear(6, 4, spec="posit(8,2) : fp32")
    x = torch.randn(3, 6, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    weight = gs.quantize(layer.weight.detach(), "posit(8,2)")
    want = gs.qmatmul(gs.quantize(x.detach(), "posit(8,2)"), weight.t(), ":fp32") + layer.bias.detach()
    assert_bitwise_equal(y.detach(), want)
    assert x.grad is not None and layer.weight.grad is not None
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x), y)
    conv = gs.nn.QConv2d(2, 3, 3, spec="nf4 : e5m10")
    image = torch.randn(1, 2, 5, 5)
    rounded = torch.nn.functional.unfold(gs.quantize(image, "nf4"), 3)[0].t()
    filters = gs.quantize(conv.weight.detach(), "nf4").reshape(3, -1).t()
    assert_bitwise_equal(
        conv(image).detach(), (gs.qmatmul(rounded, filters, ":e5m10") + conv.bias.detach()).t().reshape(1, 3, 3, 3)
    )


def test_explains_and_records_what_ran():
    a = torch.ones(2, 2)
    gs.qmatmul(a, a, "nf4 : e5m10")
    assert gs.last_backend().backend == "cpu"
    gs.qmatmul(a, a, "e4m3 : posit(8,2)")
    assert gs.last_backend().backend == "stepwise"
    assert "looked up" in gs.explain("nf4 : e5m10") and "stepwise: yes" in gs.explain(":posit(8,2)")


def test_a_list_that_is_first_used_inside_a_graph_is_refused():
    with pytest.raises(CudaError, match="Run the product once before"):
        codebook_backend._numbers(parse_cast("nf4"), torch.device("cuda"))


def test_backends_say_why_they_have_no_kernel():
    for spec in ("nf4 : fp32", ":posit(8,2)", ":chunked(4, fp32, nf4)", ":mul=nf4, add=fp32"):
        assert "a list of values" in str(cpu.refuses(GemmSpec.parse(spec)))


@pytest.mark.parametrize("spec", [":chunked(4, posit(8,2), bf16/sr)", ":palette(posit(8,2), fp32)", ":binned(nf4)"])
def test_refuses_what_it_cannot_do(spec):
    select = torch.zeros(2, 2, dtype=torch.uint8) if "palette" in spec else None
    with pytest.raises(UnsupportedSpec, match="allowed"):
        gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2), spec, select=select)


def test_functions_say_that_they_take_no_lists():
    with pytest.raises(UnsupportedSpec, match="steps of functions"):
        gs.qsoftmax(torch.ones(2, 2), -1, gs.QSoftmaxFormats.of("posit(8,2)")) if hasattr(
            gs.QSoftmaxFormats, "of"
        ) else gs.qadd(torch.ones(2), torch.ones(2), Cast(codebook([0, 1])))
