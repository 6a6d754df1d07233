"""Results and gradients of emulated calls lie in memory as PyTorch's do: models take views of them, and dropout draws in
the order of memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import gemmsim as gs
from gemmsim.emulation import Rule

F = functional


def permuted(x, order):
    """The numbers of ``x``, whose dimensions lie in memory as ``order`` says."""
    return x.permute(order).contiguous().permute([order.index(i) for i in range(x.dim())])


def layouts(*shape):
    """The same shape in every layout that its rank has a name for."""
    x, n = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))), len(shape)
    found = {"plain": x, "sliced": torch.stack([x, x], -1).flatten(-2)[..., ::2], "rows": torch.cat([x, x[:1]])[1:]}
    if n > 1:
        found["transposed"] = permuted(x, [*range(n - 2), n - 1, n - 2])
    if n > 2:
        found["heads"] = permuted(x, [1, 0, *range(2, n)])
        found["channels last"] = permuted(x, [0, *range(2, n), 1])
    if n > 3:
        found["heads apart"] = permuted(x, [0, 2, 1, *range(3, n)])
    if shape[0] > 1:
        found["expanded"] = x[:1].expand(shape)
    return found


ATTENTION = F.scaled_dot_product_attention
CALLS = {
    "linear": (F.linear, [(3, 5), (4, 5)]),
    "linear with bias": (F.linear, [(2, 3, 5), (4, 5), (4,)]),
    "linear of four": (F.linear, [(2, 2, 3, 5), (4, 5)]),
    "mm": (torch.mm, [(3, 5), (5, 4)]),
    "addmm": (torch.addmm, [(3, 4), (3, 5), (5, 4)]),
    "bmm": (torch.bmm, [(2, 3, 5), (2, 5, 4)]),
    "baddbmm": (torch.baddbmm, [(2, 3, 4), (2, 3, 5), (2, 5, 4)]),
    "matmul of batches": (torch.matmul, [(2, 2, 3, 5), (2, 2, 5, 4)]),
    "einsum": (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), [(2, 2, 3, 5), (2, 2, 4, 5)]),
    "einsum to another order": (lambda a, b: torch.einsum("bij,jk->kib", a, b), [(2, 3, 5), (5, 4)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), [(2, 3, 5), (5, 4)]),
    "conv1d": (F.conv1d, [(2, 3, 7), (4, 3, 3)]),
    "conv2d": (F.conv2d, [(2, 3, 6, 5), (4, 3, 3, 3)]),
    "conv2d with stride": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), [(2, 3, 6, 5), (4, 3, 3, 3)]),
    "conv2d of one image": (F.conv2d, [(3, 6, 5), (4, 3, 3, 3)]),
    "conv3d": (F.conv3d, [(2, 3, 4, 5, 4), (4, 3, 2, 3, 2)]),
    "conv_transpose2d": (F.conv_transpose2d, [(2, 3, 6, 5), (3, 4, 3, 3)]),
    "attention": (ATTENTION, [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)]),
    "causal attention": (lambda q, k, v: ATTENTION(q, k, v, is_causal=True), [(2, 2, 3, 4)] * 3),
    "attention of three": (ATTENTION, [(2, 3, 4), (2, 5, 4), (2, 5, 4)]),
    "matmul by a matrix": (torch.matmul, [(2, 3, 5), (5, 4)]),
    "matmul of a matrix": (torch.matmul, [(3, 5), (2, 2, 5, 4)]),
    "mv": (torch.mv, [(3, 5), (5,)]),
    "bilinear": (F.bilinear, [(2, 5), (2, 4), (3, 5, 4)]),
    "conv2d of one position": (F.conv2d, [(2, 3, 6, 5), (4, 3, 1, 1)]),
    "cdist": (torch.cdist, [(2, 5, 3), (2, 4, 3)]),
    "cdist by a product": (torch.cdist, [(2, 30, 3), (2, 4, 3)]),
    "cdist of one batch": (torch.cdist, [(1, 30, 3), (4, 3)]),
    "matmul of a vector": (torch.matmul, [(5,), (2, 5, 4)]),
    "matmul of one batch": (torch.matmul, [(1, 3, 5), (5, 4)]),
    "matmul by one batch": (torch.matmul, [(3, 5), (1, 5, 4)]),
    "outer": (torch.outer, [(5,), (4,)]),
}


def strides(function, operands, spec, gradients):
    leaves = [t.detach().requires_grad_(gradients) for t in operands]
    if spec is None:
        y = function(*leaves)
    else:
        with gs.emulate(spec):
            y = function(*leaves)
    found = [y]
    if gradients:
        found += torch.autograd.grad(y, leaves, torch.ones_like(y))
    # A dimension of size 1 lies nowhere: its stride says nothing.
    return [tuple(step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1) for t in found]


@pytest.mark.parametrize("spec", [":fp32", "e4m3 : e5m10", ":bf16/sr"])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_gives_pytorchs_strides(name, spec):
    function, shapes = CALLS[name]
    kinds = [layouts(*shape) for shape in shapes]
    for label in sorted(set().union(*kinds)):
        for where in ("all", "first", "others"):
            operands = [
                kind.get(label if where == "all" or (i == 0) == (where == "first") else "plain", kind["plain"])
                for i, kind in enumerate(kinds)
            ]
            for gradients in (False, True):
                want = strides(function, operands, None, gradients)
                got = strides(function, operands, spec, gradients)
                assert got == want, f"{label}, {where}: {got}, PyTorch {want}"


def test_conv_tbc_gives_pytorchs_strides():
    """Of contiguous operands: PyTorch's own takes few others."""
    operands = [torch.randn(7, 2, 3), torch.randn(3, 3, 4), torch.randn(4)]
    for spec in (":fp32", "e4m3 : e5m10"):
        assert strides(torch.conv_tbc, operands, spec, True) == strides(torch.conv_tbc, operands, None, True)


