"""Contexts and PyTorch's transforms: functorch, autocast, export, threads, replicas; nesting and refusals."""

import sys
import threading
from weakref import WeakSet

import pytest
import torch
from support.rounding import assert_near, largest

import gemmsim as gs
from gemmsim.emulation import ConfigError, Rule, carry, deferred_contexts, emulate

NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
SPEC = ":e5m4"


def oracle(x, spec=SPEC):
    first, _, last = NET
    hidden = torch.relu(gs.qlinear(x, first.weight, first.bias, spec))
    return gs.qlinear(hidden, last.weight, last.bias, spec)


@pytest.fixture
def want():
    return oracle(X)


def test_functorch(want):
    params = dict(NET.named_parameters())

    def loss(params, x):
        return torch.func.functional_call(NET, params, x).square().sum()

    with emulate(SPEC):
        expected = torch.autograd.grad(NET(X).square().sum(), [*params.values()])
        assert torch.equal(torch.func.functional_call(NET, params, X), want)
        assert torch.equal(torch.vmap(NET)(X), want)
        found = torch.func.grad(loss)(params, X)
        each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, X)
        with pytest.raises(gs.GradError, match="forward mode"):
            torch.func.jvp(NET, (X,), (X,))
    for (name, ours), theirs in zip(found.items(), expected, strict=True):
        if "weight" in name:
            assert torch.equal(ours, theirs)
        else:
            assert_near(
                ours, theirs, 5 + 4, size=5 * largest(theirs)
            )  # PyTorch's own sums of 5 rows, in an order of its own
        assert each[name].shape == (5, *theirs.shape)


def test_no_second_derivative():
    x = X.clone().requires_grad_()
    with emulate(SPEC):
        (grad,) = torch.autograd.grad(NET(x).square().sum(), x, create_graph=True)
    with pytest.raises(gs.GradError, match="linear"):
        grad.sum().backward()
    with emulate([("0", SPEC), ("2", SPEC)]):
        (grad,) = torch.autograd.grad(NET(x).square().sum(), x, create_graph=True)
    with pytest.raises(gs.GradError, match="linear in module '0'"):
        grad.sum().backward()


def test_inference_mode(want):
    with emulate(SPEC), torch.inference_mode():
        assert torch.equal(NET(X), want)
    with torch.inference_mode(), emulate(SPEC):
        assert torch.equal(NET(X), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_in_both_orders(dtype):
    first, _, last = NET
    with torch.no_grad():
        hidden = gs.qlinear(X.to(dtype), first.weight.to(dtype), first.bias.to(dtype), SPEC)
        want = gs.qlinear(torch.relu(hidden), last.weight.to(dtype), last.bias.to(dtype), SPEC)
    with emulate(SPEC), torch.autocast("cpu", dtype):
        assert torch.equal(NET(X), want)
    with torch.autocast("cpu", dtype), emulate(SPEC):
        assert torch.equal(NET(X), want)
    assert want.dtype == dtype


@pytest.mark.parametrize("strict", [False, True])
def test_export(want, strict):
    with emulate(SPEC):
        inside = torch.export.export(NET, (X,), strict=strict)
    outside = torch.export.export(NET, (X,), strict=strict)
    assert torch.equal(inside.module()(X), want)
    with emulate(SPEC):
        assert torch.equal(outside.module()(X), want)
    with emulate([("0", SPEC)]):
        paths = torch.export.export(NET, (X,))
    with emulate([("0", SPEC)]):
        mixed = NET(X)
    assert torch.equal(paths.module()(X), mixed)


@pytest.fixture
def no_converted_models(monkeypatch):
    """Without converted models of other tests, which may live until garbage is collected: a snapshot holds their steps, too."""
    monkeypatch.setattr(deferred_contexts, "OWNERS", WeakSet())


def test_a_new_thread_has_no_context_unless_it_is_carried(want, no_converted_models):
    found = []

    def run(function):
        thread = threading.Thread(target=lambda: found.append(function(X)))
        thread.start()
        thread.join()
        return found.pop()

    with emulate(SPEC):
        assert torch.equal(run(NET), torch.nn.Sequential(*NET)(X)) is False
        assert torch.equal(run(carry(NET)), want)
        kept = carry(NET)
    assert torch.equal(run(kept), want)
    assert carry(NET) is NET


def test_replicas_of_data_parallel(monkeypatch, want, no_converted_models):
    seen = []
    theirs = sys.modules["torch.nn.parallel.data_parallel"]  # a function hides the module
    monkeypatch.setattr(theirs, "parallel_apply", lambda replicas, *rest: seen.extend(replicas))
    model = torch.nn.DataParallel(NET)
    with emulate(SPEC):
        model.parallel_apply([NET], [(X,)], None)
    model.parallel_apply([NET], [(X,)], None)
    assert torch.equal(seen[0](X), want) and seen[1] is NET


def test_the_inner_context_holds():
    with emulate(SPEC):
        with emulate(":e5m3"):
            assert torch.equal(NET(X), oracle(X, ":e5m3"))
        assert torch.equal(NET(X), oracle(X))
        with emulate(None):
            inner = NET(X)
        assert torch.equal(NET(X), oracle(X))
    assert torch.equal(NET(X), inner)


def test_paths_are_those_of_the_outermost_module():
    model = torch.nn.ModuleDict({"body": NET})
    model.forward = lambda x: NET(x)
    first, _, last = NET
    with emulate([("body.0", SPEC)]):
        found = model(X)
        again = first(X)
    hidden = gs.qlinear(X, first.weight, first.bias, SPEC)
    assert torch.equal(found, torch.nn.functional.linear(torch.relu(hidden), last.weight, last.bias))
    assert torch.equal(again, hidden), "names stay when a part is called later"
    with emulate([("0", SPEC)], root=NET):
        assert torch.equal(torch.nn.Sequential(NET)(X), found)


def test_random_bits_belong_to_the_place_and_the_step():
    spec = ":e5m4/sr"
    state = torch.get_rng_state()
    with emulate(spec, seed=5, step=0):
        one, two = NET(X), NET(X)
    with emulate(spec, seed=5, step=0):
        assert torch.equal(NET(X), one) and torch.equal(NET(X), two)
    with emulate(spec, seed=6, step=0):
        assert not torch.equal(NET(X), one)
    assert not torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), state)
    twice = torch.nn.Linear(8, 8)
    both = torch.nn.Sequential(twice, twice)
    both.forward = lambda x: (twice(x), twice(x))
    with emulate(spec, seed=5, step=0):
        a, b = both(X)
    assert not torch.equal(a, b), "the second call of a module in a step draws other bits"


