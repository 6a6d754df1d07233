"""Results of emulated calls are changed in place where PyTorch's may be: none of them is a view made by a function."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gemmsim as gs

F = functional


def leaf(*shape):
    g = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=g).requires_grad_()


CALLS = {
    "linear": lambda: F.linear(leaf(2, 3, 5), leaf(4, 5)),
    "linear with bias": lambda: F.linear(leaf(2, 2, 3, 5), leaf(4, 5), leaf(4)),
    "linear of a vector": lambda: F.linear(leaf(5), leaf(4, 5)),
    "matmul": lambda: torch.matmul(leaf(2, 3, 5), leaf(5, 4)),
    "matmul of a vector": lambda: torch.matmul(leaf(2, 3, 5), leaf(5)),
    "vector by matrix": lambda: torch.matmul(leaf(5), leaf(5, 4)),
    "bmm": lambda: torch.bmm(leaf(2, 3, 5), leaf(2, 5, 4)),
    "baddbmm": lambda: torch.baddbmm(leaf(2, 3, 4), leaf(2, 3, 5), leaf(2, 5, 4)),
    "addmm": lambda: torch.addmm(leaf(4), leaf(3, 5), leaf(5, 4)),
    "einsum": lambda: torch.einsum("bij,jk->bik", leaf(2, 3, 5), leaf(5, 4)),
    "tensordot": lambda: torch.tensordot(leaf(2, 3, 5), leaf(5, 4), 1),
    "outer": lambda: torch.outer(leaf(5), leaf(4)),
    "bilinear": lambda: F.bilinear(leaf(2, 5), leaf(2, 4), leaf(3, 5, 4)),
    "conv1d": lambda: F.conv1d(leaf(2, 3, 7), leaf(4, 3, 3)),
    "conv2d": lambda: F.conv2d(leaf(2, 3, 5, 5), leaf(4, 3, 3, 3), leaf(4)),
    "conv2d of one image": lambda: F.conv2d(leaf(3, 5, 5), leaf(4, 3, 3, 3)),
    "conv_transpose2d": lambda: F.conv_transpose2d(leaf(2, 3, 5, 5), leaf(3, 4, 3, 3)),
    "attention": lambda: F.scaled_dot_product_attention(leaf(2, 2, 3, 4), leaf(2, 2, 3, 4), leaf(2, 2, 3, 4)),
}
SPECS = [":bf16", "e4m3 : fp32", ":bf16/sr", "mxfp8_e4m3 : fp32"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", CALLS)
def test_every_result_may_be_changed_in_place(name, spec):
    found = []
    for change in (False, True):
        with gs.emulate(spec, seed=3, step=0):
            y = CALLS[name]()
        if change:
            y += 1
            y[..., 0] = 0
            y.mul_(2)
        else:
            y = torch.cat([torch.zeros_like(y[..., :1]), (y + 1)[..., 1:]], -1) * 2
        y.square().sum().backward()
        found.append(y.detach())
    assert torch.equal(*found)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("how", ["context", "converted", "checkpoint", "audited"])
def test_networks_with_in_place_activations(spec, how):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.SiLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(2, 3, 8)
    if how == "converted":
        gs.convert(net, spec)(x).sum().backward()
    else:
        with gs.emulate(spec):
            if how == "audited":
                with gs.audit():
                    net(x).sum().backward()
            elif how == "checkpoint":
                checkpoint(net, x, use_reentrant=False).sum().backward()
            else:
                net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
