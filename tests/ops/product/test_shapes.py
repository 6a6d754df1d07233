"""``qmatmul`` has the shapes, strides and dtypes of ``torch.matmul``.

Operands are small integers, so an fp32 accumulator is exact, ``torch.matmul`` is too, and equality is bitwise.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs

SHAPES = [
    ((4, 5), (5, 6)),
    ((1, 1), (1, 1)),
    ((5,), (5,)),
    ((5,), (5, 6)),
    ((4, 5), (5,)),
    ((2, 4, 5), (5,)),
    ((5,), (2, 5, 6)),
    ((2, 4, 5), (5, 6)),
    ((4, 5), (2, 5, 6)),
    ((2, 4, 5), (2, 5, 6)),
    ((1, 4, 5), (3, 5, 6)),
    ((3, 4, 5), (1, 5, 6)),
    ((1, 4, 5), (1, 5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
    ((2, 3, 4, 5), (5, 6)),
    ((4, 5), (2, 3, 5, 6)),
    ((2, 3, 1, 4, 5), (1, 2, 5, 6)),
    ((1,) * 18 + (4, 5), (2,) + (1,) * 17 + (5, 6)),
    # Without elements, or without terms (K = 0: zeros).
    ((0, 5), (5, 6)),
    ((4, 5), (5, 0)),
    ((4, 0), (0, 6)),
    ((0,), (0,)),
    ((0,), (0, 6)),
    ((0, 4, 5), (5, 6)),
    ((0, 4, 5), (1, 5, 6)),
    ((2, 0, 5), (5, 6)),
    ((2, 4, 0), (2, 0, 6)),
    ((2, 4, 0), (0, 6)),
    ((0, 0), (0, 0)),
]


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(-4, 5, shape).to(dtype)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_shapes_are_those_of_torch_matmul(left, right, grad):
    torch.manual_seed(0)
    a, b = integers(*left), integers(*right)
    want = torch.matmul(a, b)
    got = gs.qmatmul(a.requires_grad_(grad), b, ":fp32")
    # A sum of products that are all zero is +0 in torch.matmul and here; -0 needs all addends -0.
    assert_bitwise_equal(got.detach() + 0.0, want + 0.0)


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_gradients_have_the_shapes_and_values_of_torch_matmul(left, right):
    torch.manual_seed(0)
    a, b = integers(*left).requires_grad_(), integers(*right).requires_grad_()
    torch.matmul(a, b).pow(2).sum().backward()
    want_a, want_b = a.grad, b.grad
    a.grad = b.grad = None
    gs.qmatmul(a, b, ":fp64").pow(2).sum().backward()
    assert_bitwise_equal(a.grad + 0.0, want_a + 0.0)
    assert_bitwise_equal(b.grad + 0.0, want_b + 0.0)


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_meta_tensors_give_the_shape(left, right):
    got = gs.qmatmul(torch.empty(left, device="meta"), torch.empty(right, device="meta"), "e4m3 : e5m10")
    want = torch.matmul(torch.empty(left, device="meta"), torch.empty(right, device="meta"))
    assert got.device.type == "meta" and got.shape == want.shape and got.dtype == want.dtype


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype_b", DTYPES, ids=str)
@pytest.mark.parametrize("dtype_a", DTYPES, ids=str)
def test_the_result_has_the_promoted_dtype_or_the_asked_one(dtype_a, dtype_b):
    a, b = integers(4, 5, dtype=dtype_a), integers(5, 6, dtype=dtype_b)
    exact = a.double() @ b.double()
    for out_dtype in (None, *DTYPES):
        for grad in (False, True):
            got = gs.qmatmul(a.clone().requires_grad_(grad), b, ":fp32", out_dtype=out_dtype)
            assert got.dtype == (out_dtype or torch.promote_types(dtype_a, dtype_b))
            assert_bitwise_equal(got.detach() + 0.0, exact.to(got.dtype) + 0.0)


def test_gradients_have_the_dtypes_of_their_operands():
    a = integers(4, 5, dtype=torch.bfloat16).requires_grad_()
    b = integers(5, 6, dtype=torch.float64).requires_grad_()
    gs.qmatmul(a, b, ":fp32").sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (torch.bfloat16, torch.float64)
    assert_bitwise_equal(a.grad + 0.0, b.detach().sum(1).expand(4, 5).to(torch.bfloat16) + 0.0)


def test_a_result_that_the_dtype_does_not_hold_is_rounded_to_it_to_nearest_even():
    a, b = torch.tensor([[2049.0]]), torch.tensor([[1.0]])
    assert gs.qmatmul(a, b, ":fp32", out_dtype=torch.float16).item() == 2048
    assert gs.qmatmul(3 * a, b, ":fp64", out_dtype=torch.bfloat16).item() == 6144


LAYOUTS = {
    "transposed": lambda t: t.mT.contiguous().mT,
    "every second element": lambda t: torch.stack([t, -t], -1).flatten(-2)[..., ::2],
    "batch innermost": lambda t: t.movedim(0, -1).contiguous().movedim(-1, 0),
    "expanded": lambda t: t[:1].expand(t.shape),
    "lazily negated": lambda t: torch._neg_view(-t),
    "slice of a larger tensor": lambda t: torch.nn.functional.pad(t, (1, 2, 3, 1), value=99.0)[..., 3:-1, 1:-2],
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
def test_strides_do_not_matter(left, right, grad):
    torch.manual_seed(0)
    a, b = LAYOUTS[left](integers(3, 4, 5)), LAYOUTS[right](integers(3, 5, 6))
    want = gs.qmatmul(a.resolve_neg().contiguous(), b.resolve_neg().contiguous(), "e4m3 : e5m3")
    got = gs.qmatmul(a.requires_grad_(grad) if a.is_leaf else a, b, "e4m3 : e5m3")
    assert_bitwise_equal(got.detach(), want)


@pytest.mark.parametrize("spec", ["mxfp8_e4m3 : fp32", "mxfp4 : scaled(exact())", "bfp(8,16) : fp32"])
def test_one_matrix_for_all_of_a_batch_in_block_formats(spec):
    a, b = integers(1, 4, 32).expand(5, 4, 32), integers(32, 3)
    assert_bitwise_equal(gs.qmatmul(a, b, spec), gs.qmatmul(a.contiguous(), b, spec))
    assert gs.qmatmul(a, b.expand(5, 32, 3), spec).shape == (5, 4, 3)


def test_qmm_takes_matrices_only():
    a, b = integers(4, 5), integers(5, 6)
    assert_bitwise_equal(gs.qmm(a, b, ":fp32"), gs.qmatmul(a, b, ":fp32"))
    for bad in (a[0], a[None]):
        with pytest.raises(gs.ShapeError, match="two matrices"):
            gs.qmm(bad, b, ":fp32")
