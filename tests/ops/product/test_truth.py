"""The bound of ``truth`` holds, by Fractions, on data of every kind; what is computed how; shapes and specials."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import gamma

import gemmsim as gs

INF, NAN = math.inf, math.nan
FAST, EXACT = ":two_sum(fp64)", ":exact(fp64)"
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def exact_product(a: torch.Tensor, b: torch.Tensor) -> list[list[Fraction]]:
    rows = [[Fraction(x) for x in row] for row in a.tolist()]
    columns = [[Fraction(x) for x in column] for column in b.mT.tolist()]
    return [[sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0)) for c in columns] for r in rows]


def check(a: torch.Tensor, b: torch.Tensor, **arguments) -> gs.Truth:
    found = gs.truth(a, b, **arguments)
    for i, row in enumerate(exact_product(a, b)):
        for j, want in enumerate(row):
            value, bound = float(found.value[i, j]), float(found.bound[i, j])
            if not math.isfinite(value):
                assert math.isinf(value) and math.isinf(bound) and abs(want) >= 2**1024 - 2**970
                assert (want > 0) == (value > 0)
            elif math.isfinite(bound):
                assert abs(Fraction(value) - want) <= Fraction(bound), (i, j, value, bound)
    return found


def normal(*shape: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(kind: str, seed: int, k: int = 61) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(4, k, dtype=torch.float64, generator=g), torch.randn(k, 5, dtype=torch.float64, generator=g)
    if kind == "cancelling":  # the second half takes back the first but for the last bits
        half = k // 2
        a[:, half : 2 * half], b[half : 2 * half] = a[:, :half], -b[:half] * (1 + 2.0**-50)
    elif kind == "cancelling to zero":
        half = k // 2
        a[:, half : 2 * half], b[half : 2 * half], a[:, 2 * half :] = a[:, :half], -b[:half], 0
    elif kind == "wide":
        a, b = (t * 2.0 ** torch.randint(-400, 400, t.shape, generator=g).double() for t in (a, b))
    elif kind == "subnormal products":
        a, b = (t * 2.0 ** torch.randint(-560, -510, t.shape, generator=g).double() for t in (a, b))
    elif kind == "subnormal operands":
        a, b = a * 2.0**-1070, b * 2.0 ** torch.randint(-3, 60, b.shape, generator=g).double()
    elif kind == "huge":
        a, b = a * 2.0**511, b * 2.0**512
    elif kind == "huge, cancelling":  # partial sums overflow, the sum does not
        a, b = (
            torch.full(shape, size, dtype=torch.float64) for shape, size in (((4, k), 2.0**1000), ((k, 5), 2.0**22))
        )
        a[:, k // 2 :] *= -1
        b[:, 2] *= 1 + 2.0**-20
        b[1] /= 3
    elif kind == "zeros":
        a[:, ::2], b[1::2] = 0, -0.0
    return a, b


KINDS = [
    *("normal", "cancelling", "cancelling to zero", "wide", "subnormal products", "subnormal operands", "huge"),
    *("huge, cancelling", "zeros"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_most", [None, 0.0], ids=["two_sum", "exact"])
def test_the_bound_holds(kind, at_most):
    for seed in range(6):
        a, b = operands(kind, seed)
        found = check(a, b, at_most=at_most)
        assert bool(found.exact.all()) or at_most is None
        if at_most == 0:
            assert_bitwise_equal(found.value, gs.qmatmul(a, b, EXACT))
    if kind == "huge, cancelling":
        assert found.method == EXACT and bool(found.value.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-140, 2.0**100])
def test_the_bound_holds_for_every_dtype(dtype, scale):
    for k in (1, 2, 3, 64, 300):
        a, b = (normal(3, k) * scale).to(dtype), normal(k, 4, seed=1).to(dtype)
        if dtype is torch.float16 and scale > 1:
            a = a.clamp(-65504, 65504)
        found = check(a, b)
        assert found.method == FAST and found.value.dtype is found.bound.dtype is torch.float64


def test_the_bound_of_narrow_operands_is_near_half_an_ulp():
    """Products are exact, which also float64 tensors with short significands have."""
    a, b = normal(8, 4096, dtype=torch.float32).abs(), normal(4096, 8, dtype=torch.float32, seed=1).abs()
    for left, right in ((a, b), (a.double(), b.double())):
        found = gs.truth(left, right)
        assert float((found.bound / found.value).max()) < 1.2 * 2**-53
    wide = normal(8, 4096).abs()
    assert 2**-53 < float((gs.truth(wide, b).bound / gs.truth(wide, b).value).min()) < 3 * 2**-53


def test_only_the_elements_that_ask_are_computed_exactly():
    a, b = operands("cancelling", 3)
    a[0], b[:, 0] = normal(61, seed=8), normal(61, seed=9)
    fast = check(a, b)
    limit = fast.bound.clone()
    limit[2, 3] = limit[3, 1] = 1e-300
    found = check(a, b, at_most=limit)
    assert found.exact.nonzero().tolist() == [[2, 3], [3, 1]]
    assert found.method == f"{FAST}, {EXACT}"
    assert_bitwise_equal(found.value[~found.exact], fast.value[~found.exact])
    assert_bitwise_equal(found.value[found.exact], gs.qmatmul(a, b, EXACT)[found.exact])
    assert bool((found.bound <= fast.bound).all()) and found.bound[2, 3] < fast.bound[2, 3]
    assert gs.truth(a, b, at_most=1e300).method == FAST


def test_within_is_a_share_of_the_size():
    a, b = operands("cancelling", 3)
    a[0], b[:, 0] = normal(61, seed=8), normal(61, seed=9)
    fast = gs.truth(a, b)
    shares = fast.bound / fast.size
    share = float(shares.median())
    found = check(a, b, within=share)
    assert torch.equal(found.exact, shares > share) and bool(found.exact.any()) and not bool(found.exact.all())
    limit = torch.full_like(fast.bound, 1e300)
    limit[0, 0] = 0.0
    assert torch.equal(gs.truth(a, b, at_most=limit, within=share).exact, (shares > share) | (limit == 0))
    a[2, 0] = NAN
    assert not bool(gs.truth(a, b, within=1e-3).exact[[0, 1, 3]].any())


def test_what_is_not_finite():
    a = torch.tensor([[1.0, 2.0], [INF, 1.0], [NAN, 0.0], [1e308, 1e308], [INF, -INF]], dtype=torch.float64)
    b = torch.tensor([[1.0, 0.0, 1e10], [1.0, 1.0, 1.0]], dtype=torch.float64)
    found = gs.truth(a, b)
    want = torch.tensor(
        [[3, 2, 1e10 + 2], [INF, NAN, INF], [NAN] * 3, [INF, 1e308, INF], [NAN] * 3], dtype=torch.float64
    )
    assert_bitwise_equal(found.value, want, nan_is_nan=True)
    assert found.bound.isnan().equal(want.isnan())
    assert found.bound[1, 0] == 0 == found.bound[1, 2]  # an infinite operand
    assert found.bound[3, 0] == found.bound[3, 2] == INF  # finite operands
    assert found.bound[3, 1] < 1e300


SHAPES = [((5,), (5,)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 4, 5), (5,)), ((3, 1, 4, 5), (2, 5, 6)), ((5,), (2, 5, 6))]
EMPTY = [((0, 5), (5, 6)), ((4, 0), (0, 6)), ((2, 4, 0), (0, 6)), ((0, 4, 5), (5, 6)), ((0,), (0,))]


@pytest.mark.parametrize("shapes", [*SHAPES, *EMPTY], ids=str)
@pytest.mark.parametrize("at_most", [None, 0.0])
def test_shapes_are_those_of_matmul(shapes, at_most):
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    found = gs.truth(a, b, at_most=at_most)
    assert_bitwise_equal(found.value, gs.qmatmul(a, b, FAST if at_most is None else EXACT))
    assert found.value.shape == found.bound.shape == found.exact.shape == found.size.shape
    assert_bitwise_equal(found.size, gs.qmatmul(a.abs(), b.abs(), ":fp64"))
    # PyTorch's sums in float64, in an order of their own, and ours
    assert bool(((found.value - a @ b).abs() <= 2 * gamma(5, torch.float64) * found.size).all())
    if shapes in EMPTY:
        assert not bool(found.bound.any())


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_at_most_broadcasts_to_the_result(shapes):
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    limit = torch.zeros_like(a @ b)
    assert bool(gs.truth(a, b, at_most=limit).exact.all())
    assert not bool(gs.truth(a, b, at_most=limit + 1).exact.any())


def test_strides_and_gradients_change_nothing():
    a, b = normal(12, 8).mT[::2], normal(6, 12, seed=1).mT
    want = gs.truth(a.contiguous(), b.contiguous(), at_most=1e-16)
    found = gs.truth(a.requires_grad_(), b, at_most=1e-16)
    assert_bitwise_equal(found.value, want.value)
    assert_bitwise_equal(found.bound, want.bound)
    assert not found.value.requires_grad


def test_narrow_dtypes_are_numbers():
    a, b = normal(3, 7).to(torch.float8_e4m3fn), torch.arange(14, dtype=torch.int8).reshape(7, 2)
    assert_bitwise_equal(gs.truth(a, b).value, a.double() @ b.double())


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot flush subnormals to zero")
@pytest.mark.parametrize("kind", ["subnormal products", "subnormal operands", "normal", "zeros"])
def test_the_bound_holds_where_the_caller_flushes_subnormals(kind):
    for seed in range(3):
        a, b = operands(kind, seed)
        torch.set_flush_denormal(True)
        try:
            found = gs.truth(a, b)
        finally:
            torch.set_flush_denormal(False)
        for i, row in enumerate(exact_product(a, b)):
            for j, want in enumerate(row):
                assert abs(Fraction(float(found.value[i, j])) - want) <= Fraction(float(found.bound[i, j]))


def test_refusals():
    a, b = normal(3, 4), normal(4, 2)
    with pytest.raises(gs.ShapeError, match="contracted sizes"):
        gs.truth(a, b.mT)
    with pytest.raises(gs.DTypeError, match="complex"):
        gs.truth(a.to(torch.complex64), b)
    with pytest.raises(gs.DTypeError, match="at_most='small'"):
        gs.truth(a, b, at_most="small")
    for bad in (-1.0, NAN):
        with pytest.raises(ValueError, match="negative number or a NaN"):
            gs.truth(a, b, at_most=bad)
        with pytest.raises(ValueError, match="within=.*allowed: a number of 0 or more"):
            gs.truth(a, b, within=bad)
    with pytest.raises(gs.DTypeError, match="within='small'"):
        gs.truth(a, b, within="small")
    with pytest.raises(gs.ShapeError, match="at_most has shape"):
        gs.truth(a, b, at_most=torch.zeros(3, 3))
    assert repr(gs.truth(a, b)).startswith("<Truth (3, 2) by :two_sum(fp64), largest bound ")
