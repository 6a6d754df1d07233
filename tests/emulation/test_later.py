"""Parts of the forward pass that run later: in checkpoints and in backward passes of others' functions."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gemmsim as gs
from gemmsim.emulation import deferred_contexts, emulate

NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
CONFIGS = {"one rule": ":e5m4", "paths": [("0", ":e5m4"), ("2", None)], "random": ":e5m6/sr"}


class Doubled(torch.autograd.Function):
    """Somebody's function with products in both passes."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.mT, x.mT @ grad


class InTwoSteps(Doubled):
    """The same, written the newer way."""

    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


def gradients(out, parameters=None):
    parameters = list(NET.parameters()) if parameters is None else parameters
    return torch.autograd.grad(out.square().sum(), parameters)


def equal(ours, theirs):
    return all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_backward_after_the_context_is_that_inside(config):
    with emulate(config, seed=3, step=0):
        inside = gradients(NET(X))
    with emulate(config, seed=3, step=0):
        out = NET(X)
    assert equal(inside, gradients(out))
    assert not equal(inside, gradients(NET(X)))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_checkpoints_compute_the_same_again(config, reentrant):
    x = X.clone().requires_grad_()
    with emulate(config, seed=3, step=0):
        want = NET(x)
    expected = gradients(want)
    with emulate(config, seed=3, step=0):
        out = checkpoint(NET, x, use_reentrant=reentrant)
        inside = backward(out)
    assert torch.equal(out, want) and equal(expected, inside)
    with emulate(config, seed=3, step=0):
        out = checkpoint(NET, x, use_reentrant=reentrant)
    assert equal(expected, backward(out))
    with emulate(config, seed=3, step=0):
        out = checkpoint(NET, x, use_reentrant=reentrant)
    with emulate(":e5m1"):
        assert equal(expected, backward(out)), "another context around the backward pass changes nothing"


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_inside_the_context_counts_no_step(reentrant):
    def steps(run):
        found = []
        with emulate(CONFIGS["random"], seed=3, step=0) as mode:
            for _ in range(3):
                out = run(X.clone().requires_grad_())
                out.sum().backward()
                found.append(out.detach())
            assert int(mode.places.counter) == 2 and not mode.paused
        return found

    assert equal(steps(lambda x: checkpoint(NET, x, use_reentrant=reentrant)), steps(NET))


def backward(out):
    """Gradients by backward(): a reentrant checkpoint refuses autograd.grad."""
    NET.zero_grad()
    out.square().sum().backward()
    return [p.grad.clone() for p in NET.parameters()]


def test_checkpoint_contexts_say_it_themselves(monkeypatch):
    monkeypatch.setattr(deferred_contexts, "_replace_generators", list)
    x = X.clone().requires_grad_()
    with emulate(":e5m4"):
        want = gradients(NET(x))
        out = checkpoint(NET, x, use_reentrant=False, context_fn=deferred_contexts.checkpoint_contexts)
    assert equal(want, gradients(out))


def test_checkpoints_keep_the_context_function_they_were_given():
    entered = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *error):
            pass

    with emulate(":e5m4"):
        out = checkpoint(NET, X, use_reentrant=False, context_fn=lambda: (Noted("forward"), Noted("again")))
    gradients(out)
    assert entered == ["forward", "again"]


@pytest.mark.parametrize("function", [Doubled, InTwoSteps])
def test_functions_of_others(function):
    a, b = X.clone().requires_grad_(), torch.randn(8, 4).requires_grad_()
    with emulate(":e5m4"):
        out = function.apply(a, b)
        inside = torch.autograd.grad(out.sum(), (a, b), retain_graph=True)
    after = torch.autograd.grad(out.sum(), (a, b))
    ones = torch.ones(5, 4)
    want = gs.qmatmul(ones, b.detach().mT, ":e5m4"), gs.qmatmul(a.detach().mT, ones, ":e5m4")
    assert torch.equal(out, gs.qmatmul(a, b, ":e5m4"))
    assert equal(inside, want) and equal(after, want)
    assert type(out.grad_fn).__name__ == f"{function.__name__}Backward"


def test_pytorch_is_as_it_was_afterwards():
    apply = vars(torch.autograd.Function)["apply"]
    generators = {name: getattr(torch.utils.checkpoint, name, None) for name in deferred_contexts._GENERATORS}
    with emulate(":e5m4"), pytest.raises(RuntimeError), emulate(":e5m3"):
        NET(X[:, :3])
    assert vars(torch.autograd.Function)["apply"] is apply
    assert generators == {name: getattr(torch.utils.checkpoint, name, None) for name in deferred_contexts._GENERATORS}
    assert not torch.nn.modules.module._has_any_global_hook()
    assert not torch.overrides._get_current_function_mode_stack()


def test_private_names_of_pytorch_are_there():
    assert any(hasattr(torch.utils.checkpoint, name) for name in deferred_contexts._GENERATORS)
    assert hasattr(torch.overrides, "_get_current_function_mode_stack")
