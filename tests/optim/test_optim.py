"""Optimizers with rounded states: equal to torch.optim's without quantisers, to exact arithmetic with them."""

from __future__ import annotations

import copy
import io
import pickle
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import assert_near

import gemmsim as gs
from gemmsim.formats import parse_cast
from gemmsim.optim import QSGD, OptimizerError, QAdam, QAdamW, QOptim, multiply_add
from gemmsim.reference import round_value

PAIRS = {"sgd": (QSGD, torch.optim.SGD), "adam": (QAdam, torch.optim.Adam), "adamw": (QAdamW, torch.optim.AdamW)}
SETTINGS = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("sgd", {"momentum": 0.9, "nesterov": True, "maximize": True}),
    ("adam", {}),
    ("adam", {"weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("adam", {"amsgrad": True, "maximize": True, "eps": 1e-3}),
    ("adamw", {}),
    ("adamw", {"weight_decay": 0.5, "amsgrad": True}),
]  # fmt: skip


def parameters(dtype=torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((5, 4), (3,))]


def gradients(params, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator).to(p.dtype) for p in params]


def advance(optimizer, params, steps) -> None:
    for step in steps:
        for p, g in zip(params, gradients(params, step), strict=True):
            p.grad = g
        optimizer.step()


def assert_same(got, want) -> None:
    for a, b in zip(got, want, strict=True):
        assert_bitwise_equal(a.detach(), b.detach(), nan_is_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, options", SETTINGS, ids=str)
def test_without_quantisers_the_bits_are_those_of_torch(name, options, dtype):
    ours, theirs = PAIRS[name]
    a, b, c = parameters(dtype), parameters(dtype), parameters(dtype)
    advance(ours(a, lr=0.1, **options), a, range(5))
    advance(theirs(b, lr=0.1, **options), b, range(5))
    advance(QOptim(theirs(c, lr=0.1, **options)), c, range(5))
    assert_same(a, b)
    assert_same(c, b)


@pytest.mark.parametrize("name, options", SETTINGS, ids=str)
def test_float32_as_a_format_stays_within_its_roundings(name, options):
    ours, theirs = PAIRS[name]
    a, b = parameters(), parameters()
    advance(ours(a, lr=0.1, acc_quant="fp32", momentum_quant="fp32", **options), a, range(5))
    advance(theirs(b, lr=0.1, **options), b, range(5))
    for x, y in zip(a, b, strict=True):
        # Five steps of at most ten roundings each, of numbers below 8; Adam's quotient magnifies its moments' tenfold.
        assert (x - y).abs().max() <= 5 * 10 * 10 * 8 * 2.0**-24


def test_multiply_add_rounds_the_exact_value_once():
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 2.0**-149, -3.4e38, 1 + 2.0**-23])
    x, y = (torch.cat([torch.randn(300, generator=generator) * s, special.roll(n)]) for s, n in ((1, 0), (1e-3, 3)))
    z = 0.1
    for name in ("bf16", "e5m10/rtz", "e4m3/ftz", "fp32", "ieee_e4m3/sat", "fixed(8,4)", "e5m2/ru", "e8m20/ro"):
        cast, got = parse_cast(name), multiply_add(x, y, z, name)
        factor = torch.tensor(z).item()
        for i in range(300):
            exact = Fraction(x[i].item()) + Fraction(y[i].item()) * Fraction(factor)
            assert got[i].item() == round_value(exact, cast), (name, i)
        total = x[300:].double() + y[300:].double() * factor
        want = gs.quantize(total, cast).float()
        assert_bitwise_equal(got[300:], want, nan_is_nan=True)


def test_multiply_add_of_a_tie_that_float32_would_round_twice():
    # 1 + 2**-8 is a tie of bf16 and 2**-40 decides it; float32 loses that.
    x, y = torch.tensor([1 + 2.0**-8]), torch.tensor([2.0**-20])
    assert multiply_add(x, y, 2.0**-20, "bf16").item() == 1 + 2.0**-7
    assert multiply_add(x, y, -(2.0**-20), "bf16").item() == 1.0


def exact(x: Fraction, cast) -> Fraction:
    return Fraction(round_value(x, cast))


