"""What stands in PyTorch's places while a context is open, and that the same objects stand there again afterwards."""

import gc
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack
from itertools import permutations

import pytest
import torch
import torch.utils.checkpoint
from torch.nn.modules import module as every_module

import gemmsim as gs
from gemmsim.emulation import ConfigError, deferred_contexts, emulate, undo

X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
NET = torch.nn.Linear(8, 4)
#: Contexts that differ in what they need: one spec, places of modules, random bits.
CONFIGS = {"spec": ":e5m4", "paths": [("0", ":e5m4"), ("*", ":e5m4")], "random": ":e5m4/sr"}


GENERATOR = next(name for name in deferred_contexts._GENERATORS if hasattr(torch.utils.checkpoint, name))


def replaced():
    """The objects in the places that a context takes."""
    return [
        vars(torch.autograd.Function)["apply"],
        vars(torch.nn.DataParallel)["parallel_apply"],
        getattr(torch.utils.checkpoint, GENERATOR),
    ]


BEFORE = replaced()


def is_as_before():
    """Whether everything is as it was when this file was loaded."""
    same = all(now is then for now, then in zip(replaced(), BEFORE, strict=True))
    quiet = not every_module._has_any_global_hook() and not torch.overrides._get_current_function_mode_stack()
    return same and quiet


def is_open():
    return all(now is not then for now, then in zip(replaced(), BEFORE, strict=True))


@pytest.fixture(autouse=True, scope="module")
def nothing_of_other_tests():
    """Models that other tests converted, and that something still holds, have PyTorch's places no longer.

    Objects of other tests are no garbage that these have to look for, either: each collection would take seconds.
    """
    for owner in list(deferred_contexts.OWNERS):
        owner.release()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    assert is_as_before()
    filters = list(warnings.filters)
    yield
    gc.collect()
    assert is_as_before() and warnings.filters == filters


EVERYTHING = """
import sys, types
import torch, torch._dynamo, torch.export, torch.fx, torch.utils.checkpoint
import torch.distributed._composable.checkpoint_activation, torch.nn.attention.flex_attention
from torch import nn

def found():
    names, classes = {}, set()
    for module in [m for name, m in sorted(sys.modules.items()) if name.split(".")[0] == "torch"]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if callable(value):
                names[module.__name__, name] = value
            if isinstance(value, type) and value.__module__.split(".")[0] == "torch" and value not in classes:
                classes.add(value)
                for key, one in list(vars(value).items()):
                    if callable(one) or isinstance(one, (classmethod, staticmethod, property)):
                        names[value.__module__ + "." + value.__qualname__, key] = one
    return names

def changed():
    now = found()
    return sorted(".".join(key) for key, value in before.items() if now.get(key) is not value)

x = torch.randn(2, 5, 32)
torch.compile(nn.Linear(32, 4), backend="eager")(x)  # PyTorch's compiler replaces methods of PyTorch itself
before = found()
hooks = nn.modules.module._global_module_registration_hooks

import gemmsim as gs

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 32, batch_first=True), 1)
gs.tensor_quant.quantize_(model, {"*": {"num_bits": 8}}, report=str)
gs.mx.swap_linear_with_mx_linear(nn.MultiheadAttention(32, 4), "mxfp4", report=str)
attention = nn.MultiheadAttention(32, 4)
attention.out_proj = gs.nn.QLinear(32, 32, spec=":bf16")
gs.nn.call_children(attention)(x, x, x)[0].sum().backward()
gs.tensor_quant.calibrate(model, [x])
model.eval()(x)
torch.compile(attention, backend="eager", fullgraph=True)(x, x, x)
print(changed(), len(hooks))
with gs.emulate(":bf16"):
    print(changed())
    model(x)
    with gs.emulate([("layers.0", ":fp16"), ("*", ":bf16/sr")]), gs.audit():
        model(x)
    torch.compile(nn.Linear(32, 4), backend="eager", fullgraph=True)(x)
print(changed())

@torch.compile(backend="eager", fullgraph=True)
def inside(x):
    with gs.emulate(":bf16"):
        return x @ x.mT

inside(x)
print(changed(), len(hooks))
"""


