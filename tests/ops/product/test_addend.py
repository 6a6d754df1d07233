"""``c=``: an addend inside the accumulator, through every way of calling."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference

FIRST, LAST = ":sequential(e5m4, init=c_first)", "e4m3 : sequential(e5m4/sr8, seed=3, init=c_last)"


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("spec", [FIRST, LAST])
@pytest.mark.parametrize("shape", [(), (6,), (1, 6), (4, 1), (4, 6)], ids=str)
def test_c_broadcasts_to_the_product(spec, shape):
    a, b, c = tensors((4, 5), (5, 6), shape)
    want = reference.gemm(a, b, spec, c=c.expand(4, 6).tolist())
    assert_bitwise_equal(gs.qmatmul(a, b, spec, c=c), torch.tensor(want))
    assert_bitwise_equal(gs.qmatmul(a, b[:, 0], spec, c=c.expand(4, 6)[:, 0]), torch.tensor(want)[:, 0])


@pytest.mark.parametrize("shape", [(6,), (4, 1), (3, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_has_the_bits_of_its_definition(shape, shared):
    a, b, c = tensors((2, 3, 4, 5), (5, 6) if shared else (3, 5, 6), shape)
    got, full = gs.qmatmul(a, b, LAST, c=c), c.expand(2, 3, 4, 6)
    for i in range(6):
        at = (i // 3, i % 3)
        rows = reference.gemm(a[at], b if shared else b[at[1]], LAST, c=full[at].tolist(), row0=4 * i)
        assert_bitwise_equal(got[at], torch.tensor(rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_c_of_another_dtype_is_taken_exactly(dtype):
    a, b, c = tensors((4, 5), (5, 6), (4, 6))
    c = (c * (1 + 2.0**-40)).to(dtype)
    assert_bitwise_equal(gs.qmatmul(a, b, FIRST, c=c), torch.tensor(reference.gemm(a, b, FIRST, c=c.tolist())))


def test_gradients():
    a, b, c = (t.requires_grad_() for t in tensors((3, 4, 5), (5, 6), (6,)))
    out = gs.qmatmul(a, b, FIRST, c=c)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    out.backward(grad)
    with torch.no_grad():
        assert_bitwise_equal(a.grad, gs.qmatmul(grad, b.mT, ":e5m4"))
        rows = torch.ones(1, 12)
        assert_bitwise_equal(c.grad, gs.qmatmul(rows, grad.reshape(12, 6), ":e5m4")[0])


@pytest.mark.parametrize("dims", [(0, None, 0), (None, 0, 0), (0, 0, None), (None, None, 0)], ids=str)
def test_vmap(dims):
    shapes = [(4, 5), (5, 6), (6,)]
    a, b, c = tensors(*((s if d is None else (3, *s)) for s, d in zip(shapes, dims, strict=True)))
    got = torch.vmap(lambda a, b, c: gs.qmatmul(a, b, FIRST, c=c), in_dims=dims)(a, b, c)
    parts = [[t] * 3 if d is None else t.unbind(0) for t, d in zip((a, b, c), dims, strict=True)]
    assert_bitwise_equal(got, torch.stack([gs.qmatmul(x, y, FIRST, c=z) for x, y, z in zip(*parts, strict=True)]))


def test_compile():
    a, b, c = tensors((4, 5), (5, 6), (6,))

    def call(a, b, c):
        return gs.qmatmul(a, b, FIRST, c=c) + 1

    assert_bitwise_equal(torch.compile(call, backend="aot_eager", fullgraph=True)(a, b, c), call(a, b, c))


def test_opcheck():
    a, b, c = tensors((2, 4, 5), (5, 6), (4, 6))
    torch.library.opcheck(torch.ops.gemmsim.matmul.default, (a, b, FIRST), {"c": c})
    torch.library.opcheck(torch.ops.gemmsim.matmul_with_operands.default, (a, b, LAST), {"c": c})