def test_sgd_against_fractions():
    cast = parse_cast("bf16")
    params = parameters()
    weights = [[exact(Fraction(v), cast) for v in p.flatten().tolist()] for p in params]
    for p, w in zip(params, weights, strict=True):
        p.data.copy_(torch.tensor([float(v) for v in w]).view_as(p))
    optimizer = QSGD(params, lr=0.125, momentum=0.75, dampening=0.5, momentum_quant="bf16", acc_quant="bf16")
    buffers: list = [None, None]
    for step in range(4):
        for i, g in enumerate(gradients(params, step)):
            d = [Fraction(v) for v in g.flatten().tolist()]
            if buffers[i] is None:
                buffers[i] = [exact(v, cast) for v in d]
            else:
                buffers[i] = [
                    exact(Fraction(3, 4) * b + Fraction(1, 2) * v, cast) for b, v in zip(buffers[i], d, strict=True)
                ]
            weights[i] = [exact(w - Fraction(1, 8) * b, cast) for w, b in zip(weights[i], buffers[i], strict=True)]
        advance(optimizer, params, [step])
    for p, w in zip(params, weights, strict=True):
        assert p.flatten().tolist() == [float(v) for v in w]


@pytest.mark.parametrize("name", PAIRS)
def test_weights_and_states_are_numbers_of_their_formats(name):
    options = {"momentum": 0.9} if name == "sgd" else {"amsgrad": True}
    params = parameters()
    optimizer = PAIRS[name][0](params, lr=0.1, momentum_quant="e5m4", acc_quant="e5m7", **options)
    advance(optimizer, params, range(3))
    for p in params:
        assert_bitwise_equal(gs.quantize(p.detach(), "e5m7"), p.detach())
        for key, value in optimizer.state[p].items():
            if key != "step":
                assert_bitwise_equal(gs.quantize(value, "e5m4"), value, context=key)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", ["acc", "kahan", "kahan16", "wrapper"])
def test_state_dict_resumes_with_the_same_bits(name, kind):
    ours, theirs = PAIRS[name]
    options = {"momentum": 0.9} if name == "sgd" else {"amsgrad": True}

    def make(params):
        if kind == "wrapper":
            formats = {
                "weight_quant": "e4m3",
                "grad_quant": "e5m2/sr8",
                "momentum_quant": "bf16",
                "acc_quant": "bf16/sr",
            }
            return QOptim(theirs(params, lr=0.1, **options), **formats)
        return ours(params, lr=0.1, momentum_quant="bf16/sr", acc_quant="bf16/sr", compensated=kind != "acc", **options)

    dtype = torch.bfloat16 if kind == "kahan16" else torch.float32
    straight, broken = parameters(dtype), parameters(dtype)
    torch.manual_seed(3)
    advance(make(straight), straight, range(6))
    torch.manual_seed(3)
    first = make(broken)
    advance(first, broken, range(3))
    stored = io.BytesIO()
    torch.save({"optimizer": first.state_dict(), "random": torch.get_rng_state()}, stored)
    stored.seek(0)
    state = torch.load(stored, weights_only=True)
    torch.manual_seed(99)
    second = make(broken)
    second.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    advance(second, broken, range(3, 6))
    assert_same(broken, straight)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("kind", ["sgd", "adamw", "wrapper"])
def test_copies_go_on_with_the_same_bits(kind, copier):
    params = parameters()
    if kind == "wrapper":
        optimizer = QOptim(torch.optim.AdamW(params, lr=0.1), weight_quant="e4m3", acc_quant="bf16")
    else:
        optimizer = PAIRS[kind][0](params, lr=0.1, acc_quant="bf16", momentum_quant="e5m10")
    advance(optimizer, params, range(2))
    other_params, other = copier((params, optimizer))
    advance(optimizer, params, range(2, 4))
    advance(other, other_params, range(2, 4))
    assert_same(other_params, params)


