"""``gs.quantizer``: rounds forward, rounds the gradient backward, passes straight through otherwise."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs


def run(q, x, grad):
    x = x.clone().requires_grad_()
    y = q(x)
    y.backward(grad)
    return y.detach(), x.grad


X, G = torch.randn(7, 9, generator=torch.Generator().manual_seed(1)) * 5, torch.randn(7, 9)


@pytest.mark.parametrize("forward", [None, "e4m3", "e5m2/rtz", "fixed(8,4)"])
@pytest.mark.parametrize("backward", [None, "e5m2", "bf16/ru"])
def test_forward_and_backward_round_separately(forward, backward):
    y, grad = run(gs.quantizer(forward, backward), X, G)
    assert_bitwise_equal(y, X if forward is None else gs.quantize(X, forward))
    assert_bitwise_equal(grad, G if backward is None else gs.quantize(G, backward))


def test_rounding_names():
    q = gs.quantizer("e4m3", "e5m2", "truncate", "up")
    assert q == gs.quantizer("e4m3/rtz", "e5m2/ru")
    assert q.forward == gs.formats.parse_cast("e4m3/rtz")
    assert gs.quantizer("e4m3/rtz").forward.rounding == gs.formats.Rounding.RTZ


@pytest.mark.parametrize("rounding", ["rne", "rtz", "sr8"])
def test_clamped_elements_get_no_gradient(rounding):
    x = torch.tensor([7.9, 7.9374, 7.97, 8.0, 100.0, torch.inf, -8.0, -8.02, -8.04, -100.0, torch.nan, 0.3])
    grad = torch.arange(1.0, 13.0)
    q = gs.quantizer("fixed(8,4)", None, rounding, clamping_grad_zero=True)
    torch.manual_seed(2)
    y, got = run(q, x, grad)
    torch.manual_seed(2)
    assert_bitwise_equal(y, gs.quantize(x, "fixed(8,4)", rounding=rounding), nan_is_nan=True)
    torch.manual_seed(2)
    free = gs.quantize(x, "fixed(8,4,unbounded)", rounding=rounding)
    clamped = (free > 7.9375) | (free < -8.0)
    assert clamped[3:6].all() and clamped[9] and not clamped[[0, 6, 10, 11]].any()
    assert_bitwise_equal(got, torch.where(clamped, 0.0, grad))


def test_hooks_then_mask_then_rounding():
    hooks = (lambda g: g * 3, lambda g: g + 1)
    x, grad = torch.tensor([0.0, 100.0]), torch.tensor([1.1, 1.1])
    _, got = run(gs.quantizer("fixed(8,4)", "e4m3", clamping_grad_zero=True, backward_hooks=hooks), x, grad)
    assert_bitwise_equal(got, torch.tensor([gs.quantize(torch.tensor(4.3), "e4m3").item(), 0.0]))


def test_gradients_keep_the_dtype_of_the_tensor():
    x = X.bfloat16().requires_grad_()
    gs.quantizer("e4m3", "e5m2")(x).sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_a_quantizer_is_a_value():
    q = gs.quantizer("e4m3", "e5m2")
    assert q == gs.quantizer("e4m3", "e5m2") != gs.quantizer("e4m3")
    assert hash(q) == hash(gs.quantizer("e4m3", "e5m2"))
    for same in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q)):
        assert same == q
        assert_bitwise_equal(same(X), q(X))


def test_the_input_is_never_changed_and_never_returned():
    x = X.clone()
    for forward in (None, "fp64", "e4m3"):
        y = gs.quantizer(forward)(x)
        assert y is not x
        y.detach().zero_()
        assert forward is None or torch.equal(x, X)
        x = X.clone()


def test_differentiating_twice_raises():
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(gs.quantizer("e4m3")(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(gs.GradError, match="first derivatives"):
        grad.sum().backward()
