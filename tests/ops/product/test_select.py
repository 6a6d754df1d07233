"""``select=``: a palette's member for each element, through every way of calling."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference

TEXT = "e4m3 : palette(e5m10, e5m2, bf16/rtz, chunked(2, e5m4))"
RANDOM = ":palette(e5m4/sr8, e5m10)"
FORMATS = gs.QAffineFormats(fprop=TEXT, dgrad=":bf16", wgrad=":e5m10")


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def indices(shape, count=4, dtype=torch.uint8):
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(), (6,), (1, 6), (4, 1), (4, 6)], ids=str)
def test_select_broadcasts_to_the_product(shape, dtype):
    (a, b), select = tensors((4, 5), (5, 6)), indices(shape, dtype=dtype)
    want = torch.tensor(reference.gemm(a, b, TEXT, select=select.expand(4, 6)))
    for call in (gs.qmatmul, gs.qmm):
        assert_bitwise_equal(call(a, b, TEXT, select=select), want)
    assert_bitwise_equal(gs.qmatmul(a, b[:, 0], TEXT, select=select.expand(4, 6)[:, 0]), want[:, 0])
    assert_bitwise_equal(gs.qmatmul(a[1], b, TEXT, select=select.expand(4, 6)[1]), want[1])


@pytest.mark.parametrize("shape", [(6,), (4, 1), (3, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("spec", [TEXT, RANDOM])
def test_a_batch_has_the_bits_of_its_definition(shape, shared, spec):
    (a, b), select = tensors((2, 3, 4, 5), (5, 6) if shared else (3, 5, 6)), indices(shape, 2)
    got, full = gs.qmatmul(a, b, spec, select=select, seed=3), select.expand(2, 3, 4, 6)
    for i in range(6):
        at = (i // 3, i % 3)
        rows = reference.gemm(a[at], b if shared else b[at[1]], spec, 3, select=full[at], row0=4 * i)
        assert_bitwise_equal(got[at], torch.tensor(rows))


def test_gradients_use_the_specs_given_for_them():
    (a, b), select = tensors((4, 5), (5, 6)), indices((4, 6))
    a.requires_grad_(), b.requires_grad_()
    out = gs.qmatmul(a, b, FORMATS, select=select)
    grad = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    out.backward(grad)
    with torch.no_grad():
        assert_bitwise_equal(out.detach(), gs.qmatmul(a, b, TEXT, select=select))
        qa, qb = gs.quantize(a, "e4m3"), gs.quantize(b, "e4m3")
        assert_bitwise_equal(a.grad, gs.qmatmul(grad, qb.mT, ":bf16"))
        assert_bitwise_equal(b.grad, gs.qmatmul(qa.mT, grad, ":e5m10"))


def test_gradients_by_a_palette_are_refused():
    (a, b), select = tensors((4, 5), (5, 6)), indices((4, 6))
    for left, right in ((a.clone().requires_grad_(), b), (a, b.clone().requires_grad_())):
        with pytest.raises(gs.GradError, match="QAffineFormats"):
            gs.qmatmul(left, right, TEXT, select=select)
        with torch.no_grad():
            gs.qmatmul(left, right, TEXT, select=select)
    with pytest.raises(gs.GradError, match="QAffineFormats"):
        torch.func.grad(lambda a: gs.qmatmul(a, b, TEXT, select=select).sum())(a)


@pytest.mark.parametrize("dims", [(0, None, 0), (None, 0, None), (0, 0, 0), (None, None, 0)], ids=str)
@pytest.mark.parametrize("spec", [TEXT, FORMATS], ids=str)
def test_vmap(dims, spec):
    shapes = [(4, 5), (5, 6), (6,)]
    a, b, select = (torch.empty(s if d is None else (3, *s)) for s, d in zip(shapes, dims, strict=True))
    (a, b), select = tensors(a.shape, b.shape), indices(select.shape)
    got = torch.vmap(lambda a, b, s: gs.qmatmul(a, b, spec, select=s), in_dims=dims)(a, b, select)
    parts = [[t] * 3 if d is None else t.unbind(0) for t, d in zip((a, b, select), dims, strict=True)]
    assert_bitwise_equal(got, torch.stack([gs.qmatmul(x, y, spec, select=s) for x, y, s in zip(*parts, strict=True)]))


@pytest.mark.parametrize("spec", [TEXT, FORMATS], ids=str)
def test_compile(spec):
    (a, b), select = tensors((4, 5), (5, 6)), indices((4, 6))

    def call(a, b, select):
        return gs.qmatmul(a, b, spec, select=select) + 1

    assert_bitwise_equal(torch.compile(call, backend="aot_eager", fullgraph=True)(a, b, select), call(a, b, select))


def test_compiled_gradients():
    (a, b), select = tensors((4, 5), (5, 6)), indices((4, 6))

    def grads(call):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        return torch.autograd.grad(call(x, y, select).square().sum(), (x, y))

    def call(a, b, select):
        return gs.qmatmul(a, b, FORMATS, select=select).cos()

    for mine, other in zip(grads(torch.compile(call, backend="aot_eager", fullgraph=True)), grads(call), strict=True):
        assert_bitwise_equal(mine, other)


def test_opcheck():
    (a, b), select = tensors((2, 4, 5), (5, 6)), indices((4, 6))
    torch.library.opcheck(torch.ops.gemmsim.matmul.default, (a, b, TEXT), {"select": select})
    torch.library.opcheck(torch.ops.gemmsim.matmul_with_operands.default, (a, b, TEXT), {"select": select})


A, B = torch.ones(4, 5), torch.ones(5, 6)
CASES = {
    "missing": ({}, TEXT, gs.SelectError, "without select"),
    "missing, with an addend's place": ({"arithmetic": "exact"}, TEXT, gs.SelectError, "without select"),
    "superfluous": ({"select": torch.tensor(0)}, ":e5m10", gs.SpecError, "select for palette"),
    "superfluous, no spec": ({"select": torch.tensor(0)}, None, gs.SpecError, "select for palette"),
    "too large": ({"select": torch.tensor(4)}, TEXT, IndexError, "index 4 in select; allowed: 0 to 3"),
    "negative": ({"select": torch.tensor([-1] * 6)}, TEXT, gs.SelectError, "index -1 in select"),
    "beyond a byte": ({"select": torch.tensor(256)}, TEXT, ValueError, "index 256 in select"),
    "floats": ({"select": torch.zeros(6)}, TEXT, gs.DTypeError, "torch.float32"),
    "bools": ({"select": torch.zeros(6, dtype=torch.bool)}, TEXT, TypeError, "torch.bool"),
    "a list": ({"select": [0] * 6}, TEXT, gs.DTypeError, "select is a list"),
    "shape": ({"select": torch.zeros(7, dtype=torch.uint8)}, TEXT, gs.ShapeError, r"select has shape \(7,\)"),
    "device": ({"select": torch.zeros(6, dtype=torch.uint8, device="meta")}, TEXT, gs.DeviceError, "select on meta"),
    "with c": ({"select": torch.tensor(0), "c": torch.ones(6)}, TEXT, gs.SpecError, "c with"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    kwargs, spec, error, text = CASES[name]
    with pytest.raises(error, match=text):
        gs.qmatmul(A, B, spec, **kwargs)


def test_a_layer_has_no_place_for_a_palette():
    with pytest.raises(gs.SelectError, match="qmatmul"):
        gs.qlinear(A, B.mT, None, TEXT)
