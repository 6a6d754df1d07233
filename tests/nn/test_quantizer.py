"""``gemmsim.nn.Quantizer``: the quantizer function as a module."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs


def test_it_rounds_both_ways():
    x = torch.randn(4, 32, requires_grad=True)
    layer = gs.nn.Quantizer("bfp(8,16)", "supernormal(4,3)", backward_rounding="rtz", backward_hooks=[torch.neg])
    y = layer(x)
    grad = torch.randn(4, 32)
    y.backward(grad)
    assert_bitwise_equal(y.detach(), gs.quantize(x.detach(), "bfp(8,16)"))
    assert_bitwise_equal(x.grad, gs.quantize(-grad, "supernormal(4,3)/rtz"))


def test_gradients_of_clamped_elements_are_zero():
    layer = gs.nn.Quantizer("fixed(4,2)", clamping_grad_zero=True)
    x = torch.tensor([0.3, 5.0, -9.0, 1.74], requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0, 1.0]
    with pytest.raises(gs.FormatError, match="clamping_grad_zero"):
        gs.nn.Quantizer("bfp(8,16)", clamping_grad_zero=True)


def test_it_travels_and_keeps_no_state():
    layer = gs.nn.Quantizer("binary8(3)", "bfp(8,tensor)", "sr8", backward_hooks=[torch.neg])
    assert not layer.state_dict() and not list(layer.parameters())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.function == layer.function
    assert repr(layer) == "Quantizer(forward=binary8(3)/sr8, backward=bfp(8,tensor), 1 backward hooks)"
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), gs.nn.Quantizer("e4m3"))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    assert set(torch.load(file, weights_only=True)) == {"0.weight", "0.bias"}


def test_it_compiles():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), gs.nn.Quantizer("bfp(8,4)", "e5m2"))
    x = torch.randn(2, 8)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x).detach(), model(x).detach())