def test_views_of_attention_with_heads_split_off():
    q = torch.randn(2, 5, 3, 4).transpose(1, 2)  # as every model does
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.zeros(5, 5)}):
        for grad in (False, True):
            leaf = q.detach().requires_grad_(grad)
            with gs.emulate(":fp32"):
                out = ATTENTION(leaf, leaf, leaf, **options).transpose(1, 2).view(2, 5, 12)
                plain = ATTENTION(*[q.contiguous()] * 3, **options)
            assert torch.equal(out, plain.transpose(1, 2).reshape(2, 5, 12))


@pytest.mark.parametrize("layer", [nn.Linear(3, 4), nn.Conv1d(3, 4, 1), nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 1)])
def test_dropout_after_a_layer_draws_the_mask_of_a_native_run(layer):
    shape = {nn.Linear: (2, 6, 5, 3), nn.Conv1d: (2, 3, 6), nn.Conv2d: (2, 3, 6, 5)}[type(layer)]
    for x in layouts(*shape).values():
        masks = []
        for emulated in (False, True):
            with gs.emulate(":fp32") if emulated else torch.enable_grad():
                y = layer(x)
                torch.manual_seed(0)
                masks.append(F.dropout(torch.ones_like(y) + 0 * y))
        assert torch.equal(*masks)


ROWS = {
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "group_norm": lambda x: F.group_norm(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "instance_norm": lambda x: F.instance_norm(x),
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": F.relu,
}


def upstreams(y):
    """Incoming gradients of ``y`` in several layouts."""
    ones = torch.ones(())
    return {
        "like the result": torch.ones_like(y),
        "expanded": ones.expand(y.shape),
        "expanded along rows": ones.expand(*y.shape[:-1], 1).contiguous().expand(y.shape),
        **{name: t for name, t in layouts(*y.shape).items() if name in ("plain", "transposed", "channels last")},
    }


@pytest.mark.parametrize("kind", ROWS)
def test_row_operations_give_pytorchs_strides(kind):
    for label, x in layouts(2, 3, 4, 5).items():
        with gs.emulate([Rule("*", kind, "e5m10")]):
            without = ROWS[kind](x)
        assert without.stride() == ROWS[kind](x).stride(), label
        leaf = x.detach().requires_grad_()
        with gs.emulate([Rule("*", kind, "e5m10")]):
            got = ROWS[kind](leaf)
        want = ROWS[kind](leaf)
        assert got.stride() == want.stride(), label
        for name, upstream in upstreams(want).items():
            ours, theirs = (torch.autograd.grad(y, leaf, upstream, retain_graph=True)[0] for y in (got, want))
            assert ours.stride() == theirs.stride(), (label, name)