@pytest.mark.parametrize("name", PAIRS)
def test_state_dicts_of_torch_load_and_ours_load_there(name):
    ours, theirs = PAIRS[name]
    options = {"momentum": 0.9} if name == "sgd" else {}
    a, b = parameters(), parameters()
    first, second = ours(a, lr=0.1, **options), theirs(b, lr=0.1, **options)
    advance(first, a, range(2))
    advance(second, b, range(2))
    x, y = ours(a, lr=0.1, **options), theirs(b, lr=0.1, **options)
    x.load_state_dict(second.state_dict())
    y.load_state_dict(first.state_dict())
    advance(x, a, range(2, 4))
    advance(y, b, range(2, 4))
    assert_same(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_compensation_keeps_what_rounding_loses(name, dtype):
    """A thousand updates of 1/16 ulp of 1.0 move the weight as in exact arithmetic; without compensation it stays."""
    finals = {}
    for compensated in (False, True):
        p = torch.nn.Parameter(torch.ones(3, dtype=dtype))
        options = {"eps": 1e-30} if name != "sgd" else {}
        options |= {"weight_decay": 0.0} if name == "adamw" else {}
        optimizer = PAIRS[name][0]([p], lr=2.0**-12, acc_quant="bf16", compensated=compensated, **options)
        for _ in range(1024):
            p.grad = torch.full_like(p, -1.0)
            optimizer.step()
        finals[compensated] = p[0].item()
    assert finals[False] == 1.0
    # Adam's moments in bfloat16 make a step off by less than 8 u: of 0.25, less than a place of the weight, 2^-7.
    assert abs(finals[True] - 1.25) <= (2.0**-7 if name != "sgd" and dtype is torch.bfloat16 else 0)


def test_stochastic_updates_are_right_on_average_even_for_bfloat16_weights():
    torch.manual_seed(0)
    for make in (QSGD, QAdamW):
        p = torch.nn.Parameter(torch.ones(4000, dtype=torch.bfloat16))
        options = {"weight_decay": 0.0} if make is QAdamW else {}
        optimizer = make([p], lr=2.0**-10, acc_quant="bf16/sr16", **options)
        p.grad = torch.full_like(p, -1.0)
        optimizer.step()
        # 1 + 2**-10 is an eighth of the way to the next number: 4000 draws, standard deviation 4.1e-5 of their mean.
        assert abs(p.double().mean().item() - 1 - 2.0**-10) < 6 * 4.1e-5
        assert set(p.tolist()) == {1.0, 1 + 2.0**-7}


# Defects of mptorch 0.3.0 that these optimizers do not have.


def test_weight_decay_of_adamw_is_applied():
    p = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = QAdamW([p], lr=0.1, weight_decay=0.5, acc_quant="fp32")
    q = torch.nn.Parameter(torch.tensor([1.0]))
    theirs = torch.optim.AdamW([q], lr=0.1, weight_decay=0.5)
    advance(optimizer, [p], range(3))
    advance(theirs, [q], range(3))
    assert abs(p.item() - q.item()) <= 3 * 10 * 2.0**-24  # three steps of at most ten roundings of numbers up to 1


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_not_written(name):
    params = parameters()
    advance(PAIRS[name][0](params, lr=0.1, weight_decay=0.5, acc_quant="bf16", momentum_quant="bf16"), params, [0])
    assert_same([p.grad for p in params], gradients(params, 0))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_compensated_steps_go_on_counting(name):
    params = parameters()
    optimizer = PAIRS[name][0](params, lr=0.1, compensated=True)
    advance(optimizer, params, range(3))
    assert all(optimizer.state[p]["step"] == 3 for p in params)


@pytest.mark.parametrize("make", [lambda p: QSGD(p), lambda p: QAdamW(p), lambda p: QOptim(torch.optim.SGD(p, lr=0.1))])
def test_closures_run_once_with_gradients_and_errors_come_through(make):
    p = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer, calls = make([p]), []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    before = p.item()
    assert optimizer.step(closure).item() == 4.0
    assert calls == [True] and p.item() != before

    def broken():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        optimizer.step(broken)


def test_the_wrapper_keeps_its_order():
    """Gradient, master copy, step, accumulator, weight, momentum, one after the other on a number."""
    p = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = QOptim(torch.optim.SGD([p], lr=1.0, momentum=1.0), "e5m1", "e5m2", "e5m3", "e5m4")
    p.grad = torch.tensor([-0.28])
    optimizer.step()
    assert p.grad.item() == -0.25  # e5m2, so that the next two see it
    state = optimizer.state[p]
    assert state["master"].item() == 1.25 and p.item() == 1.0  # 1.25 is a tie of e5m1: even
    assert state["momentum_buffer"].item() == -0.25
    p.grad = torch.tensor([-0.0625 * 1.125])
    optimizer.step()
    assert p.grad.item() == -0.0625
    assert state["momentum_buffer"].item() == -0.3125
    assert state["master"].item() == 1.5625 and p.item() == 1.5


def test_the_maximum_of_amsgrad_is_rounded():
    params = parameters()
    optimizer = QOptim(torch.optim.Adam(params, lr=0.1, amsgrad=True), momentum_quant="e5m2")
    advance(optimizer, params, range(2))
    for p in params:
        found = optimizer.state[p]["max_exp_avg_sq"]
        assert found.any() and torch.equal(gs.quantize(found, "e5m2"), found)


def test_schedulers_groups_and_loading_share_one_optimizer():
    params = parameters()
    inner = torch.optim.SGD(params[:1], lr=1.0)
    optimizer = QOptim(inner, acc_quant="bf16")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    advance(optimizer, params, [0])
    scheduler.step()
    assert inner.param_groups[0]["lr"] == 0.5
    optimizer.add_param_group({"params": params[1:], "lr": 0.25})
    assert len(inner.param_groups) == len(optimizer.param_groups) == 2
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[1]["lr"] = 0.125
    assert inner.param_groups[1]["lr"] == 0.125
    advance(optimizer, params, [1])
    assert "master" in inner.state[params[0]] and "master" in inner.state[params[1]]


def test_parameters_without_gradient_stay():
    params = parameters()
    before = [p.detach().clone() for p in params]
    QOptim(torch.optim.Adam(params), weight_quant="e4m3", acc_quant="e4m3").step()
    QAdam(params, acc_quant="e4m3").step()
    assert_same(params, before)


def test_functions_are_quantisers():
    calls = []

    def acc(x, y, z):
        calls.append((x.shape, y.shape, z.shape))
        return x + y * z

    a, b = parameters(), parameters()
    advance(QSGD(a, lr=0.1, acc_quant=acc, momentum=0.9, momentum_quant=acc), a, range(2))
    advance(torch.optim.SGD(b, lr=0.1, momentum=0.9), b, range(2))
    assert len(calls) == 8
    for x, y in zip(a, b, strict=True):
        # Twice two multiply-adds of two roundings here and there, of numbers below 4.
        assert_near(x, y, 2 * 2 * 2, size=4.0)


def test_errors_say_what_is_allowed():
    params = parameters()
    with pytest.raises(OptimizerError, match="SGD, Adam and AdamW"):
        QOptim(torch.optim.RMSprop(params))
    with pytest.raises(AssertionError):
        QOptim(torch.optim.RMSprop(params))
    with pytest.raises(OptimizerError, match="acc_quant=3"):
        QSGD(params, acc_quant=3)
    with pytest.raises(OptimizerError, match="e4m33"):
        QAdamW(params, momentum_quant="e4m33q")
    with pytest.raises(ValueError, match="learning rate"):
        QSGD(params, lr=-1)
    with pytest.raises(ValueError, match="[Nn]esterov"):
        QSGD(params, nesterov=True)
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(OptimizerError, match="sparse"):
        QSGD([p]).step()


SEEDED = {
    "QSGD": lambda w, seed: QSGD([w], lr=2.0**-10, momentum=0.5, momentum_quant="bf16/sr8", acc_quant="bf16/sr16", seed=seed),
    "QSGD compensated": lambda w, seed: QSGD([w], lr=2.0**-10, acc_quant="bf16/sr16", compensated=True, seed=seed),
    "QAdam": lambda w, seed: QAdam([w], acc_quant="bf16/sr16", momentum_quant="bf16/sr", amsgrad=True, seed=seed),
    "QAdamW": lambda w, seed: QAdamW([w], acc_quant="bf16/sr16", compensated=True, seed=seed),
    "QOptim": lambda w, seed: QOptim(
        torch.optim.SGD([w], lr=2.0**-10, momentum=0.5), weight_quant="e5m6/sr4", grad_quant="e5m2/sr4",
        momentum_quant="bf16/sr8", acc_quant="bf16/sr16", seed=seed,
    ),
}  # fmt: skip


def replica(make, steps, *, seed, generator, state=None, start=None):
    """A weight after ``steps`` with the same gradients everywhere, and the optimizer."""
    weight = torch.nn.Parameter(torch.ones(500) if start is None else start.clone())
    optimizer = make(weight, seed)
    if state is not None:
        optimizer.load_state_dict(state)
    torch.manual_seed(generator)  # as data and dropout want it
    for step in steps:
        weight.grad = torch.linspace(-1, 0.3, 500) * (1 + step)
        optimizer.step()
    return weight.detach().clone(), optimizer


@pytest.mark.parametrize("name", SEEDED)
def test_replicas_with_equal_gradients_and_a_seed_stay_equal(name):
    first, _ = replica(SEEDED[name], range(5), seed=3, generator=0)
    second, _ = replica(SEEDED[name], range(5), seed=3, generator=1)
    assert torch.equal(first, second)
    assert not torch.equal(first, replica(SEEDED[name], range(5), seed=4, generator=0)[0])
    unseeded = [replica(SEEDED[name], range(5), seed=None, generator=g)[0] for g in (0, 1)]
    assert not torch.equal(*unseeded)


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_run_goes_on_where_its_state_says(name):
    whole, _ = replica(SEEDED[name], range(6), seed=3, generator=0)
    half, optimizer = replica(SEEDED[name], range(3), seed=3, generator=0)
    state = copy.deepcopy(optimizer.state_dict())
    assert all(group["rounding_steps"] == 3 for group in state["param_groups"])
    rest, _ = replica(SEEDED[name], range(3, 6), seed=3, generator=9, state=state, start=half)
    assert torch.equal(whole, rest)


def test_bits_of_a_seed_belong_to_parameters_steps_and_calls():
    """No two draws are the same, and a parameter without a gradient changes none of the others'."""
    ends = []
    for idle in (True, False):
        weights = [torch.nn.Parameter(torch.ones(300)) for _ in range(3)]
        optimizer = QSGD(weights, lr=2.0**-10, acc_quant="bf16/sr16", seed=1)
        seen = []
        for _ in range(2):
            for n, weight in enumerate(weights):
                weight.grad = None if idle and n == 0 else -torch.ones(300)
            optimizer.step()
            seen.append([w.detach().clone() for w in weights])
        ends.append(seen)
    assert torch.equal(ends[0][1][2], ends[1][1][2])
    (_, b, c), (_, later, _) = ends[0]
    assert not torch.equal(b, c) and not torch.equal(later - b, b - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_master_copies_are_as_wide_as_their_format(dtype, momentum):
    def run(steps, state=None, start=1.0):
        weight = torch.nn.Parameter(torch.full((2,), start, dtype=dtype))
        inner = torch.optim.SGD([weight], lr=2.0**-12, momentum=momentum)
        optimizer = QOptim(inner, weight_quant="bf16" if dtype == torch.bfloat16 else "fp16", acc_quant="fp32")
        if state is not None:
            optimizer.load_state_dict(state)
        for _ in range(steps):
            weight.grad = torch.full((2,), -1.0, dtype=dtype)
            optimizer.step()
        return weight, optimizer

    weight, optimizer = run(1024)
    wide = torch.nn.Parameter(torch.ones(2))
    plain = torch.optim.SGD([wide], lr=2.0**-12, momentum=momentum)
    for _ in range(1024):
        wide.grad = torch.full((2,), -1.0)
        plain.step()
    assert weight.dtype == weight.grad.dtype == dtype and torch.equal(weight.detach(), wide.detach().to(dtype))
    assert optimizer.state[weight]["master"].dtype == torch.float32
    assert torch.equal(optimizer.state[weight]["master"], wide.detach())
    half, first = run(512)
    rest, second = run(512, copy.deepcopy(first.state_dict()), half[0].item())
    assert torch.equal(second.state[rest]["master"], wide.detach())


@pytest.mark.parametrize("make", [
    lambda w: QSGD([w], acc_quant="fp32"), lambda w: QSGD([w], momentum=0.5, momentum_quant="fp16"),
    lambda w: QAdam([w], acc_quant="e5m10"), lambda w: QAdamW([w], momentum_quant="fp32", compensated=True),
])  # fmt: skip
def test_formats_that_the_weights_dtype_does_not_hold_are_refused(make):
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = make(weight)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(
        OptimizerError, match=r"of weights in bfloat16; allowed: formats whose numbers that dtype holds"
    ):
        optimizer.step()
    assert weight.tolist() == [1, 1]
