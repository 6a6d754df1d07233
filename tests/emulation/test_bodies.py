"""Contexts inside bodies that the compiler follows as parts of their own, and that may change nothing outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils.checkpoint import checkpoint

import gemmsim as gs

SPEC = "all_products(e4m3 : fp16)"
DRAWS = "all_products(e4m3 : fp16/sr)"
RULES = [("0", "all_products(e2m1 : fp16)"), ("2", SPEC)]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


NET = net()
NAMED = gs.emulate([("0", "all_products(e2m1 : fp16)"), ("*", None)]).config


def opened(spec, step=None):
    config = gs.emulate(spec).config

    def run(x):
        with gs.emulate(config, step=step):
            return NET(x)

    return run


def nested(x):
    with gs.emulate(SPEC):
        y = NET(x)
        with gs.emulate(NAMED):
            return NET(y)


def with_gradient(function, x):
    given = x.clone().requires_grad_()
    out = function(given)
    (grad,) = torch.autograd.grad(out.square().sum(), given)
    return out.detach(), grad


BODIES = {
    "context": lambda: opened(SPEC),
    "decorator": lambda: gs.emulate(SPEC)(NET.forward),
    "rules": lambda: opened(RULES),
    "nested": lambda: nested,
    "step": lambda: opened(DRAWS, 3),
    "converted": lambda: gs.convert(net(), SPEC),
    "converted with rules": lambda: gs.convert(net(), RULES),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_inside_a_checkpoint_of_compiled_code(name, fullgraph):
    body, x = BODIES[name](), torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    want = with_gradient(body, x)
    torch._dynamo.reset()
    run = torch.compile(lambda x: checkpoint(body, x, use_reentrant=False), fullgraph=fullgraph, backend="aot_eager")
    for _ in range(2):  # nothing of the first trace is left over
        found = with_gradient(run, x)
        assert torch.equal(found[0], want[0]) and torch.equal(found[1], want[1])
    assert not hooks._global_forward_pre_hooks and not torch.overrides._get_current_function_mode_stack()
    assert not torch.equal(want[0], NET(x))


def test_native_products_around_the_body_stay_native():
    body, x = opened(SPEC), torch.randn(4, 8)
    torch._dynamo.reset()
    run = torch.compile(
        lambda x: NET(x) - checkpoint(body, x, use_reentrant=False) + NET(x), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(run(x), NET(x) - body(x) + NET(x))


@pytest.mark.parametrize("name", ["context", "converted"])
def test_a_count_of_steps_is_refused_in_the_body_of_a_whole_graph(name):
    body = opened(DRAWS) if name == "context" else gs.convert(net(), DRAWS)
    x = torch.randn(4, 8)
    torch._dynamo.reset()
    run = torch.compile(lambda x: checkpoint(body, x, use_reentrant=False), fullgraph=True, backend="aot_eager")
    says = r"a step of random bits inside torch\.utils\.checkpoint.*allowed: contexts around the body(.|\n)*without fullgraph"
    with pytest.raises(gs.emulation.ConfigError, match=says):
        run(x)
    torch._dynamo.reset()
    torch.compile(lambda x: checkpoint(body, x, use_reentrant=False), backend="aot_eager")(x)

    def around(x):
        with gs.emulate(DRAWS, step=5):
            return checkpoint(NET, x, use_reentrant=False)

    torch._dynamo.reset()
    assert torch.equal(torch.compile(around, fullgraph=True, backend="aot_eager")(x), around(x))


def test_a_rule_that_names_nothing_is_an_error_in_the_body_as_well():
    body = opened([("nothing", SPEC)])
    run = torch.compile(lambda x: checkpoint(body, x, use_reentrant=False), fullgraph=True, backend="aot_eager")
    with pytest.raises(gs.emulation.ConfigError, match="rule for modules 'nothing'"):
        run(torch.randn(4, 8))
    assert not hooks._global_forward_pre_hooks