def test_patterns_that_match_nothing():
    with pytest.raises(ConfigError, match="'layer0'.*Sequential"), emulate([("layer0", SPEC)]):
        NET(X)
    with pytest.raises(ConfigError, match="root"), emulate([("0", SPEC)]):
        NET(X)
        torch.nn.Linear(8, 8)(X)
    with pytest.raises(ConfigError, match="'layer0'.*Sequential"), emulate([("layer0", SPEC)], root=NET):
        pass
    with emulate([("0", SPEC)]):
        torch.nn.MSELoss()(NET(X), torch.zeros(5, 4))


def test_rules_that_leave_all_to_pytorch_are_no_mode_and_no_hooks_but_for_the_check_of_patterns():
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    native, before = NET(X), len(hooks)
    for config in (None, [], [("*", None)], [("0", None), ("re:[12]", None)]):
        with emulate(config) as mode:
            assert not mode.pushed and not torch.overrides._get_current_function_mode_stack()
            assert torch.equal(NET(X), native)
            assert len(hooks) == before
            assert torch.equal(torch.compile(NET, backend="aot_eager", fullgraph=True)(X), native)
    with pytest.raises(ConfigError, match="'layer0'.*Sequential"), emulate([("layer0", None)]):
        NET(X)
    with pytest.raises(ConfigError, match="'layer0'"), emulate([("layer0", None)]), gs.audit():
        NET(X)
    with pytest.raises(ConfigError, match="'layer0'"), gs.audit(), emulate([("layer0", None)]):
        NET(X)
    with pytest.raises(ConfigError, match="'layer0'"):
        emulate([("layer0", None)], root=NET).__enter__()
    with emulate([("layer0", None)]):  # where no module is called nobody can say
        torch.relu(X)
    with emulate([("0", None)]), emulate(SPEC):
        assert torch.equal(NET(X), oracle(X))
    with emulate(SPEC), emulate([("0", None), ("*", None)]) as mode:
        assert mode.pushed and torch.equal(NET(X), native)
    assert len(hooks) == before


def test_other_threads_do_not_answer_for_patterns():
    from threading import Thread

    with emulate([("0", None)]):
        other = Thread(target=lambda: torch.nn.Linear(8, 8)(X))
        other.start()
        other.join()
        NET(X)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("e4m3 ; e5m10", gs.FormatError),
        ([("0", 3)], gs.SpecError),
        ([("re:(", SPEC)], ConfigError),
        ([("0", SPEC, 1)], ConfigError),
        ({"forward": SPEC}, ConfigError),
        ({}, ConfigError),
    ],
)
def test_configs_that_mean_nothing(config, error):
    with pytest.raises(error):
        emulate(config)


def test_what_no_config_can_be_is_told_all_that_can():
    words = ("spec string", "GemmSpec", "accumulator", "QAffineFormats", "recipe", "Config", "Rule", "list", "None")
    for bad in (3, True, torch.float32, b"e4m3", NET, torch.ones(2), set()):
        with pytest.raises(ConfigError) as caught:
            emulate(bad)
        assert all(word in str(caught.value) for word in (f"of type {type(bad).__name__}", *words))
    with pytest.raises(
        ConfigError, match="Rule 1 of 1: modules='encoder', kinds='\\*': spec 3 of type int.*spec string"
    ):
        emulate([("encoder", 3)])
    for seed in (-1, "a", 1.5, None):
        for make in (emulate, lambda config, seed: gs.convert(NET, config, seed)):
            with pytest.raises(gs.SeedError, match="an integer from 0"):
                make(SPEC, seed=seed)
    with pytest.raises(TypeError, match="dry_run: int"):
        gs.audit.dry_run(3, X)


