"""``torch.func.functionalize`` of every autograd function of the package, and of PyTorch's own answer for others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import gemmsim as gs
from gemmsim import tensor_quant as tq
from gemmsim.ops import functionalized

SPEC = "all_products(e4m3 : fp16)"
NORM = gs.nn.QLayerNorm(8, elementwise_affine=False, spec="e5m10")


def emulated(x, w):
    with gs.emulate(SPEC):
        return nn.functional.linear(x, w)


def in_place(x, y):
    with gs.emulate(SPEC):
        out = torch.zeros(x.shape[0], y.shape[1], dtype=x.dtype)
        out.add_(x @ y)
        out[0] = 1
        return out


def data(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


CASES = {
    "qmatmul": (lambda x, y: gs.qmatmul(x, y, SPEC), (4, 8), (8, 5)),
    "random bits": (lambda x, y: gs.qmatmul(x, y, "all_products(e4m3 : fp16/sr)", seed=3), (4, 8), (8, 5)),
    "qlinear": (lambda x, w: gs.qlinear(x, w, None, SPEC), (4, 8), (5, 8)),
    "convolution": (lambda x, w: gs.qconv1d(x, w, None, spec=SPEC), (2, 4, 8), (3, 4, 3)),
    "emulate": (emulated, (4, 8), (5, 8)),
    "emulate, written in place": (in_place, (4, 8), (8, 5)),
    "softmax": (lambda x: gs.nn.QSoftmax(-1, spec="e5m10")(x), (4, 8)),
    "layer norm": (lambda x: NORM(x), (4, 8)),
    "quantizer": (lambda x: gs.quantizer("e4m3")(x), (4, 8)),
    "blocks": (lambda x, y: gs.mx.trained_matmul(x, y, gs.mx.MXLinearConfig("mxfp8_e4m3")), (4, 32), (32, 4)),
    "fake quantisation": (lambda x: tq.fake_tensor_quant(x, torch.tensor(3.0)), (4, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_functionalised_calls_have_the_same_bits_and_gradients(name):
    function, *shapes = CASES[name]
    x, *rest = data(*shapes)
    want = function(x, *rest)
    for remove in ("mutations", "mutations_and_views"):
        made = torch.func.functionalize(function, remove=remove)
        assert torch.equal(made(x, *rest), want)
        assert torch.equal(make_fx(made)(x, *rest)(x, *rest), want)
        assert torch.equal(make_fx(made, tracing_mode="fake")(x, *rest)(x, *rest), want)
    grad = torch.func.grad(lambda x: function(x, *rest).sum())(x)
    assert torch.equal(torch.func.grad(lambda x: torch.func.functionalize(function)(x, *rest).sum())(x), grad)
    assert torch.equal(torch.func.functionalize(torch.func.grad(lambda x: function(x, *rest).sum()))(x), grad)
    leaf = x.clone().requires_grad_()
    torch.func.functionalize(function)(leaf, *rest).sum().backward()
    assert torch.equal(leaf.grad, grad)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"emulate, written in place", "random bits"}))
def test_with_vmap_inside_and_outside(name):
    function, *shapes = CASES[name]
    x, *rest = data(*((3, *shape) for shape in shapes))
    want = torch.stack([function(*each) for each in zip(x, *rest, strict=True)])
    batched = torch.func.vmap(function)
    assert torch.equal(torch.func.functionalize(batched)(x, *rest), want)
    assert torch.equal(torch.func.vmap(torch.func.functionalize(function))(x, *rest), want)


def test_the_graph_has_our_operators():
    function, *shapes = CASES["emulate"]
    graph = make_fx(torch.func.functionalize(function))(*data(*shapes)).graph
    assert any("gemmsim" in str(node.target) for node in graph.nodes)
    assert not any("aten.linear" in str(node.target) or "aten.mm" in str(node.target) for node in graph.nodes)


class Foreign(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_functions_of_others_have_pytorchs_answer():
    functionalized.install()  # again, which changes nothing
    for function in (Foreign.apply, torch.func.vmap(Foreign.apply)):
        with pytest.raises(RuntimeError, match="NYI: Functionalize rule"):
            torch.func.functionalize(function)(torch.ones(2))
