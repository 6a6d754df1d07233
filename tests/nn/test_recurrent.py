"""LSTM and GRU: torch's with identity formats, each step rounded once with narrow ones, values as modules."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import assert_near, largest
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import gemmsim as gs
from gemmsim import nn as gnn

IDENTITY = {"spec": ":fp32", "fwd_quant": "fp32", "bwd_quant": "fp32"}
LAYERS = {
    "plain": {},
    "stacked": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no-bias": {"num_layers": 2, "bias": False},
    "projected": {"proj_size": 3, "bidirectional": True},
}
CASES = [(kind, name) for name in LAYERS for kind in ("LSTM", "GRU") if (kind, name) != ("GRU", "projected")]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def tensors(found) -> list[torch.Tensor]:
    if isinstance(found, PackedSequence):
        return [found.data]
    return [found] if isinstance(found, torch.Tensor) else [t for part in found for t in tensors(part)]


#: Both sum in float32 in an order of their own: up to 6 steps of 2 layers, each of sums of at most 17 and 6 others.
ROUNDINGS = 6 * 2 * (17 + 6)


def pair(kind: str, *args, formats=IDENTITY, **kwargs):
    torch.manual_seed(0)
    module = getattr(nn, kind)(*args, **kwargs)
    return module, getattr(gnn, f"Q{kind}").from_float(copy.deepcopy(module), **formats)


def inputs(layout: str):
    if layout == "packed":
        return pack_padded_sequence(randn(6, 3, 4), [2, 6, 4], enforce_sorted=False)
    return randn(6, 4) if layout == "single" else randn(6, 3, 4)


@pytest.mark.parametrize("layout", ["batch", "single", "packed"])
@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda v: v)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_identity_formats_train_as_torch(kind, name, layout):
    module, ours = pair(kind, 4, 5, **LAYERS[name])
    x = inputs(layout)
    got, want = tensors(ours(x)), tensors(module(x))
    for y, z in zip(got, want, strict=True):
        assert_near(y, z, ROUNDINGS, size=1 + largest(z))
    got[0].square().sum().backward()
    want[0].square().sum().backward()
    for p, q in zip(ours.parameters(), module.parameters(), strict=True):
        assert_near(p.grad, q.grad, 3 * ROUNDINGS, size=1 + largest(q.grad))
    if layout != "packed":  # from a state
        state = ours(x)[1]
        for y, z in zip(tensors(ours(x, state)), tensors(module(x, state)), strict=True):
            assert_near(y, z, 2 * ROUNDINGS, size=1 + largest(z))


@pytest.mark.parametrize("shape", [(3, 4), (4,)], ids=["batch", "single"])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_with_identity_formats_train_as_torch(kind, shape):
    module, ours = pair(kind, 4, 5)
    x = randn(*shape)
    first = ours(x), module(x)
    got, want = tensors(ours(x, first[0])), tensors(module(x, first[1]))
    for y, z in zip(got, want, strict=True):
        assert_near(y, z, ROUNDINGS, size=1 + largest(z))
    got[0].square().sum().backward()
    want[0].square().sum().backward()
    for p, q in zip(ours.parameters(), module.parameters(), strict=True):
        assert_near(p.grad, q.grad, 3 * ROUNDINGS, size=1 + largest(q.grad))


def half(x: torch.Tensor) -> torch.Tensor:
    """Rounded to binary16 from float64: one rounding (numpy has no step between)."""
    return torch.from_numpy(x.double().numpy().astype("float16").astype("float64"))


def exact_lstm(gates: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    i, f, g, o = gates.double().chunk(4, -1)
    i, f, o, g = half(torch.sigmoid(i)), half(torch.sigmoid(f)), half(torch.sigmoid(o)), half(torch.tanh(g))
    c = half(half(f * c.double()) + half(i * g))
    return half(o * half(torch.tanh(c))), c


def test_every_step_of_a_cell_is_rounded_once():
    """float64 holds sums and products of binary16 exactly, and its functions come far nearer than half an ulp of it."""
    module, ours = pair("LSTMCell", 4, 5, formats={"spec": ":e5m10", "fwd_quant": "e5m10", "bwd_quant": "e5m10"})
    x = randn(64, 4).half().float()
    h, c = randn(64, 5).half().float(), randn(64, 5, 1)[..., 0].half().float()
    sides = ((x, ours.weight_ih, ours.bias_ih), (h, ours.weight_hh, ours.bias_hh))
    left, right = (gs.qlinear(a, w, b, ":e5m10").detach() for a, w, b in sides)
    gates = half(left.double() + right.double())
    for got, want in zip(ours(x, (h, c)), exact_lstm(gates, c), strict=True):
        assert_bitwise_equal(got.detach(), want.float())


def test_gates_round_once_and_so_do_their_gradients():
    x = (4 * randn(500)).half().float()
    for function, exact in ((gs.qsigmoid, torch.sigmoid), (gs.qtanh, torch.tanh)):
        leaf = x.clone().requires_grad_()
        y = function(leaf, "e5m10", "e5m10")
        assert_bitwise_equal(y.detach(), half(exact(x.double())).float())
        y.backward(torch.full_like(y, 0.75))
        d = y.detach().double()
        slope = half(d * half(1 - d)) if function is gs.qsigmoid else half(1 - half(d * d))
        assert_bitwise_equal(leaf.grad, half(0.75 * slope).float())
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 0.0])
    assert_bitwise_equal(gs.qsigmoid(ends, "e4m3"), torch.tensor([1.0, 0.0, torch.nan, 0.5, 0.5]), nan_is_nan=True)
    assert_bitwise_equal(gs.qtanh(ends, "e4m3"), torch.tensor([1.0, -1.0, torch.nan, -0.0, 0.0]), nan_is_nan=True)
    with pytest.raises(gs.DTypeError):
        gs.qtanh(torch.ones(2, dtype=torch.int32))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell", "GRUCell"])
def test_modules_are_built_copied_and_loaded_as_torchs(kind):
    formats = {"spec": "e4m3 : e5m10", "fwd_quant": "e5m10", "bwd_quant": "bf16"}
    module, ours = pair(kind, 4, 5, formats=formats)
    built = getattr(gnn, f"Q{kind}")(4, 5, **formats)
    assert isinstance(built, type(module))
    assert list(built.state_dict()) == list(module.state_dict())
    stream = io.BytesIO()
    torch.save(ours.state_dict(), stream)
    stream.seek(0)
    built.load_state_dict(torch.load(stream, weights_only=True))
    stream = io.BytesIO()
    torch.save(ours, stream)
    stream.seek(0)
    x = randn(3, 4)
    want = tensors(ours(x))
    for other in (built, copy.deepcopy(ours), torch.load(stream, weights_only=False)):
        for y, z in zip(tensors(other(x)), want, strict=True):
            assert torch.equal(y, z)
    assert "fwd_quant=e5m10" in repr(ours)
    assert next(copy.deepcopy(ours).double().parameters()).dtype is torch.float64
    with pytest.raises(TypeError, match="from_float"):
        type(ours).from_float(nn.Identity())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell", "GRUCell"])
def test_arguments_that_torch_refuses_are_refused_alike(kind):
    module, ours = pair(kind, 4, 5)
    bad = [(torch.ones(2, 2, 2, 4),), (torch.ones(3, 3),), (torch.ones(3, 4), torch.ones(2, 5))]
    if "LSTM" in kind:
        bad[2] = (torch.ones(3, 4), (torch.ones(2, 5), torch.ones(2, 5)))
    for arguments in bad:
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            module(*arguments)
        with pytest.raises(type(theirs.value)):
            ours(*arguments)
