"""What holds for every function of ``gemmsim.functional``. The table is walked, so that a new name without a call fails.

Values are tested elsewhere; here: transforms, operators, derivatives, dtypes, strides and extreme shapes.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.functional import BATCHED, calls
from support.rounding import UNITS, assert_gradients, assert_near
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import gemmsim as gs
import gemmsim.functional

FP32, NARROW, WIDE = calls("fp32"), calls("e5m10"), calls("fp64")
NAMES = sorted(gemmsim.functional.__all__)


def leaves(tensors, dtype=torch.float32):
    return [t.to(dtype).clone().requires_grad_() for t in tensors]


def run(call, tensors):
    """Result and gradients by all tensors."""
    y = call(*tensors)
    weights = torch.arange(1.0, y.numel() + 1, dtype=y.dtype, device=y.device).reshape(y.shape).div(8).cos()
    return [y.detach(), *torch.autograd.grad(y, tensors, weights)]


def test_every_public_function_has_a_call_here():
    assert sorted(NARROW) == NAMES
    assert all(getattr(gs, name) is getattr(gemmsim.functional, name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_whole_with_the_same_bits(name):
    call, tensors = NARROW[name]
    torch._dynamo.reset()
    got = run(torch.compile(call, fullgraph=True, backend="aot_eager"), leaves(tensors))
    for g, w in zip(got, run(call, leaves(tensors)), strict=True):
        assert_bitwise_equal(g, w)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_where_formats_are_the_dtype(name):
    call, tensors = WIDE[name]
    assert_gradients(call, leaves(tensors, torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_differentiating_twice_is_refused(name):
    call, tensors = NARROW[name]
    inputs = leaves(tensors)
    grads = torch.autograd.grad(call(*inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(gs.GradError, match="first derivatives"):
        torch.autograd.grad(sum(g.square().sum() for g in grads), inputs)


class Operators(TorchDispatchMode):
    """Calls of gemmsim's operators, forward and backward."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "gemmsim":
            copied = tree_map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, (args, kwargs or {}))
            self.calls.setdefault(function, copied)
        return function(*args, **(kwargs or {}))


def operators():
    """The first call of each operator that any function makes."""
    seen = Operators()
    for name in NAMES:
        call, tensors = NARROW[name]
        with seen:
            run(call, leaves(tensors))
    return seen.calls


OPERATORS = operators()


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_every_operator_that_they_use_passes_opcheck(operator):
    args, kwargs = OPERATORS[operator]
    torch.library.opcheck(operator, args, kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_call_for_each_example(name):
    call, tensors = NARROW[name]
    many = [torch.stack([t, -t if (t < 0).any() else t + 1]) for t in tensors]
    got = torch.vmap(call)(*many)
    for i in range(2):
        assert_bitwise_equal(got[i], call(*(t[i] for t in many)))


@pytest.mark.parametrize("name", NAMES)
def test_strides_change_no_bit(name):
    call, tensors = NARROW[name]
    want = run(call, leaves(tensors))
    strided = []
    for t in tensors:
        spread = torch.empty([*reversed(t.shape), 2]).select(-1, 1).permute(*reversed(range(t.dim())))
        strided.append(spread.copy_(t).requires_grad_())
    for g, w in zip(run(call, strided), want, strict=True):
        assert_bitwise_equal(g.contiguous(), w.contiguous())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_other_dtypes_compute_the_same_numbers(name, dtype):
    """Inputs that every dtype holds, steps in e5m2: the results are numbers of it, in the dtype that came in."""
    call, tensors = calls("e5m2")[name]
    coarse = [gs.quantize(t, "e5m2") for t in tensors]
    want, got = run(call, leaves(coarse)), run(call, leaves(coarse, dtype))
    assert all(g.dtype is dtype for g in got)
    assert bool(got[0].isfinite().all())
    if name in UNROUNDED:
        # two roundings to the dtype, of a product and of a sum with a bias; float32 reads every dtype
        assert_near(got[0].float(), want[0], 2, dtype=max(dtype, torch.float32, key=UNITS.get))
    else:
        assert torch.equal(got[0].float(), want[0])


#: Their last step is rounded to the dtype itself: y = e / s, and w x + b.
UNROUNDED = {"qsoftmax", "qlayernorm", "qrmsnorm", "qgroupnorm", "qlinear"} | {n for n in NAMES if "conv" in n}


@pytest.mark.parametrize("name", sorted(BATCHED))
def test_an_empty_batch_gives_an_empty_result_and_zero_gradients(name):
    (call, tensors), (wide, _) = NARROW[name], FP32[name]
    empty = [t[:0] if i == 0 or t.shape[:2] == tensors[0].shape[:2] else t for i, t in enumerate(tensors)]
    got = run(call, leaves(empty))
    assert got[0].shape[0] == 0 and got[0].shape[1:] == wide(*tensors).shape[1:]
    assert all(bool((g == 0).all()) and g.shape == t.shape for g, t in zip(got[1:], empty, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_meta_tensors_give_shape_and_dtype(name):
    if name == "qembedding":
        pytest.skip("its indices lie on the CPU")
    call, tensors = NARROW[name]
    want = call(*tensors)
    got = call(*(t.to("meta") for t in tensors))
    assert (got.shape, got.dtype, got.device.type) == (want.shape, want.dtype, "meta")
