"""Overrides in compiled code, under functorch's transforms, of fake tensors, with random bits: eager's bits everywhere."""

import pytest
import torch
from emulation.agreement import NARROW, numbers, same, with_gradients
from support.long import long_but
from torch._subclasses import FakeTensorMode

import gemmsim as gs
from gemmsim.emulation.context import emulate

F = torch.nn.functional
BY_PRODUCT = {"compute_mode": "use_mm_for_euclid_dist"}
CALLS = {
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (3, 4), (3, 7), (7, 4)),
    "addbmm": (torch.addbmm, (3, 4), (2, 3, 7), (2, 7, 4)),
    "addr": (torch.addr, (3, 4), (3,), (4,)),
    "bilinear": (F.bilinear, (3, 4), (3, 5), (2, 4, 5)),
    "cdist": (lambda x, y: torch.cdist(x, y, **BY_PRODUCT), (3, 4), (6, 4)),
    "conv": (lambda x, w: F.conv2d(x, w, padding="same"), (2, 3, 5, 4), (4, 3, 3, 2)),
    "conv_transpose": (lambda x, w: F.conv_transpose1d(x, w, stride=2), (2, 3, 4), (3, 2, 3)),
    "cov": (torch.cov, (3, 7)),
    "einsum": (lambda *t: torch.einsum("ij,kj,...jl->lki", *t), (3, 4), (5, 4), (4, 2)),
    "multi_dot": (lambda *t: torch.linalg.multi_dot(t), (3, 4), (4, 5), (5, 2)),
    "power": (lambda a: torch.matrix_power(a, 5), (3, 3)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, ([1, 0], [0, 1])), (3, 4, 2), (4, 3, 5)),
    "twice the same": (lambda a: torch.cdist(a, a, **BY_PRODUCT) @ torch.dot(a[0], a[0]).expand(3), (3, 4)),
}


def tensors(name: str) -> list[torch.Tensor]:
    return [numbers(*shape, seed=i) for i, shape in enumerate(CALLS[name][1:])]


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("name", **long_but({name: name for name in CALLS}, "addmm", "conv", "einsum", "cdist"))
def test_compiled(name):
    torch._dynamo.reset()
    call, given = CALLS[name][0], tensors(name)
    with emulate(NARROW):
        expected, wanted = with_gradients(call, *given)
        found, grads = with_gradients(torch.compile(call, fullgraph=True, backend="aot_eager"), *given)
    same(found, expected)
    for g, w in zip(grads, wanted, strict=True):
        same(g, w)


@pytest.mark.parametrize("name", CALLS)
def test_transforms(name):
    call, given = CALLS[name][0], tensors(name)

    def total(*args):
        return call(*args).sum()

    both = [torch.stack([t, -2 * t]) for t in given]
    with emulate(NARROW):
        expected = torch.stack([call(*t) for t in zip(*both, strict=True)])
        same(torch.func.vmap(call)(*both), expected)
        grads = torch.stack([torch.func.grad(total)(*t) for t in zip(*both, strict=True)])
        same(torch.func.vmap(torch.func.grad(total))(*both), grads)


@pytest.mark.parametrize("name", CALLS)
def test_fake_tensors_have_the_shapes(name):
    call, given = CALLS[name][0], tensors(name)
    expected = call(*given)
    with FakeTensorMode() as fake, emulate(NARROW):
        found = call(*(fake.from_tensor(t) for t in given))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_data_have_the_shapes_and_gradients_too(name):
    call, given = CALLS[name][0], tensors(name)
    expected = call(*given)
    leaves = [t.to("meta").requires_grad_() for t in given]
    with emulate(NARROW):
        found = call(*leaves)
        found.sum().backward()
    assert (found.shape, found.dtype, found.device.type) == (expected.shape, expected.dtype, "meta")
    assert all(t.grad.shape == t.shape and t.grad.is_meta for t in leaves)


@pytest.mark.parametrize("name", CALLS)
def test_random_bits_belong_to_the_seed(name):
    call, given = CALLS[name][0], tensors(name)

    def run(seed: int) -> list[torch.Tensor]:
        with emulate(": e6m3/sr", seed=seed, step=0):
            out, grads = with_gradients(call, *given)
        return [out.detach(), *(g for g in grads if g is not None)]

    before = torch.get_rng_state()
    first, again, other = run(1), run(1), run(2)
    assert torch.equal(before, torch.get_rng_state())
    for x, y in zip(first, again, strict=True):
        same(x, y)
    assert not all(torch.equal(x, y) for x, y in zip(first, other, strict=True))


def test_results_of_another_dtype():
    a, b = numbers(3, 7, dtype=torch.bfloat16), numbers(7, 4, dtype=torch.bfloat16)
    wide = gs.qmatmul(a, b, NARROW, out_dtype=torch.float32)
    with emulate(NARROW):
        same(torch.mm(a, b, out_dtype=torch.float32), wide)
        same(torch.ops.aten.mm.dtype(a, b, torch.float32), wide)
        same(torch.bmm(a[None], b[None], out_dtype=torch.float32), wide[None])
        same(torch.ops.aten.addmm.dtype(a[:, :4], a, b, torch.float32), wide + a[:, :4].float())