def test_nothing_in_pytorch_is_another_object_but_while_a_context_is_open():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", EVERYTHING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    layers, during, after, compiled = done.stdout.splitlines()
    assert layers == compiled == "[] 0" and after == "[]"
    assert eval(during) == [
        "torch._dynamo.variables.torch.get_overridable_functions",
        "torch.autograd.function.Function.apply",
        f"torch.distributed._composable.checkpoint_activation.{GENERATOR}",
        "torch.nn.attention.flex_attention.setup_compilation_env",
        "torch.nn.parallel.data_parallel.DataParallel.parallel_apply",
        f"torch.utils.checkpoint.{GENERATOR}",
    ]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_nested_contexts_and_errors_inside_them(config):
    config = config if isinstance(config, str) else [("*", ":e5m4")]
    with emulate(config):
        with emulate(None), emulate(config):
            assert is_open()
        with pytest.raises(RuntimeError), emulate(config), emulate(":e5m3"):
            NET(X[:, :3])
        with pytest.raises(KeyboardInterrupt), emulate(config):
            raise KeyboardInterrupt
        assert is_open()
        NET(X)
    assert is_as_before()


def test_contexts_that_do_not_open_leave_nothing(monkeypatch):
    class Broken(Exception):
        pass

    def broken(original):
        raise Broken

    monkeypatch.setattr(deferred_contexts, "_with_snapshot", broken)
    monkeypatch.setattr("gemmsim.emulation.replaced._made", {})  # what was made for earlier contexts
    context = emulate(":e5m4")
    with pytest.raises(Broken), context:
        pass
    assert is_as_before()
    monkeypatch.undo()
    with context:
        assert is_open()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_contexts_of_threads_close_in_any_order(order, config):
    """Also where all of them enter the same object."""
    config = config if isinstance(config, str) else [("*", ":e5m4")]
    shared = emulate(config)
    opened = [threading.Event() for _ in order]
    close = [threading.Event() for _ in order]
    found = {}

    def run(i):
        with shared if i else emulate(config):
            opened[i].set()
            close[i].wait(60)
            found[i] = len(torch.overrides._get_current_function_mode_stack()), NET(X) is not None
        found[i] += (len(torch.overrides._get_current_function_mode_stack()),)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for i, thread in enumerate(threads):
        thread.start()
        assert opened[i].wait(60)
    for i in order:
        assert is_open()
        close[i].set()
        threads[i].join(60)
    assert found == dict.fromkeys(range(3), (1, True, 0)) and is_as_before()


def steps(config=":e5m2", n=3):
    with emulate(config):
        for _ in range(n):
            yield X @ X.mT


NATIVE = X @ X.mT
COARSE, FINE = (gs.qmatmul(X, X.mT, spec) for spec in (":e5m2", ":e5m4"))


def test_a_generator_closes_its_context_when_it_is_given_up():
    one = steps()
    assert torch.equal(next(one), COARSE) and is_open()
    one.close()
    assert is_as_before()
    two = steps()
    next(two)
    with pytest.raises(RuntimeError):
        two.throw(RuntimeError)
    assert is_as_before() and len(list(steps())) == 3
    assert is_as_before() and torch.equal(X @ X.mT, NATIVE)


def test_generators_leave_their_contexts_in_any_order():
    one = steps()
    next(one)
    with emulate(":e5m4"):
        one.close()
        assert torch.equal(X @ X.mT, FINE) and is_open()
    assert is_as_before() and torch.equal(X @ X.mT, NATIVE)
    first, second = steps(), steps(":e5m4")
    next(first), next(second)
    first.close()
    assert torch.equal(X @ X.mT, FINE)
    second.close()
    assert is_as_before() and torch.equal(X @ X.mT, NATIVE)


def test_a_generator_that_another_thread_closes():
    found = []

    def run():
        one.append(steps())
        next(one[0])
        left.set()
        closed.wait(60)
        found.extend((X @ X.mT, deferred_contexts.current()))
        with emulate(":e5m4"):
            found.append(X @ X.mT)
        leaf = X.clone().requires_grad_()
        leaf.square().sum().backward()
        found.append(leaf.grad)

    one, left, closed = [], threading.Event(), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert left.wait(60) and is_open()
    one[0].close()
    assert is_as_before()
    closed.set()
    thread.join(60)
    assert torch.equal(found[0], NATIVE) and found[1] is None, "it holds no longer where it was entered"
    assert torch.equal(found[2], FINE) and torch.equal(found[3], 2 * X)


def test_a_decorated_function_has_a_context_at_each_call():
    @emulate(":e5m2")
    def product(fail=False):
        """Words."""
        assert is_open()
        if fail:
            raise KeyError
        return X @ X.mT

    assert product.__doc__ == "Words." and torch.equal(product(), COARSE) and is_as_before()
    with pytest.raises(KeyError):
        product(fail=True)
    assert is_as_before()


