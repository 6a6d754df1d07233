"""The operators under ``torch.vmap``, ``torch.func``, autocast, modes and PyTorch's own operator checks."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from torch.utils._python_dispatch import TorchDispatchMode

import gemmsim as gs

FORMATS = gs.QAffineFormats(
    fprop="e4m3 : e8m10", dgrad="e5m2 * e4m3 : e6m9", wgrad="e5m2 : e6m9", grad_quant="e5m2", use_scaling=True
)


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


# vmap


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", ":mul=e5m3, add=e5m5/rtz", FORMATS], ids=str)
@pytest.mark.parametrize(
    ("dims", "shapes"),
    [
        ((0, None), ((3, 4, 5), (5, 6))),
        ((None, 0), ((4, 5), (3, 5, 6))),
        ((0, 0), ((3, 4, 5), (3, 5, 6))),
        ((1, 2), ((4, 3, 5), (5, 6, 3))),
        ((0, 0), ((3, 5), (3, 5))),
        ((0, 0), ((3, 5), (3, 5, 6))),
        ((0, 0), ((3, 2, 4, 5), (3, 5, 6))),
        ((0, None), ((3, 4, 5), (2, 5, 6))),
        ((None, 0), ((2, 1, 4, 5), (3, 7, 5, 6))),
    ],
    ids=str,
)
def test_vmap_is_the_call_on_each_example(spec, dims, shapes):
    a, b = tensors(*shapes)
    got = torch.vmap(lambda a, b: gs.qmatmul(a, b, spec), in_dims=dims)(a, b)
    parts = [[t] * 3 if d is None else t.unbind(d) for t, d in zip((a, b), dims, strict=True)]
    assert_bitwise_equal(got, torch.stack([gs.qmatmul(x, y, spec) for x, y in zip(*parts, strict=True)]))


def test_vmap_of_a_batched_product_is_the_batched_product():
    a, b = tensors((3, 4, 5), (3, 5, 6))
    got = torch.vmap(lambda a, b: gs.qmatmul(a, b, "e4m3 : e5m10"))(a, b)
    assert_bitwise_equal(got, gs.qmatmul(a, b, "e4m3 : e5m10"))
    assert "cpu" in str(gs.last_backend())


def test_nested_vmap():
    a, b = tensors((2, 3, 4, 5), (3, 5, 6))
    got = torch.vmap(torch.vmap(lambda a, b: gs.qmatmul(a, b, "e4m3 : e5m4")), in_dims=(0, None))(a, b)
    assert_bitwise_equal(got, gs.qmatmul(a, b, "e4m3 : e5m4"))


STOCHASTIC = {
    "quantize": lambda x, seed=None: gs.quantize(x, "e5m2/sr8", seed=seed),
    "qmatmul": lambda x, seed=None: gs.qmatmul(x, torch.eye(5), "e5m2/sr4 : e5m2/sr8", seed=seed),
}


@pytest.mark.parametrize("name", STOCHASTIC)
def test_vmap_and_random_bits(name):
    call = STOCHASTIC[name]
    x = tensors((4, 5))[0].expand(3, 4, 5)
    with_seed = torch.vmap(lambda t: call(t, 7))(x)
    assert_bitwise_equal(with_seed, torch.stack([call(t, 7) for t in x]))
    with pytest.raises(RuntimeError if name == "" else Exception, match="randomness"):
        torch.vmap(call)(x)
    same = torch.vmap(call, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    torch.manual_seed(3)
    different = torch.vmap(call, randomness="different")(x)
    assert not torch.equal(different[0], different[1])
    torch.manual_seed(3)
    assert_bitwise_equal(different, call(x.contiguous()))


def test_vmap_of_a_spec_with_a_seed_gives_every_example_the_same_bits():
    x = tensors((4, 5))[0].expand(3, 4, 5)
    got = torch.vmap(lambda t: gs.qmatmul(t, torch.eye(5), "e5m2/sr8 : sequential(e5m2/sr8, seed=3)"))(x)
    assert torch.equal(got[0], got[1]) and torch.equal(got[0], got[2])


def test_vmap_of_quantize_and_quantizer():
    (x,) = tensors((3, 4, 5))
    assert_bitwise_equal(torch.vmap(lambda t: gs.quantize(t, "e4m3"), in_dims=1, out_dims=1)(x), gs.quantize(x, "e4m3"))
    q = gs.quantizer("fixed(8,4)", "e5m2", clamping_grad_zero=True)
    assert_bitwise_equal(torch.vmap(q)(x * 6), q(x * 6))


# torch.func


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", FORMATS], ids=["spec", "formats"])
def test_func_grad_is_the_gradient(spec):
    x, w = tensors((4, 5), (6, 5))
    loss = lambda x, w: gs.qlinear(x, w, None, spec).pow(2).sum()  # noqa: E731
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    loss(*leaves).backward()
    for mine, leaf in zip(torch.func.grad(loss, argnums=(0, 1))(x, w), leaves, strict=True):
        assert_bitwise_equal(mine, leaf.grad)


def test_gradients_per_example():
    xs, w = tensors((3, 4, 5), (6, 5))
    grad = torch.func.grad(lambda w, x: gs.qlinear(x, w, None, FORMATS).pow(2).sum())
    assert_bitwise_equal(torch.vmap(grad, in_dims=(None, 0))(w, xs), torch.stack([grad(w, x) for x in xs]))


def test_quantizing_a_tensor_under_grad_is_refused():
    with pytest.raises(gs.GradError):
        torch.func.grad(lambda x: gs.quantize(x, "e4m3").sum())(torch.ones(3))


# Autocast


def test_autocast_leaves_operands_alone():
    """The spec says how operands are rounded; autocast, which would make them bfloat16, has no part in it."""
    x, w, bias = tensors((4, 5), (6, 5), (6,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ w.mT).dtype == torch.bfloat16
        for grad in (False, True):
            leaf = x.clone().requires_grad_(grad)
            for mine, want in (
                (gs.qmatmul(leaf, w.mT, "e4m3 : e5m10"), gs.qmatmul(x, w.mT, "e4m3 : e5m10")),
                (gs.qlinear(leaf, w, bias, "e4m3 : e5m10"), gs.qlinear(x, w, bias, "e4m3 : e5m10")),
                (gs.quantizer("e5m10")(leaf), gs.quantize(x, "e5m10")),
            ):
                assert_bitwise_equal(mine.detach(), want)
        y = gs.qlinear(x.bfloat16(), w, None, "e4m3 : e5m10")
        assert y.dtype == torch.float32
    outside = gs.qlinear(x, w, bias, "e4m3 : e5m10")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_bitwise_equal(gs.qlinear(x, w, bias, "e4m3 : e5m10"), outside)


# Modes, fakes and checks


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_see_the_operators():
    x, w = tensors((4, 5), (6, 5))
    with Names() as mode:
        gs.qlinear(x, w, None, "e4m3 : e5m10")
        gs.quantize(x, "e4m3")
    assert mode.seen[-2:] == ["gemmsim.matmul.default", "gemmsim.quantize.default"]
    with torch.profiler.profile() as profile:
        gs.qmatmul(x, w.mT, "e4m3 : e5m10")
    assert any(event.key == "gemmsim::matmul" for event in profile.key_averages())


def test_fake_tensors():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.empty(2, 4, 5, requires_grad=True), torch.empty(5, 6, dtype=torch.float64)
        y = gs.qmatmul(a, b, "e4m3/sr8 : e5m10 -> bf16")
        assert y.shape == (2, 4, 6) and y.dtype == torch.float64
        y.sum().backward()
        assert a.grad.shape == a.shape and a.grad.dtype == torch.float32
        with pytest.raises(gs.ShapeError):
            gs.qmatmul(a, a, "e4m3 : e5m10")


def test_subclasses_keep_their_say():
    class Loud(torch.Tensor):
        heard = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.heard.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    x, w = tensors((4, 5), (5, 6))
    got = gs.qmatmul(x.as_subclass(Loud), w, "e4m3 : e5m10")
    assert any("matmul" in name for name in Loud.heard)
    assert_bitwise_equal(got.as_subclass(torch.Tensor), gs.qmatmul(x, w, "e4m3 : e5m10"))


X, W = torch.randn(2, 4, 5), torch.randn(5, 6)
OPCHECKS = {
    "matmul": ("matmul", (X, W, "e4m3 : e5m10"), {}),
    "matmul, dtype": ("matmul", (X[0].double(), W, ":mul=e5m3, add=e5m5", 7, torch.bfloat16), {}),
    "matmul, stochastic": ("matmul", (X, W, ":e5m2/sr8", 7), {}),
    "matmul, transposed": ("matmul", (X.mT, X, "e4m3 : e5m10"), {}),
    "matmul_with_operands": ("matmul_with_operands", (X, W, "e4m3 * : e5m10"), {}),
    "matmul_with_operands, wide": ("matmul_with_operands", (X.bfloat16(), W, "e5m10 : e5m10", 3), {}),
    "quantize": ("quantize", (X, "e4m3"), {}),
    "quantize, strided": ("quantize", (X.mT, "e4m3/sr8", 3), {}),
    "quantize, wide": ("quantize", (X.bfloat16(), "e5m10", None, 16, 0, True), {}),
    "quantize_into": ("quantize_into", (X, "e4m3", torch.empty(2, 4, 5, dtype=torch.float64)), {}),
    "quantize_": ("quantize_", (X.clone(), "e4m3"), {}),
}


@pytest.mark.parametrize("name", OPCHECKS)
def test_opcheck(name):
    op, args, kwargs = OPCHECKS[name]
    torch.library.opcheck(getattr(torch.ops.gemmsim, op).default, args, kwargs)


@pytest.mark.parametrize("op", ["matmul", "quantize"])
def test_opcheck_of_tensors_that_require_grad(op):
    """Schema, fake and registration; the raw operators have a gradient formula, which says what to call instead."""
    args = (X.clone().requires_grad_(), W, "e4m3 : e5m10") if op == "matmul" else (X.clone().requires_grad_(), "e4m3")
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(getattr(torch.ops.gemmsim, op).default, args, test_utils=utils)
