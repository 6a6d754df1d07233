"""Compiled code around and inside a context: eager's bits, one graph for all steps, nothing emulated twice."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from emulation.compiling import NET, X, forget, graphs
from support.long import long_but
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import gemmsim as gs
from gemmsim.emulation import Config, emulate
from gemmsim.emulation.dynamo_support import is_recorded
from gemmsim.emulation.overrides.table import TABLE

CONFIGS = {
    "one rule": Config.of(":e5m4"),
    "paths": Config.of([("0", ":e5m4"), ("2", None)]),
    "random": Config.of(":e5m6/sr"),
}
pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile")
BACKENDS = {"eager": "eager", "aot_eager": "aot_eager", "inductor": "inductor"}


@pytest.fixture(autouse=True)
def fresh():
    forget()


def run(function, x=X):
    out = function(x)
    return out, torch.autograd.grad(out.square().sum(), list(NET.parameters()))


def equal(ours, theirs):
    return torch.equal(ours[0], theirs[0]) and all(torch.equal(p, q) for p, q in zip(ours[1], theirs[1], strict=True))


@pytest.mark.parametrize("backend", **long_but(BACKENDS, "aot_eager"))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_around_and_inside(config, backend):
    with emulate(config, seed=3, step=0):
        want = run(NET)

    def inside(x):
        with emulate(config, seed=3, step=0):
            return NET(x)

    if backend == "inductor":  # its own native products and sums are not PyTorch's to the last bit
        want = (want[0], [])

        def run_(f):
            return f(X), []
    else:
        run_ = run
    outside = torch.compile(NET, fullgraph=True, backend=backend)
    with emulate(config, seed=3, step=0):
        assert equal(run_(outside), want)
    with emulate(config, seed=3, step=0):
        out = outside(X)
    assert equal(run_(lambda x: out), want), "backward after the context"
    assert equal(run_(torch.compile(inside, fullgraph=True, backend=backend)), want)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_no_compilation_per_step(config):
    compiled = torch.compile(NET, fullgraph=True, backend="aot_eager")
    eager_steps, steps = [], []
    with emulate(config, seed=3, step=0):
        eager_steps = [NET(X) for _ in range(4)]
    with emulate(config, seed=3, step=0):
        for _ in range(4):
            steps.append(compiled(X))
    assert all(map(torch.equal, steps, eager_steps))
    assert graphs() <= 2, "the first call of a context gives names, the others find them"
    before = graphs()
    for _ in range(3):
        with emulate(config, seed=3, step=0):
            compiled(X)
    assert graphs() == before, "an equal context is the same to compiled code"


def test_switching_back_and_forth():
    compiled = torch.compile(NET, fullgraph=True, backend="aot_eager")
    native, narrow = NET(X), None
    for _ in range(3):
        assert torch.equal(compiled(X), native)
        with emulate(":e5m4"):
            narrow = NET(X)
            assert torch.equal(compiled(X), narrow)
        with emulate(":e5m3"):
            assert torch.equal(compiled(X), NET(X)) and not torch.equal(NET(X), narrow)
    assert graphs() == 3


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_checkpoints_in_compiled_code(config):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = NET

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=False)

    rules = [(f"net.{r.modules}" if r.modules != "*" else "*", r.formats) for r in config.rules]
    model = Model()
    with emulate(rules, seed=3, step=0):
        want = run(model)
    with emulate(rules, seed=3, step=0):
        assert equal(run(torch.compile(model, fullgraph=True, backend="aot_eager")), want)


def test_nested_and_decorated_in_compiled_code():
    @emulate(":e5m4")
    def narrow(x):
        y = NET[0](x)
        with emulate(None):
            return NET[2](torch.relu(y))

    want = NET[2](torch.relu(gs.qlinear(X, NET[0].weight, NET[0].bias, ":e5m4")))
    assert torch.equal(narrow(X), want)
    assert torch.equal(torch.compile(narrow, fullgraph=True, backend="aot_eager")(X), want)


def test_graph_breaks_keep_the_context():
    def broken(x):
        y = NET[0](x)
        torch._dynamo.graph_break()
        return NET[2](torch.relu(y))

    with emulate(":e5m4"):
        assert torch.equal(torch.compile(broken, backend="aot_eager")(X), broken(X))


def test_changing_sizes():
    compiled = torch.compile(NET, fullgraph=True, backend="aot_eager", dynamic=True)
    with emulate(":e5m4"):
        for n in (2, 3, 7):
            assert torch.equal(compiled(X[:1].expand(n, 8)), NET(X[:1].expand(n, 8)))
    assert graphs() == 1


def test_blocks_compiled_one_by_one():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.relu(self.inner(x))

    model = torch.nn.Sequential(Block(), Block(), Block())
    config = [("0.*", ":e5m3"), ("1.*", ":e5m4"), ("2.*", None)]
    with emulate(config):
        want = model(X)
    for block in model:
        block.compile(backend="aot_eager", fullgraph=True)
    with emulate(config):
        assert torch.equal(model(X), want)
        assert torch.equal(model(X), want)
    assert graphs() <= 6


def test_the_compiler_asks_about_every_call_of_the_table():
    from torch._dynamo.variables import torch as variables

    with emulate(":e5m4"):
        asked = variables.get_overridable_functions()
    assert [call for call in TABLE if call not in asked] == []


FIRST = """
import torch
from torch import nn
import gemmsim as gs

