"""Twice the audit's multiply-adds are what PyTorch's FLOP counter counts, for native and emulated runs."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import gemmsim as gs

SPEC = "e4m3 : e5m10"


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, x):
        return torch.einsum("btd,hde->bhte", x, self.w)


class Attention(nn.Module):
    """Products of activations."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x).mT, -1) @ x


def counted(model, x, *, config=None):
    emulation = gs.emulate(config) if config is not None else torch.enable_grad()
    with emulation, FlopCounterMode(display=False) as flops, sdpa_kernel(SDPBackend.MATH), gs.audit() as report:
        model(x).sum().backward()
    return flops.get_total_flops(), 2 * report.total_macs, report


class _First(nn.Module):
    """The first of what a module returns, which is called with its input n times over."""

    def __init__(self, inner, n=1):
        super().__init__()
        self.inner, self.n = inner, n

    def forward(self, x):
        out = self.inner(*[x] * self.n)
        return out[0] if isinstance(out, tuple) else out


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (5, 4)),
    "attention": (Attention, (2, 5, 8)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 2, 3)), (2, 3, 9, 7)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), (2, 5, 16)),
    "transformer": (lambda: _First(nn.Transformer(16, 2, 1, 1, 24, batch_first=True), 2), (2, 5, 16)),
    "multi-head": (lambda: _First(nn.MultiheadAttention(16, 2, batch_first=True), 3), (2, 5, 16)),
    "gru": (lambda: _First(nn.GRU(3, 4)), (5, 2, 3)),
    "rnn": (lambda: _First(nn.RNN(3, 4, 2)), (5, 2, 3)),
    "einsum": (Einsum, (2, 3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gradient", [True, False])
def test_totals_are_equal_native_and_emulated(name, gradient):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(*shape, requires_grad=gradient)
    native, audited, report = counted(model, x)
    assert native == audited > 0 and len(report.native) == len(report)
    flops, audited, emulated = counted(model, x, config=SPEC)
    assert flops == audited == native and not emulated.native and emulated.emulated_share == 1
    # The roles of native products are found from autograd's nodes, those of emulated ones are their own.
    kinds = [Counter((r.module, r.role, r.macs) for r in one) for one in (report, emulated)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_this_package(transposed, groups):
    """PyTorch 2.13 counts the weight's gradient of grouped convolutions without dividing by groups: left out there."""
    x, shape = (
        torch.randn(2, 4, 9, 8, requires_grad=True),
        (4, 6 // groups, 3, 2) if transposed else (6, 4 // groups, 3, 2),
    )
    weight = torch.randn(*shape, requires_grad=groups == 1)
    own = gs.qconv_transpose2d if transposed else gs.qconv2d
    torchs = F.conv_transpose2d if transposed else F.conv2d
    totals = []
    for call in (lambda: own(x, weight, spec=SPEC, stride=2, groups=groups),
                 lambda: torchs(x, weight, stride=2, groups=groups)):  # fmt: skip
        with FlopCounterMode(display=False) as flops, gs.audit() as report:
            call().sum().backward()
        totals += [flops.get_total_flops(), 2 * report.total_macs]
    assert len(set(totals)) == 1 and totals[0] > 0


def test_block_formats():
    a = gs.mx.to_mx(torch.randn(4, 64), "mxfp4")
    b = gs.mx.to_mx(torch.randn(64, 8), "mxfp4", dim=0)
    with FlopCounterMode(display=False) as flops, gs.audit() as report:
        a @ b
    assert flops.get_total_flops() == 2 * report.total_macs == 2 * 4 * 64 * 8


def test_sums_of_rows_are_no_products():
    """The bias's gradient of a layer is a product by ones inside, and none for those who count."""
    layer = gs.nn.QLinear(4, 6, spec=SPEC)
    with FlopCounterMode(display=False) as flops, gs.audit() as report:
        layer(torch.randn(5, 4)).sum().backward()
    assert [r.role for r in report] == ["fprop", "wgrad"] and flops.get_total_flops() == 2 * report.total_macs
