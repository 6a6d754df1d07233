"""Steps of random bits: each call of a model draws new ones, wherever its context stands, and a run can go on."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gemmsim as gs
from gemmsim.emulation import ConfigError, arithmetic_of, load_state_dict, state_dict
from gemmsim.ops.errors import SeedError

RANDOM = ":bf16/sr"
X = torch.rand(16, 256, generator=torch.Generator().manual_seed(0))


def layer() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(256, 4, bias=False)


def taken(n, seed, **options):
    """n results, each in a context of its own."""
    net, found = layer(), []
    for _ in range(n):
        with gs.emulate(RANDOM, seed, **options):
            found.append(net(X).detach())
    return found


def distinct(results) -> int:
    return len({t.numpy().tobytes() for t in results})


def same(first, second) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def in_the_loop(net):
    found = []
    for _ in range(20):
        with gs.emulate(RANDOM, 101):
            found.append(net(X).detach())
    return found


def in_one_context(net):
    with gs.emulate(RANDOM, 102):
        return [net(X).detach() for _ in range(20)]


def decorated(net):
    step = gs.emulate(RANDOM, 103)(lambda: net(X).detach())
    return [step() for _ in range(20)]


def generated(net):
    @gs.emulate(RANDOM, 104)
    def run():
        for _ in range(2):
            yield net(X).detach()

    return [out for _ in range(10) for out in run()]


def one_object(net):
    context, found = gs.emulate(RANDOM, 105), []
    for _ in range(20):
        with context:
            found.append(net(X).detach())
    return found


def functions(net):
    found = []
    for _ in range(20):
        with gs.emulate(RANDOM, 106):
            found.append(X @ net.weight.detach().T)
    return found


def converted(net):
    gs.convert(net, RANDOM)
    return [net(X).detach() for _ in range(20)]


def carried(net):
    with gs.emulate(RANDOM, 107):
        call = gs.emulation.carry(lambda: net(X).detach())
    return [call() for _ in range(20)]


def compiled(net):
    torch._dynamo.reset()

    @torch.compile(backend="eager", fullgraph=True)
    def step():
        with gs.emulate(RANDOM, 108):
            return net(X)

    return [step().detach() for _ in range(20)]


WAYS = (in_the_loop, in_one_context, decorated, generated, one_object, functions, converted, carried, compiled)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_step_draws_other_bits_and_their_mean_converges(way):
    net = layer()
    results = way(net)
    assert distinct(results) == 20
    exact = X.double() @ net.weight.detach().double().T
    error = [(torch.stack(results[:n]).double().mean(0) - exact).abs().mean() for n in (1, 20)]
    assert error[1] < error[0] / 2, "independent errors of 20 results average to 1 / sqrt(20) of one"


def test_a_step_given_repeats_and_counts_on():
    first = taken(2, 110, step=5)
    assert torch.equal(*first)
    with gs.emulate(RANDOM, 110, step=4):
        net = layer()
        before, again = net(X), net(X)
    assert torch.equal(again, first[0]) and not torch.equal(before, again)


def test_a_function_gives_the_step():
    now, net = [7], layer()
    with gs.emulate(RANDOM, 111, step=lambda: now[0]):
        first, second = net(X), net(X)
        now[0] = 8
        third = net(X)
    assert distinct([first.detach(), second.detach(), third.detach()]) == 3, "two calls of a step draw other bits"
    with gs.emulate(RANDOM, 111, step=7):
        assert torch.equal(net(X), first)
    with gs.emulate(RANDOM, 111, step=8):
        assert torch.equal(net(X), third)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_gives_the_step_of_what_is_computed_again(reentrant):
    now, net = [7], layer()

    def gradient(run):
        now[0] = 7
        net.weight.grad = None
        with gs.emulate(RANDOM, 112, step=lambda: now[0]):
            out = run(X.clone().requires_grad_())
            now[0] = 30
            out.square().sum().backward()
        return net.weight.grad

    assert torch.equal(gradient(lambda x: checkpoint(net, x, use_reentrant=reentrant)), gradient(net))


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, 1 << 63])
def test_steps_that_are_none(step):
    with pytest.raises(SeedError, match=r"emulate: step=.*allowed: None, an integer"):
        gs.emulate(RANDOM, step=step)
    with pytest.raises(SeedError, match="convert: step="):
        gs.convert(layer(), RANDOM, step=step)
    with pytest.raises(SeedError, match="emulate: step="), gs.emulate(RANDOM, step=lambda: step):
        layer()(X)


def test_configs_and_seeds_count_for_themselves():
    first = taken(1, 113)
    with gs.emulate(":e5m4/sr", 113):
        layer()(X)
    taken(3, 114)
    assert same(taken(1, 113), taken(1, 113, step=1))
    assert same(first, taken(1, 113, step=0))


def test_seeds_of_ranks_share_no_bits():
    """The next seed at a step is not this seed at the next step."""
    results = [out for rank in range(4) for out in (taken(1, rank, step=step)[0] for step in range(4))]
    assert distinct(results) == 16


def test_threads_take_each_step_once():
    net = gs.convert(layer(), RANDOM)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: net(X).detach(), range(200)))
    assert distinct(results) == 200 and arithmetic_of(net).step == 200


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_again_keeps_its_steps_while_others_take_more(reentrant):
    net = gs.convert(layer(), RANDOM, 125)

    def gradient(run, between=lambda: None):
        own = X.clone().requires_grad_()
        arithmetic_of(net).step = 0
        out = run(own)
        between()
        out.square().sum().backward()
        return own.grad

    def others():
        thread = Thread(target=lambda: [net(X) for _ in range(3)])
        thread.start()
        thread.join()
        net(X)

    again = gradient(lambda x: checkpoint(net, x, use_reentrant=reentrant), others)
    assert torch.equal(again, gradient(net)) and arithmetic_of(net).step == 1
    assert not torch.equal(net(X), net(X))


def test_the_state_of_a_process():
    taken(3, 115)
    state = json.loads(json.dumps(state_dict()))
    assert [one["steps"] for one in state["contexts"] if one["seed"] == 115] == [3] and state["version"] == 1
    ahead = taken(2, 115)
    taken(1, 116)
    load_state_dict(state)
    assert same(taken(2, 115), ahead)
    assert same(taken(1, 116), taken(1, 116, step=0)), "what the state does not know begins anew"


def test_open_contexts_go_on_from_a_loaded_state():
    with gs.emulate(RANDOM, 117):
        net = layer()
        net(X)
        state = state_dict()
        ahead = net(X)
        load_state_dict(state)
        assert torch.equal(net(X), ahead)


def test_the_state_of_a_converted_model(tmp_path):
    net = nn.Sequential(gs.convert(layer(), RANDOM, 118, step=2), nn.ReLU())
    net(X)
    state = state_dict(net)
    assert state["models"] == {"0": {"config": arithmetic_of(net[0]).text, "seed": 118, "step": 3}}
    ahead = net(X)
    torch.save(state, tmp_path / "state.pt")
    again = nn.Sequential(gs.convert(layer(), RANDOM, 118), nn.ReLU())
    load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), again)
    assert torch.equal(again(X), ahead)
    with pytest.raises(ConfigError, match=r"module '0' was converted with .* 118\), and now with .* 119"):
        load_state_dict(state, nn.Sequential(gs.convert(layer(), RANDOM, 119)))
    with pytest.raises(ConfigError, match="module '0' was converted"):
        load_state_dict(state, gs.convert(layer(), RANDOM, 118))


def test_folders_keep_the_step_of_a_converted_model(tmp_path):
    net = gs.convert(layer(), RANDOM, 120)
    net(X)
    gs.emulation.save(net, tmp_path)
    ahead = net(X)
    assert torch.equal(gs.emulation.load(layer(), tmp_path)(X), ahead)


@pytest.mark.parametrize(
    "state",
    [None, {}, {"version": 2, "contexts": [], "models": {}}, {"version": 1, "contexts": [{"seed": 1}], "models": {}}],
)
def test_states_that_are_none(state):
    load_state_dict({"version": 1, "contexts": [], "models": {}})
    taken(1, 121)
    with pytest.raises(ConfigError, match="load_state_dict"):
        load_state_dict(state)
    assert same(taken(1, 121), taken(1, 121, step=1)), "counts are as they were"


def test_runs_without_values_take_no_step():
    taken(1, 122)
    gs.audit.dry_run(layer(), X, RANDOM)
    net = gs.convert(layer(), RANDOM, 122)
    gs.audit.dry_run(net, X)
    assert arithmetic_of(net).step == 0 and torch.isfinite(net(X)).all()


def test_transforms_leave_the_count_usable():
    net, weight = layer(), torch.ones(4, 256)
    with gs.emulate(RANDOM, 123):
        torch.func.grad(lambda w: torch.func.functional_call(net, {"weight": w}, X).sum())(weight)
        net(X)
    assert [one["steps"] for one in state_dict()["contexts"] if one["seed"] == 123] == [2]
    with torch.inference_mode(), gs.emulate(RANDOM, 123):
        net(X)
    with gs.emulate(RANDOM, 123):
        net(X).sum().backward()


def test_exported_programs_say_that_they_draw_one_step():
    net = gs.convert(layer(), RANDOM)
    with pytest.warns(UserWarning, match="draws the bits of one step"):
        program = torch.export.export(net, (X,)).module()
    assert torch.equal(program(X), program(X))


@pytest.mark.parametrize("converted_model", [False, True])
def test_replicas_draw_the_bits_of_one_step(converted_model):
    """What ``DataParallel`` calls in its threads, with two replicas on the CPU."""
    net = nn.DataParallel(layer())
    net.device_ids = [0, 1]
    if converted_model:
        gs.convert(net.module, RANDOM)
    with gs.emulate(None if converted_model else RANDOM, 124):
        found = [[] for _ in range(2)]
        for results in found:
            replicas = [lambda: results.append(net.module(X).detach())] * 2  # noqa: B023
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    sys.modules["torch.nn.parallel.data_parallel"],
                    "parallel_apply",
                    lambda calls, *rest: [c() for c in calls],
                )
                net.parallel_apply(replicas, [(), ()], [{}, {}])
    assert torch.equal(*found[0]) and torch.equal(*found[1]) and not torch.equal(found[0][0], found[1][0])


def test_every_step_works_under_transforms():
    """Seeds of products are 64 bits wide, with a sign where operators take them."""
    net, x = nn.Linear(16, 4), torch.randn(5, 16)
    for step in range(12):
        with gs.emulate(RANDOM, 126, step=step):
            each = torch.vmap(net)(x)
        assert each.shape == (5, 4)
        with gs.emulate(RANDOM, 126, step=step):
            torch.func.jacrev(net)(x[0])
