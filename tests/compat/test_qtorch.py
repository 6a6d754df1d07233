"""QPyTorch's functions, quantizers and optimizer wrapper."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch
from support import GOLDEN, assert_bitwise_equal, assert_values_equal

import gemmsim as gs
from gemmsim.compat import qtorch

with np.load(GOLDEN / "qpytorch_nearest.npz") as stored:
    DATA = {key: stored[key] for key in stored.files}
ROWS = json.loads(str(DATA["index_json"]))


@pytest.mark.parametrize("key, given, function, kwargs", ROWS, ids=[f"{row[0]}-{row[2]}" for row in ROWS])
def test_stored_values(key, given, function, kwargs):
    exact = DATA.get(f"{key}__exact")
    want, x = torch.from_numpy(DATA[key]), torch.from_numpy(DATA[given])
    where = None
    if exact is not None:
        where = torch.from_numpy(np.unpackbits(exact)[: want.numel()].astype(bool)).view(want.shape)
    call = getattr(qtorch, function)
    fields = {**kwargs, "rounding": "nearest"}
    assert_values_equal(call(x, **fields), want, where, context=str(fields))
    assert_values_equal(call(x, **fields, bug_compatible=True), want, None, context=f"{fields} bug_compatible")


def test_ties_and_specials():
    x = torch.tensor([1.0625, -1.0625, math.inf, math.nan])
    got = qtorch.float_quantize(x, 4, 3, "nearest")
    assert_bitwise_equal(got, torch.tensor([1.125, -1.125, 480.0, math.nan]), nan_is_nan=True)
    assert qtorch.fixed_point_quantize(torch.tensor([0.5, 1.5, -9.0]), 4, 0, rounding="nearest").tolist() == [0, 2, -8]
    assert qtorch.block_quantize(torch.tensor([1.0, 0.125, -0.125]), 4, rounding="nearest").tolist() == [1, 0.25, 0]
    assert qtorch.float_quantize(torch.ones(2, dtype=torch.bfloat16), 4, 3).dtype == torch.bfloat16
    rows = qtorch.block_quantize(torch.tensor([[1.0, 0.3], [4.0, 0.3]]), 3, 0, "nearest")
    assert rows.tolist() == [[1.0, 0.5], [4.0, 0.0]]
    draws = [qtorch.float_quantize(torch.rand(9), 4, 1, generator=torch.Generator().manual_seed(1)).shape for _ in "a"]
    assert draws == [(9,)]


def test_errors():
    x = torch.ones(3)
    with pytest.raises(AssertionError, match="nearest"):
        qtorch.float_quantize(x, 4, 3, "up")
    with pytest.raises(ValueError, match="fl"):
        qtorch.fixed_point_quantize(x, -1, 3)
    with pytest.raises(ValueError, match="repeated"):
        qtorch.block_quantize(x, 8, bug_compatible=True)
    with pytest.raises(AssertionError):
        qtorch.FixedPoint(8, 0)
    with pytest.raises(AssertionError):
        qtorch.FloatingPoint(4, 0)
    with pytest.raises(ValueError, match="FixedPoint"):
        qtorch.quantizer(qtorch.FloatingPoint(4, 3), clamping_grad_zero=True)
    with pytest.raises(AssertionError, match="clamp"):
        qtorch.quantizer(qtorch.FixedPoint(8, 2, clamp=False), clamping_grad_zero=True)
    with pytest.raises(AssertionError, match="SGD"):
        qtorch.OptimLP(torch.optim.RMSprop([torch.ones(1, requires_grad=True)]))


@pytest.mark.parametrize("departing", [False, True])
def test_quantizers_round_forward_and_backward(departing):
    number, back = qtorch.FixedPoint(4, 1), qtorch.FloatingPoint(5, 2)
    hooked = []
    rounded = qtorch.quantizer(
        number, back, "nearest", "nearest", True, [lambda g: hooked.append(1) or g * 3], bug_compatible=departing
    )
    x = torch.tensor([0.3, 100.0, -100.0, 3.5], requires_grad=True)
    y = rounded(x)
    assert y.tolist() == [0.5, 3.5, -4.0, 3.5]
    y.backward(torch.tensor([1.1, 1.0, 1.0, 0.7]))
    assert x.grad.tolist() == [3.5, 0.0, 0.0, 2.0] and hooked == [1]
    same = qtorch.Quantizer(None, None)
    assert torch.equal(same(x), x)


def test_the_optimizer_wrapper_rounds_in_order():
    def grid(step):
        return lambda t: (t / step).round() * step

    p = torch.tensor([1.0, 2.0], requires_grad=True)
    low = qtorch.OptimLP(
        torch.optim.SGD([p], lr=1.0, momentum=0.5), grid(1.0), 2.0, grid(0.5), grid(0.25), acc_quant=grid(0.125)
    )
    accumulator, momentum = torch.tensor([1.0, 2.0]), None
    for step in range(3):
        p.grad = torch.tensor([0.13, -0.2]) * (step + 1)
        gradient = grid(0.5)(p.grad * 2.0)
        momentum = gradient if momentum is None else momentum * 0.5 + gradient
        accumulator = grid(0.125)(accumulator - momentum)
        momentum = grid(0.25)(momentum)
        low.step()
        assert torch.equal(p, grid(1.0)(accumulator)) and torch.equal(low.weight_acc[p], accumulator)
        low.zero_grad()
    saved = low.state_dict()
    other = torch.tensor([0.0, 0.0], requires_grad=True)
    again = qtorch.OptimLP(torch.optim.SGD([other], lr=1.0, momentum=0.5), acc_quant=grid(0.125))
    again.load_state_dict(saved)
    assert torch.equal(again.weight_acc[other], accumulator)


def _trained(seed, steps=4, saved=None, number=None, draws=True):
    """Weights, momenta and accumulators after some steps with stochastic quantisers of every role, and the wrapper."""
    number = qtorch.FixedPoint(10, 4) if number is None else number
    rounded = qtorch.quantizer(number, forward_rounding="stochastic")
    ps = [torch.full((32,), 0.31, requires_grad=True), torch.full((32,), 0.31, requires_grad=True)]
    inner = torch.optim.SGD([{"params": ps[:1]}, {"params": ps[1:]}], lr=0.1, momentum=0.9)
    low = qtorch.OptimLP(inner, rounded, 1.0, rounded, rounded, rounded, seed=seed)
    if saved is not None:
        low.load_state_dict(saved[0])
        with torch.no_grad():
            for p, old in zip(ps, saved[1], strict=True):
                p.copy_(old)
    for _ in range(steps):
        for p in ps:
            p.grad = torch.full((32,), 0.27)
        low.step()
        if draws:
            torch.rand(3)
    weights = [p.detach() for p in ps]
    return [*weights, *low.weight_acc.values(), *(inner.state[p]["momentum_buffer"] for p in ps)], low, weights


def test_the_optimizer_wrapper_draws_from_its_seed():
    first, _, weights = _trained(7)
    assert all(map(torch.equal, first, _trained(7, draws=False)[0])), "whatever else draws"
    assert all(one.unique().numel() > 1 for one in first) and not torch.equal(*weights), "the parameter's place"
    assert not torch.equal(first[0], first[2]), "the quantiser"
    assert not torch.equal(weights[0], _trained(8)[2][0])
    _, low, half = _trained(7, 2)
    again = _trained(7, 2, (copy.deepcopy(low.state_dict()), half))[0]
    assert all(map(torch.equal, first, again)), "the number of steps, which a saved state counts"


def test_each_rounding_draws_by_itself():
    """Of every step, parameter, quantiser and moment, and the same again from the same seed."""

    def draws(seed):
        found = []

        def quant(t):
            found.append(torch.rand(()).item())
            return t

        ps = [torch.ones(2, requires_grad=True) for _ in range(2)]
        low = qtorch.OptimLP(torch.optim.Adam(ps, lr=0.1), quant, 1.0, quant, quant, quant, seed=seed)
        for _ in range(3):
            for p in ps:
                p.grad = torch.ones(2)
            low.step()
        return found

    first = draws(7)
    assert len(first) == len(set(first)) == 3 * 2 * 5  # gradient, accumulator, weight, two moments
    assert draws(7) == first and not set(draws(8)) & set(first)


def test_a_seed_leaves_the_generator_and_none_draws_from_it():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    _trained(7, draws=False)
    assert torch.equal(torch.get_rng_state(), before)
    one, two = (_trained(None, draws=False) for _ in range(2))
    assert not torch.equal(one[2][0], two[2][0]) and "rounding_steps" not in one[1].param_groups[0]
    with pytest.raises(gs.SeedError, match="OptimLP"):
        _trained(-1)
    with pytest.raises(ZeroDivisionError):
        low = qtorch.OptimLP(torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1), lambda w: w / (1 // 0), seed=1)
        low.step()
    torch.set_rng_state(before)


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2, return_indices=True)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        pooled, where = self.body(x)
        assert where.dtype == torch.int64
        return self.head(pooled.flatten(1))


def test_layers_are_lowered_by_type():
    torch.manual_seed(0)
    model, x = _Model().eval(), torch.randn(2, 1, 6, 6)
    keys, seen = list(model.state_dict()), {}
    number = qtorch.FixedPoint(8, 4)
    copied = qtorch.auto_low.sequential_lower(model, ["conv", "linear"], number, None, "nearest")
    assert isinstance(copied.body[0], torch.nn.Sequential) and type(copied.body[2]) is torch.nn.ReLU
    assert type(model.head) is torch.nn.Linear and list(model.state_dict()) == keys
    want = model.head(_pooled(model, x, lambda t: qtorch.fixed_point_quantize(t, 8, 4, rounding="nearest")))
    assert_bitwise_equal(copied(x), qtorch.fixed_point_quantize(want, 8, 4, rounding="nearest"))

    qtorch.auto_low.lower(model, ["conv", "linear", "pool"], number, number, "nearest", "nearest")
    assert list(model.state_dict()) == keys
    model.body[0].register_forward_hook(lambda layer, args, y: seen.setdefault("conv", y))
    leaf = x.clone().requires_grad_()
    y = model(leaf)
    for result in (y, seen["conv"]):
        assert torch.equal(result * 16, (result * 16).round())
    y.backward(torch.full_like(y, 0.3))
    assert torch.equal(model.head.bias.grad, torch.full((3,), 2 * 5 / 16))  # 0.3 on the grid of sixteenths
    with pytest.raises(AssertionError, match="allowed: conv"):
        qtorch.auto_low.lower(model, ["attention"])


def _pooled(model, x, quant):
    rest = model.body[1:]
    return rest(quant(model.body[0](x)))[0].flatten(1)


def test_the_module_departs_too():
    x = torch.tensor([0.50000006, math.nan])
    number = qtorch.FixedPoint(8, 4)
    module = qtorch.Quantizer(qtorch.FloatingPoint(4, 3), number, "nearest", "nearest", bug_compatible=True)
    want = qtorch.float_quantize(x, 4, 3, rounding="nearest", bug_compatible=True)
    assert torch.equal(module(x), want) and not want.isnan().any()
    assert qtorch.Quantizer(qtorch.FloatingPoint(4, 3), None, "nearest")(x)[1].isnan()


def test_what_is_no_number_raises():
    for number in (3, "e4m3"):
        with pytest.raises(TypeError, match="allowed: FixedPoint, FloatingPoint, BlockFloatingPoint"):
            qtorch.quantizer(number)
        with pytest.raises(TypeError, match="allowed: FixedPoint, FloatingPoint, BlockFloatingPoint"):
            qtorch.Quantizer(None, number)
