"""Delayed scaling: layers against an independent training in plain steps, states, checkpoints, ranks, compilation."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from support import assert_bitwise_equal
from support.processes import needs_processes, run_two_processes
from torch import nn
from torch.utils.checkpoint import checkpoint

import gemmsim as gs

CALLS = 3
RECIPE = gs.recipes.hopper_fp8_delayed(CALLS)


class Slow:
    """A layer as the recipe's documentation says it, step by step: Python's histories, elements, totals, scales."""

    def __init__(self, weight):
        self.weight = weight
        self.histories: dict[str, list[float]] = {"x": [], "w": [], "g": []}
        self.seen: dict[str, float] = {}

    def scale(self, name, largest):
        """(s, 1 / s) as binary32 numbers; 1 before the first call and for zeros."""
        most = max(self.histories[name][-CALLS:], default=0.0)
        up = torch.tensor(largest, dtype=torch.float32) / torch.tensor(most) if most > 0 else torch.tensor(1.0)
        up = up.clamp(max=torch.finfo(torch.float32).max)
        return up, 1.0 / up

    def begin(self):
        for name, amax in self.seen.items():
            self.histories[name].append(amax)
        self.seen = {}
        self.scales = {name: self.scale(name, 57344.0 if name == "g" else 448.0) for name in "xwg"}

    def cast(self, name, t):
        finite = t[t.isfinite()]
        self.seen[name] = float(finite.abs().max()) if finite.numel() else 0.0
        return gs.quantize(t * self.scales[name][0], "e5m2/sat" if name == "g" else "e4m3/sat")

    def product(self, a, b, names, instruction):
        total = gs.qmatmul(a, b, f":{instruction}")
        scale = self.scales[names[0]][1] * self.scales[names[1]][1]
        return (total.double() * scale.double()).float()  # 48 bits at most, rounded once

    def step(self, x, g):
        """The output and the gradients of input and weight."""
        self.begin()
        qx, qw = self.cast("x", x), self.cast("w", self.weight)
        out = self.product(qx, qw.T, "xw", "hw(hopper, wgmma, e4m3)")
        qg = self.cast("g", g)
        promoted = "promote(hw(hopper, wgmma, e5m2, e4m3), 128)"
        return out, self.product(qg, qw, "gw", promoted), self.product(qg.T.contiguous(), qx, "gx", promoted)


def test_a_layer_against_plain_steps():
    torch.manual_seed(0)
    layer = gs.nn.QLinear(300, 24, bias=False, spec=RECIPE)
    slow = Slow(layer.weight.detach())
    for step, size in enumerate((1.0, 30.0, 0.01, 2.0, 5.0, 1e-3)):
        x, g = torch.randn(40, 300) * size, torch.randn(40, 24) / size
        if step == 3:
            x[0, 0], x[1, 1] = torch.inf, torch.nan  # they do not count for the largest magnitude
        x.requires_grad_()
        out = layer(x)
        layer.weight.grad = None
        out.backward(g)
        want = slow.step(x.detach(), g)
        for name, got, wanted in zip(
            ("output", "input", "weight"), (out, x.grad, layer.weight.grad), want, strict=True
        ):
            assert_bitwise_equal(got.detach(), wanted, nan_is_nan=True, context=f"step {step}, {name}")


def test_the_history_of_a_call_that_sees_no_gradient():
    layer = gs.nn.QLinear(4, 2, spec=RECIPE)
    x = torch.full((3, 4), 2.0)
    layer(x).sum().backward()
    layer(x)  # the second call moves the notes of the first one on, and sees no gradient
    layer(4 * x)
    history = layer.amax_history
    assert history[0].tolist() == [8.0, 2.0, 2.0, 2.0, 0.0] and history[2].tolist() == [-1.0, 1.0, 1.0, 0.0, 0.0]
    before = history.clone()
    layer.eval()
    layer(100 * x)
    assert torch.equal(layer.amax_history, before)  # an evaluation changes nothing


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))


def layers(model=None):
    model = network() if model is None else model
    for index in (0, 2):
        model[index] = gs.nn.QLinear.from_float(model[index], RECIPE)
    return model


def batches():
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(8, 32, generator=generator) * (1 + index % 3) for index in range(6)]


def train(model, data, reentrant=None):
    """The weights after some steps; ``reentrant``: in a checkpoint of that kind."""
    for x in data:
        out = model(x) if reentrant is None else checkpoint(model, x.clone().requires_grad_(), use_reentrant=reentrant)
        out.square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture(scope="module")
def uninterrupted():
    return train(layers(), batches())


def test_layers_emulation_and_converted_models_have_equal_bits(uninterrupted):
    with gs.emulate(RECIPE, step=0):
        assert torch.equal(train(network(), batches()), uninterrupted)
    assert torch.equal(train(gs.convert(network(), "hopper_fp8_delayed(3)"), batches()), uninterrupted)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_have_equal_bits(uninterrupted, reentrant):
    assert torch.equal(train(layers(), batches(), reentrant), uninterrupted)
    assert torch.equal(train(gs.convert(network(), RECIPE), batches(), reentrant), uninterrupted)
    with gs.emulate(RECIPE, step=0):
        assert torch.equal(train(network(), batches(), reentrant), uninterrupted)


def test_resumed_runs_have_equal_bits(uninterrupted):
    first = layers()
    train(first, batches()[:3])
    second = layers()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert torch.equal(train(second, batches()[3:]), uninterrupted)

    model = gs.convert(network(), RECIPE)
    train(model, batches()[:3])
    weights, state = copy.deepcopy(model.state_dict()), json.loads(json.dumps(gs.emulation.state_dict(model)))
    assert torch.equal(train(copy.deepcopy(model), batches()[3:]), uninterrupted)
    again = gs.convert(network(), RECIPE)
    again.load_state_dict(weights)
    gs.emulation.load_state_dict(state, again)
    assert torch.equal(train(again, batches()[3:]), uninterrupted)


def test_resumed_emulation_has_equal_bits(uninterrupted):
    model = network()
    with gs.emulate(RECIPE, seed=41):
        train(model, batches()[:3])
    weights, state = copy.deepcopy(model.state_dict()), json.loads(json.dumps(gs.emulation.state_dict()))
    with gs.emulate(RECIPE, seed=41):  # the same process goes on where it was
        assert torch.equal(train(model, batches()[3:]), uninterrupted)
    again = network()
    again.load_state_dict(weights)
    gs.emulation.load_state_dict(state)
    with gs.emulate(RECIPE, seed=41):
        assert torch.equal(train(again, batches()[3:]), uninterrupted)


def test_compiled_layers_have_equal_bits(uninterrupted):
    model = layers()
    compiled = torch.compile(model, fullgraph=True)
    train(compiled, batches())
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), uninterrupted)


@needs_processes
def test_two_ranks_have_the_scales_of_one(tmp_path):
    run_two_processes(
        """