def test_what_pytorch_refuses_it_still_refuses():
    with emulate(SPEC):
        for bad, words in ((torch.randn(3, 7), "multiplied"), (X.double(), "dtype")):
            with pytest.raises(RuntimeError, match=words):
                NET(bad)
        assert NET(torch.randn(0, 8)).shape == (0, 4)
        ones = torch.ones(2, 2, dtype=torch.int64)
        assert torch.equal(ones @ ones, 2 * ones)


def test_what_a_spec_has_no_meaning_for_names_call_and_module():
    palette = "palette(e5m10, e5m4)"
    with pytest.raises(gs.SelectError, match="linear.*'0'"), emulate([("0", palette)]):
        NET(X)


def test_errors_name_the_module_where_no_rule_asks_for_paths_too():
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(NET))
    with pytest.raises(gs.SelectError, match=r"^in linear of module '1.0.0': "), emulate("palette(e5m10, e5m4)"):
        model(X)
    with pytest.raises(gs.SelectError, match=r"^in linear: "), emulate("palette(e5m10, e5m4)"):
        torch.nn.functional.linear(X, NET[0].weight)


def test_errors_name_modules_of_this_package_as_well():
    class Ours(gs.nn.Emulated, torch.nn.Module):
        def forward(self, x):
            return x @ x.mT

    model = torch.nn.Sequential(torch.nn.Identity(), Ours())
    with pytest.raises(gs.SelectError, match="^in matmul of module '1': "), emulate("palette(e5m10, e5m4)"):
        model(torch.randn(2, 3))


class Flexible(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Identity()
        self.inner.forward = self.attend

    def attend(self, q):
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(q, q, q)

    def forward(self, q):
        return self.inner(q)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_flex_attention_is_refused_in_compiled_code_by_the_same_error(fullgraph):
    torch._dynamo.reset()
    q = torch.randn(1, 1, 16, 16)

    @torch.compile(fullgraph=fullgraph, backend="eager")
    def run(q):
        with emulate(SPEC):
            return model(q)

    model = Flexible()
    with pytest.raises(gs.UnsupportedSpec, match="^flex_attention"):
        run(q)
    with pytest.raises(gs.UnsupportedSpec, match="^flex_attention"), emulate(SPEC):
        torch.compile(model, fullgraph=fullgraph, backend="eager")(q)
    with pytest.raises(gs.UnsupportedSpec, match="^flex_attention in module 'inner'"), emulate(SPEC):
        model(q)


def test_flex_attention_is_refused():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 16, 16)
    with pytest.raises(gs.UnsupportedSpec, match="flex_attention"), emulate(SPEC):
        flex_attention(q, q, q)
    with emulate([Rule("*", "sdpa.*", None), Rule("*", "*", SPEC)]):
        found, want = flex_attention(q, q, q), torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert_near(found, want, 16 + 16 + 16, size=largest(q))  # two sums of 16, softmax


class Image(torch.Tensor):
    """A class of tensors whose results are of it, too."""


class Unwrapping(torch.Tensor):
    """A class of tensors with ordinary results, as torchvision's images have them."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(torch.Tensor) if isinstance(result, torch.Tensor) else result


class Weight(torch.nn.Parameter):
    """A class of parameters."""


@pytest.mark.parametrize("config", [SPEC, [("0", SPEC), ("2", SPEC)], ":e5m4/sr"])
def test_classes_of_tensors_that_change_no_operator(config):
    with emulate(config, seed=3, step=0):
        want, product = NET(X), X @ X.mT
    for kind in (Image, Unwrapping):
        x = X.detach().clone().as_subclass(kind)
        x.requires_grad_()
        with emulate(config, seed=3, step=0), gs.audit(strict=not isinstance(config, list)):
            found = NET(x)
            assert torch.equal((x @ x.mT).detach().as_subclass(torch.Tensor), product)
            found.square().sum().backward()
        assert type(found) is (Image if kind is Image else torch.Tensor)
        assert torch.equal(found.detach().as_subclass(torch.Tensor), want) and x.grad is not None
    net = torch.nn.Sequential(*NET)
    for layer in (net[0], net[2]):
        layer.weight = Weight(layer.weight.detach())
    try:
        with emulate(config, seed=3, step=0), gs.audit(strict=True):
            assert torch.equal(net(X), want)
            net(X).sum().backward()
    finally:
        for layer in (net[0], net[2]):
            layer.weight = torch.nn.Parameter(layer.weight.detach())
