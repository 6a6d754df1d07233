"""Optimizers stay PyTorch's: what they multiply is no part of the model."""

from contextlib import nullcontext, suppress

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.emulation.overrides import optimizer_steps

X = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))


class Orthogonal(torch.optim.Optimizer):
    """An optimizer of somebody's own, whose step multiplies in a function of its own."""

    def __init__(self, params):
        super().__init__(params, {})
        self.seen = []

    def step(self, closure=None):
        if closure is not None:
            self.seen.append(closure())
        for p in self.param_groups[0]["params"]:
            with torch.no_grad():
                p.sub_(square(p.grad))


def square(g):
    return g @ g


def stepped(make, context, compiled=False):
    torch.manual_seed(1)
    weight = nn.Parameter(torch.randn(16, 16))
    optimizer = make([weight])
    weight.grad = torch.randn(16, 16)
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    with context:
        step()
    return weight.detach()


@pytest.mark.parametrize("make", [torch.optim.Muon, Orthogonal], ids=["Muon", "Orthogonal"])
@pytest.mark.parametrize(
    "config", ["e4m3 : e5m10", [("*", ":bf16/sr")], gs.recipes.nvfp4()], ids=["spec", "rules", "recipe"]
)
def test_steps_are_pytorchs(make, config):
    assert torch.equal(stepped(make, gs.emulate(config)), stepped(make, nullcontext()))


@pytest.mark.filterwarnings("ignore")
def test_compiled_steps_are_pytorchs():
    torch._dynamo.reset()
    assert torch.equal(stepped(Orthogonal, gs.emulate(":e5m4"), True), stepped(Orthogonal, nullcontext()))


def test_the_model_around_a_step_is_emulated():
    net = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    with gs.emulate(":e5m4"):
        before = net(X)
        optimizer.step()
        assert torch.equal(net(X), before) and torch.equal(X @ X, square(X))
    assert not torch.equal(net(X), before)


def test_a_closure_is_the_models():
    with gs.emulate(":e5m4"):
        want = X @ X
        optimizer = Orthogonal([nn.Parameter(X.clone())])
        optimizer.param_groups[0]["params"][0].grad = X.clone()
        optimizer.step(lambda: X @ X)
        optimizer.step(closure=lambda: X @ X)
    assert all(torch.equal(found, want) for found in optimizer.seen)
    start = X.clone()
    start.sub_(X @ X).sub_(X @ X)
    assert torch.equal(optimizer.param_groups[0]["params"][0], start)


def test_lbfgs_runs_the_model_in_its_closure():
    def trained(context, step):
        torch.manual_seed(2)
        net = nn.Linear(16, 1)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

        def closure():
            optimizer.zero_grad()
            with step:
                loss = net(X).square().mean()
            loss.backward()
            return loss

        with context:
            optimizer.step(closure)
        return net.weight.detach()

    around = trained(gs.emulate(":e5m4"), nullcontext())
    assert torch.equal(around, trained(nullcontext(), gs.emulate(":e5m4")))
    assert not torch.equal(around, trained(nullcontext(), nullcontext()))


def test_a_context_inside_a_step_holds():
    class Emulated(Orthogonal):
        def step(self, closure=None):
            with gs.emulate(":e5m4"):
                self.seen.append(X @ X)

    optimizer = Emulated([nn.Parameter(X.clone())])
    with gs.emulate(":e5m10"):
        optimizer.step()
    with gs.emulate(":e5m4"):
        assert torch.equal(optimizer.seen[0], X @ X)


def test_a_step_that_fails_leaves_the_context_as_it_was():
    class Failing(Orthogonal):
        def step(self, closure=None):
            raise KeyError

    with gs.emulate(":e5m4"):
        want = X @ X
        with suppress(KeyError):
            Failing([nn.Parameter(X.clone())]).step()
        assert torch.equal(X @ X, want)


def test_hooks_go_with_the_last_context():
    hooks = optimizer_steps.hooks
    with gs.emulate(":e5m4"), gs.emulate(":e5m10"):
        assert hooks._global_optimizer_pre_hooks
    assert not hooks._global_optimizer_pre_hooks and not hooks._global_optimizer_post_hooks


def refused(optimizer, *step):
    with pytest.raises(gs.emulation.NativeGemmError) as caught, gs.audit(strict=True):
        optimizer.step(*step)
    return str(caught.value)


def test_a_strict_audit_says_that_steps_are_pytorchs():
    weight = nn.Parameter(X.clone())
    weight.grad = X.clone()
    for context in (nullcontext(), gs.emulate(":e5m4")):
        with context:
            said = refused(torch.optim.Muon([weight]))
        assert "in a step of Muon" in said and "PyTorch's by design" in said and "a rule of" not in said
    for closure in (lambda: X @ X, torch.no_grad()(lambda: X @ X)):  # whose products are the model's
        said = refused(torch.optim.SGD([weight], 0.0), closure)
        assert "outside modules" in said and "a rule of gemmsim.emulate" in said
