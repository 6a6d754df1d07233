"""Batches of gradients in one backward pass (``is_grads_batched``, vectorised Jacobians) are the gradients one by one."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import gemmsim as gs

SPECS = ["e4m3 : fp32", ":bf16", ":bf16/sr", "mxfp8_e4m3 : fp32", "hw(hopper, wgmma, e4m3)", gs.recipes.hopper_fp8()]
LAYERS = {
    "linear": (lambda: nn.Linear(6, 3), (5, 6)),
    "linear of three dimensions": (lambda: nn.Linear(6, 3), (2, 2, 6)),
    "conv": (lambda: nn.Conv2d(2, 3, 3, stride=2), (2, 2, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), (2, 2, 4)),
}


def batched_and_single(y, leaves):
    n = y.numel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, of operators that it runs one by one
        batch = torch.autograd.grad(y, leaves, torch.eye(n).view(n, *y.shape), is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(y, leaves, e.view(y.shape), retain_graph=True) for e in torch.eye(n)]
    return batch, [torch.stack(column) for column in zip(*single, strict=True)]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("passes", [1, 3])
def test_layers(name, spec, passes):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make(), torch.randn(*shape).requires_grad_()
    for _ in range(passes):  # the watcher of vanishing gradients looks at some passes and not at others
        with gs.emulate(spec):
            y = layer(x)
        for batch, single in zip(*batched_and_single(y, [x, layer.weight]), strict=True):
            assert torch.equal(batch, single)


@pytest.mark.parametrize("function", [
    lambda a, b: gs.qmatmul(a, b, "e4m3 : e5m10"),
    lambda a, b: gs.qlinear(a, b.mT, None, "e4m3 : e5m10"),
    lambda a, b: gs.qsoftmax(a @ b, -1, gs.QSoftmaxFormats.of("e5m10")),
    lambda a, b: gs.qmul(a, a, "e5m10", "e5m3"),
], ids=["qmatmul", "qlinear", "qsoftmax", "qmul"])  # fmt: skip
def test_functions(function):
    torch.manual_seed(1)
    a, b = torch.randn(3, 4).requires_grad_(), torch.randn(4, 3)
    batch, single = batched_and_single(function(a, b), [a])
    assert torch.equal(batch[0], single[0])


def test_vectorised_jacobians_of_converted_models():
    torch.manual_seed(0)
    model = gs.convert(nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)), "e4m3 : fp32")
    x = torch.randn(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fast = torch.autograd.functional.jacobian(model, x, vectorize=True)
    assert torch.equal(fast, torch.autograd.functional.jacobian(model, x))


def test_attention():
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 3, 4).requires_grad_() for _ in range(3))
    with gs.emulate("e4m3 : fp32"):
        y = functional.scaled_dot_product_attention(q, k, v)
    for batch, single in zip(*batched_and_single(y, [q, k, v]), strict=True):
        assert torch.equal(batch, single)