layer, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), torch.randn(2, 5, 32)
a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
one = torch.tensor(1.0)


def run():  # calls that PyTorch does not list as overridable
    with gs.emulate(":e5m2"):
        return layer(x), torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32)


with torch.no_grad():
    compiled = torch.compile(run, fullgraph=True, backend="eager")()
    print(*map(torch.equal, compiled, run()))
"""


def test_the_first_context_of_a_program_may_be_in_compiled_code():
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_private_names_of_the_compiler_are_there():
    from torch._dynamo.eval_frame import skip_code  # noqa: F401
    from torch._functorch._aot_autograd import runtime_wrappers  # noqa: F401

    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    torch.compile(NET, backend=backend)(X)
    assert hasattr(seen[0], "compile_subgraph_reason")


def test_private_names_of_the_tracer_are_there():
    from torch._dynamo.exc import ShortenTraceback
    from torch._dynamo.symbolic_convert import tls

    @torch._dynamo.assume_constant_result
    def whole():
        return tls.current_tx.one_graph

    for fullgraph in (True, False):
        torch._dynamo.reset()
        seen = torch.compile(lambda x: x + int(whole()), backend="eager", fullgraph=fullgraph)(torch.zeros(1))
        assert bool(seen) is fullgraph
    assert getattr(tls, "current_tx", None) is None and callable(ShortenTraceback.remove_dynamo_frames)


def test_what_tells_that_a_program_is_recorded_is_there():
    seen = []

    def call(x):
        seen.append(is_recorded())
        return x + 1

    make_fx(call)(X)
    make_fx(call, pre_dispatch=True)(X)
    call(X)
    assert seen == [True, True, False]


class Multiplied(torch.autograd.Function):
    """Somebody's function with products in both passes."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.mT, x.mT @ grad


def test_functions_of_others_in_compiled_code():
    a, b = X.clone().requires_grad_(), torch.randn(8, 4).requires_grad_()

    def step(function):
        with emulate(":e5m4"):
            out = function(a)
        return [out, *torch.autograd.grad(out.sum(), (a, b))]

    want = step(lambda x: Multiplied.apply(x, b).square())
    found = step(torch.compile(lambda x: Multiplied.apply(x, b).square(), fullgraph=True, backend="aot_eager"))
    assert all(torch.equal(p, q) for p, q in zip(found, want, strict=True))


class Checkpointed(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.net, self.reentrant = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), reentrant

    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=self.reentrant) + 1


@pytest.mark.parametrize("config", [":bf16", ":bf16/sr", [("net.0", ":bf16")]], ids=str)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_checkpoints_in_a_context_inside_compiled_code(config, reentrant):
    torch._dynamo.reset()
    net, x = Checkpointed(reentrant), torch.randn(3, 8, requires_grad=True)

    def run(x):
        with emulate(config, step=0):
            return net(x)

    found = []
    for call in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
        net.zero_grad()
        out = call(x)
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad for p in net.parameters())])
    assert all(map(torch.equal, *found))


@pytest.mark.filterwarnings("ignore")
def test_selective_checkpoints_in_compiled_code():
    torch._dynamo.reset()
    net, x = torch.nn.Linear(8, 8), torch.randn(3, 8, requires_grad=True)

    def policy(context, operator, *args, **kwargs):
        kept = operator is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    run = torch.compile(
        lambda t: checkpoint(net, t, use_reentrant=False, context_fn=contexts), backend="aot_eager", fullgraph=True
    )
    with emulate(":bf16"):
        out = run(x)
        assert torch.equal(out, net(x))
        assert torch.equal(
            torch.autograd.grad(out.sum(), net.weight)[0], torch.autograd.grad(net(x).sum(), net.weight)[0]
        )
