"""What holds for every class of ``gemmsim.nn``. The table is walked, so that a new class without an entry fails."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
from support import assert_bitwise_equal
from support.functional import first, make, modules
from support.rounding import assert_gradients

import gemmsim.nn
from gemmsim.nn import Quantizer

NOT_MODULES = {"ComputedWeightError", "Conversion", "Emulated", "NotCalledError", "call_children", "stands_for"}
NAMES = sorted({*gemmsim.nn.__all__} - NOT_MODULES)
#: Lazy classes are these after their first input.
EAGER = [name for name in NAMES if "Lazy" not in name]


def made(name: str, f: str = "e5m10", dtype: torch.dtype = torch.float32):
    """The module, with parameters if it was lazy, and its inputs."""
    torch.manual_seed(0)
    module = make(name, f, dtype)
    inputs = [t.to(dtype) if t.is_floating_point() else t for t in modules(f, dtype)[name].inputs]
    module(*inputs)
    return module, inputs


def parent(module: torch.nn.Module) -> type:
    """torch.nn's class that it stands for."""
    return next(c for c in type(module).__mro__ if c.__module__.startswith("torch.nn.modules"))


def results(module, inputs):
    """First result, and gradients by the parameters and the first input."""
    leaf = inputs[0].clone().requires_grad_(inputs[0].is_floating_point())
    wanted = [p for p in [leaf, *module.parameters()] if p.requires_grad]
    y = first(module(leaf, *inputs[1:]))
    return [y.detach(), *torch.autograd.grad(y.square().sum(), wanted)]


def assert_same(got, want):
    for g, w in zip(got, want, strict=True):
        assert_bitwise_equal(g.contiguous(), w.contiguous())


def test_every_class_has_an_entry():
    assert sorted(modules("e5m10")) == NAMES


@pytest.mark.parametrize("name", EAGER)
def test_compiled_whole_with_the_same_bits(name):
    torch._dynamo.reset()
    module, inputs = made(name)
    other = copy.deepcopy(module)  # running statistics move on
    # PyTorch compiles subclasses of its LSTM and GRU only where this is set.
    with torch._dynamo.config.patch(allow_rnn=name in ("QLSTM", "QGRU")):
        got = results(torch.compile(module, fullgraph=True, backend="aot_eager"), inputs)
    assert_same(got, results(other, inputs))


@pytest.mark.parametrize("name", [n for n in EAGER if n != "Quantizer"])
def test_gradcheck_where_formats_are_the_dtype(name):
    """``Quantizer`` is the identity then and has nothing to check."""
    module, inputs = made(name, "fp64", torch.float64)
    leaves = [t.clone().requires_grad_() for t in inputs if t.is_floating_point()]
    parameters = list(module.parameters())

    def call(*tensors):
        given = iter(tensors)
        args = [next(given) if t.is_floating_point() else t for t in inputs]
        values = dict(zip(dict(module.named_parameters()), given, strict=True))
        return first(torch.func.functional_call(module, values, tuple(args)))

    assert_gradients(call, (*leaves, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_copies_pickles_and_states(name):
    module, inputs = made(name)
    module.eval()
    want = results(module, inputs)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = make(name, "e5m10").eval()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for other in (fresh, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same(results(other, inputs), want)
    if not isinstance(module, Quantizer):
        plain = parent(module)
        assert plain is not torch.nn.Module and plain.__name__ == type(module).__name__[1:]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "Quantizer"])
def test_state_dictionaries_have_no_keys_of_their_own(name):
    how = modules("e5m10")[name]
    plain = getattr(torch.nn, name[1:])(*how.args, **how.theirs)
    assert list(plain.state_dict()) == list(make(name, "e5m10").state_dict())


@pytest.mark.parametrize("name", [n for n in NAMES if "dtype" in modules("e5m10")[n].theirs])
def test_device_and_dtype_are_arguments(name):
    module = make(name, "e5m10", torch.float64)
    assert all(p.dtype is torch.float64 for p in module.parameters())
    assert "device" in inspect.signature(type(module)).parameters or name in ("QLSTM", "QGRU")


@pytest.mark.parametrize("name", NAMES)
def test_constructors_are_torchs_plus_formats(name):
    """Same names in the same order with the same defaults; ours follow and are keywords."""
    module = make(name, "e5m10")
    if isinstance(module, Quantizer):
        pytest.skip("has no counterpart in torch.nn")
    theirs = next(c for c in type(module).__mro__ if c.__module__.startswith("torch.nn.modules"))
    want = list(inspect.signature(theirs).parameters.values())
    got = list(inspect.signature(type(module)).parameters.values())
    shared = [p for p in got if p.name not in ("spec", "projection", "fwd_quant", "bwd_quant")]
    if name not in ("QLSTM", "QGRU"):  # where torch's say nothing themselves
        assert [(p.name, p.default, p.kind) for p in shared] == [(p.name, p.default, p.kind) for p in want]
    assert any(p.name in ("spec", "fwd_quant") for p in got)
    assert "e5m10" in repr(module)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_modules_of_other_dtypes_train(name, dtype):
    module, inputs = made(name, "e5m7", dtype)
    for t in results(module, inputs):
        assert t.dtype is dtype and bool(t.isfinite().all())