def test_a_decorated_generator_runs_in_its_context_and_waits_outside():
    closed = []

    @emulate(":e5m2")
    def products(n):
        try:
            for _ in range(n):
                try:
                    given = yield X @ X.mT
                except KeyError:
                    given = "caught"
                if given is not None:
                    yield given, X @ X.mT
        finally:
            closed.append(X @ X.mT)
        return "all"

    one = products(4)
    assert is_as_before()
    assert torch.equal(next(one), COARSE) and is_as_before() and torch.equal(X @ X.mT, NATIVE)
    given, found = one.send("sent")
    assert given == "sent" and torch.equal(found, COARSE)
    next(one)
    given, found = one.throw(KeyError())
    assert given == "caught" and torch.equal(found, COARSE) and is_as_before()
    with emulate(":e5m4"):
        assert torch.equal(next(one), COARSE) and torch.equal(X @ X.mT, FINE)
    one.close()
    assert len(closed) == 1 and torch.equal(closed[0], COARSE) and is_as_before()

    def whole():
        return (yield from products(2))

    ended = whole()
    assert len(list(products(2))) == 2
    with pytest.raises(StopIteration) as stop:
        while True:
            next(ended)
    assert stop.value.value == "all"
    failing = products(2)
    next(failing)
    with pytest.raises(ValueError):
        failing.throw(ValueError())
    assert is_as_before()


def test_a_decorated_generator_draws_the_bits_of_one_context():
    @emulate(":e5m4/sr", seed=3, step=0)
    def decorated():
        for _ in range(3):
            yield NET(X)

    with emulate(":e5m4/sr", seed=3, step=0):
        want = [NET(X) for _ in range(3)]
    found = list(decorated())
    assert all(map(torch.equal, found, want)) and not torch.equal(want[0], want[1])


def test_async_functions_are_refused():
    async def one():
        pass

    async def several():
        yield

    for function in (one, several):
        with pytest.raises(ConfigError, match=r"async function.*\n  Try `with gemmsim.emulate"):
            emulate(":e5m2")(function)


def test_what_others_put_there_stays(monkeypatch):
    """Before a context it is what ours calls; while one is open it is left, and ours inside it does nothing more."""
    calls = []

    def noting(function):
        def apply(cls, *args):
            calls.append(cls)
            return function(cls, *args)

        return classmethod(apply)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    before = noting(lambda cls, *args: BEFORE[0].__get__(None, cls)(*args))
    monkeypatch.setattr(torch.autograd.Function, "apply", before)
    with emulate(":e5m2"):
        Twice.apply(X.clone().requires_grad_()).sum().backward()
    assert len(calls) == 1 and vars(torch.autograd.Function)["apply"] is before
    with emulate(":e5m2"):
        during = noting(vars(torch.autograd.Function)["apply"].__func__)
        torch.autograd.Function.apply = during
    assert vars(torch.autograd.Function)["apply"] is during
    with emulate(":e5m2"):
        Twice.apply(X)
    assert len(calls) == 1 + 2 and vars(torch.autograd.Function)["apply"] is during
    monkeypatch.undo()
    assert is_as_before()


def test_a_converted_model_that_draws_bits_gives_all_back_when_it_is_none_any_longer():
    model = gs.convert(torch.nn.Linear(8, 4), ":e5m4/sr")
    assert is_open()
    gs.convert(model, ":e5m4")
    assert is_as_before()
    kept = deferred_contexts.OWNERS.copy()
    gs.convert(model, ":e5m4/sr")
    other = gs.convert(torch.nn.Linear(8, 4), ":e5m4/sr")
    arithmetic = gs.emulation.arithmetic_of(model)
    undo(model)
    assert is_open() and arithmetic not in deferred_contexts.OWNERS, "not when it is collected"
    del other
    gc.collect()
    assert is_as_before() and set(deferred_contexts.OWNERS) == set(kept)


def test_an_audit_object_in_several_threads():
    shared = gs.audit()
    reports = {}
    entered, go_on, left = (threading.Event() for _ in range(3))

    def first():
        with shared as report:
            entered.set()
            assert go_on.wait(60)
            NET(X)
        reports["first"] = report
        left.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(60)
    with shared as report:
        NET(X), NET(X)
        go_on.set()
        assert left.wait(60)
    thread.join(60)
    assert len(list(reports["first"])) == 1 and len(list(report)) == 2


def test_contexts_closed_by_hand_in_the_wrong_order():
    with ExitStack() as stack:
        stack.enter_context(emulate(":e5m4"))
        outer, inner = emulate(":e5m2"), emulate([("*", ":e5m4")])
        outer.__enter__(), inner.__enter__()
        outer.__exit__(None, None, None)
        assert torch.equal(X @ X.mT, FINE)
        inner.__exit__(None, None, None)
        assert torch.equal(X @ X.mT, FINE)