def run(rows, shared):
    torch.manual_seed(1)
    layer = gs.nn.QLinear(16, 8, bias=False, spec="hopper_fp8_delayed(2)")
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 16, generator=generator) * torch.arange(1, 9)[:, None]
        g = torch.randn(8, 8, generator=generator)
        layer(x[rows]).backward(g[rows])
        if shared:
            gs.emulation.reduce_amax(layer)
    return layer.amax_history

mine, whole = run(slice(4 * rank, 4 * rank + 4), True), run(slice(0, 8), False)
assert torch.equal(mine, whole), (mine, whole)
assert not torch.equal(run(slice(4 * rank, 4 * rank + 4), False), whole) or rank == 1
""",
        tmp_path,
    )


def test_state_dicts():
    layer = gs.nn.QLinear(4, 2, spec=RECIPE)
    assert list(layer.state_dict()) == ["weight", "bias", "amax_history"]
    assert list(gs.nn.QLinear(4, 2, spec="hopper_fp8_current").state_dict()) == ["weight", "bias"]
    layer(torch.ones(1, 4))
    layer.load_state_dict(nn.Linear(4, 2).state_dict())  # no history: it begins anew
    assert layer.amax_history[:, 0].tolist() == [-1.0] * 3
    other = gs.nn.QLinear(4, 2, spec=gs.recipes.hopper_fp8_delayed(7))
    with pytest.raises(gs.ShapeError, match=r"amax_history of 7 calls .* delays by 3"):
        layer.load_state_dict(other.state_dict())
    layer.spec = "bf16 : fp32"  # no delayed scales, no history
    assert list(layer.state_dict()) == ["weight", "bias"]
    half = gs.nn.QLinear(4, 2, spec=RECIPE).bfloat16()
    assert half.weight.dtype == torch.bfloat16 and half.amax_history.dtype == torch.float32


def test_bad_input():
    with pytest.raises(gs.formats.FormatError, match="without the amax of earlier calls"):
        gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2), "e4m3@tensor/delayed(4) : fp32")
    for text in ("e4m3@1x32/delayed(4)", "e4m3@tensor/hadamard(16)/delayed(4)", "e4m3@tensor/delayed(65537)"):
        with pytest.raises(gs.formats.FormatError, match="delayed"):
            gs.formats.parse(text)
    with pytest.raises(gs.arithmetic.UnsupportedSpec, match="QConv2d with delayed scales"):
        gs.nn.QConv2d(1, 1, 3, spec=RECIPE)
    mixed = gs.QAffineFormats(fprop="e4m3@tensor/delayed(4) : fp32", dgrad="bf16 * e4m3@tensor/delayed(5) : fp32")
    with pytest.raises(gs.arithmetic.SpecError, match="the second operand delayed by 4 and, in dgrad, by 5 calls"):
        gs.nn.QLinear(4, 4, spec=mixed)
    with gs.emulate(RECIPE), pytest.raises(gs.arithmetic.UnsupportedSpec, match="without .*delayed"):
        nn.functional.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2))
    state = gs.emulation.state_dict()
    state["contexts"] = [{"config": "x", "seed": 0, "steps": 0, "amax_histories": {"a": [[]]}}]
    with pytest.raises(gs.emulation.ConfigError, match="amax histories"):
        gs.emulation.load_state_dict(state)
