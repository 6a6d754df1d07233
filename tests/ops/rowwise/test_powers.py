"""``qpow`` with a tensor as exponent: values, both gradients, broadcasting, special values, errors.

Each step is compared with its definition in fractions (gemmsim/reference), one rounding at a time.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.formats import parse_cast
from gemmsim.reference import round_value
from gemmsim.reference.functions import apply_function

X = [0.5, 1.0, 1.5, 2.0, 3.0, 0.40625, 2.0**-6, 5.0]
N = [0.0, 1.0, 2.0, 3.0, -1.0, 4.0]
EACH = pytest.mark.parametrize("fmt", ["e5m3", "e4m3/rtz", "bf16/ru", "fixed(16,8)", "fp32"])


class Steps:
    """Exact results rounded to one format, from fractions."""

    def __init__(self, fmt: str) -> None:
        self.cast = parse_cast(fmt)

    def __call__(self, value: Fraction) -> Fraction:
        return Fraction(round_value(value, self.cast))

    def slope(self, x: Fraction, n: Fraction, g: Fraction) -> Fraction:
        return Fraction(0) if n == 0 else self(g * self(self(x ** int(n - 1)) * n))

    def slope_of_n(self, x: Fraction, n: Fraction, g: Fraction) -> Fraction:
        logarithm = Fraction(apply_function("log", float(x), 0.0, self.cast))
        return self(g * self(self(x ** int(n)) * logarithm))

    def sum(self, terms: list[Fraction]) -> Fraction:
        total = Fraction(0)
        for term in terms:
            total = self(total + term)
        return total


def grid(g: torch.Tensor) -> list[list[Fraction]]:
    return [[Fraction(v) for v in row] for row in g.tolist()]


def as_tensor(values) -> torch.Tensor:
    return torch.tensor([[float(v) for v in row] for row in values])


def incoming() -> torch.Tensor:
    return torch.randn(len(X), len(N), generator=torch.Generator().manual_seed(5)).bfloat16().float()


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.clone().requires_grad_() for t in tensors]


def assert_values_equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bits but for the sign of zero, which fractions have not."""
    assert_bitwise_equal(got.detach() + 0.0, want + 0.0)


@EACH
def test_values_and_gradients_are_the_definition(fmt):
    pairs = [(x, n) for x in X for n in N]
    s = Steps(fmt)
    x, n = leaves(torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs]))
    g = incoming().flatten()
    z = gs.qpow(x, fmt, fmt, n)
    dx, dn = torch.autograd.grad(z, [x, n], g)
    rows = [(Fraction(a), Fraction(b), Fraction(c)) for (a, b), c in zip(pairs, g.tolist(), strict=True)]
    assert_values_equal(z, as_tensor([[s(a ** int(b)) for a, b, _ in rows]])[0])
    assert_values_equal(dx, as_tensor([[s.slope(*row) for row in rows]])[0])
    assert_values_equal(dn, as_tensor([[s.slope_of_n(*row) for row in rows]])[0])


@EACH
def test_gradients_of_broadcast_operands_are_sums_in_the_backward_format(fmt):
    s, g = Steps(fmt), incoming()
    x, n = leaves(torch.tensor(X)[:, None], torch.tensor(N))
    z = gs.qpow(x, fmt, fmt, n)
    assert z.shape == (len(X), len(N))
    dx, dn = torch.autograd.grad(z, [x, n], g)
    parts = [[(Fraction(a), Fraction(b), c) for b, c in zip(N, row, strict=True)] for a, row in zip(X, grid(g), strict=True)]  # fmt: skip
    assert_values_equal(dx, as_tensor([[s.sum([s.slope(*p) for p in row])] for row in parts]))
    columns = list(zip(*parts, strict=True))
    assert_values_equal(dn, as_tensor([[s.sum([s.slope_of_n(*p) for p in column]) for column in columns]])[0])


@EACH
@pytest.mark.parametrize("n", [2.0, 3.0, 1.0, -1.0, 0.5])
def test_a_tensor_of_one_number_is_that_number(fmt, n):
    x, g = torch.tensor([*X, 0.0, math.inf, math.nan]), torch.arange(1.0, len(X) + 4.0)
    results = []
    for exponent in (n, torch.tensor(n), torch.full((len(x),), n)):
        (leaf,) = leaves(x)
        z = gs.qpow(leaf, fmt, fmt, exponent)
        results.append([z.detach(), *torch.autograd.grad(z, leaf, g)])
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            assert_bitwise_equal(got, want, nan_is_nan=True)


def test_random_bits_are_those_of_the_number():
    x = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.5
    results = []
    for exponent in (3.0, torch.tensor(3.0)):
        (leaf,) = leaves(x)
        z = gs.qpow(leaf, "e4m3/sr8", "e4m3/sr8", exponent, seed=7)
        results.append([z.detach(), *torch.autograd.grad(z, leaf, x.flip(0))])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_without_formats_values_and_gradients_are_pytorchs():
    x, n = torch.tensor([[0.5], [0.0], [2.0], [-2.0], [-0.0]]), torch.tensor([0.0, 2.0, 3.0, 0.5, -1.0])
    g = torch.randn(5, 5, generator=torch.Generator().manual_seed(2))
    ours, theirs = leaves(x, n), leaves(x, n)
    y, z = gs.qpow(ours[0], n=ours[1]), torch.pow(*theirs)
    assert_bitwise_equal(y.detach(), z.detach(), nan_is_nan=True)
    for got, want in zip(torch.autograd.grad(y, ours, g), torch.autograd.grad(z, theirs, g), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("fmt", [None, "e5m10"])
def test_gradients_at_the_edges(fmt):
    """x^0 is 1 for every x and 0^n is 0 for every positive n: no slope there, where the products would give NaN."""
    x, n = leaves(torch.tensor([0.0, math.inf, 0.0, -0.0, 0.0]), torch.tensor([0.0, 0.0, 2.0, 3.0, -1.0]))
    dx, dn = torch.autograd.grad(gs.qpow(x, fmt, fmt, n).sum(), [x, n])
    assert dx.tolist()[:4] == [0.0] * 4 and dn.tolist()[0] == dn.tolist()[2] == dn.tolist()[3] == 0.0
    assert dn.tolist()[4] == -math.inf
    (leaf,) = leaves(torch.tensor([0.0, 1.0, math.inf]))
    assert torch.autograd.grad(gs.qpow(leaf, fmt, fmt, 0.0).sum(), leaf)[0].tolist() == [0.0] * 3


def test_integers_are_converted_to_the_dtype_of_the_base():
    for base, dtype in ((torch.float64, torch.int64), (torch.float16, torch.uint8)):
        x = torch.tensor([1.5, -2.0, 0.25], dtype=base)
        z = gs.qpow(x, "e5m10", n=torch.tensor([[2], [3]], dtype=dtype))
        assert z.dtype == base and z.shape == (2, 3)
        assert z.tolist() == [[2.25, 4.0, 0.0625], [3.375, -8.0, 0.015625]]


@pytest.mark.parametrize(
    "n, error, words",
    [
        ("2", gs.DTypeError, "a number or a tensor"),
        (None, gs.DTypeError, "a number or a tensor"),
        (torch.ones(3, dtype=torch.bool), gs.DTypeError, "n has dtype torch.bool"),
        (torch.ones(3, dtype=torch.complex64), gs.DTypeError, "n has dtype torch.complex64"),
        (torch.ones(2), gs.ShapeError, "shapes that broadcast"),
    ],
)
def test_what_is_no_exponent_is_refused(n, error, words):
    with pytest.raises(error, match=words):
        gs.qpow(torch.ones(3), "e5m10", "e5m10", n)


def test_second_derivatives_are_refused():
    x, n = leaves(torch.tensor([1.5]), torch.tensor([2.0]))
    (dx,) = torch.autograd.grad(gs.qpow(x, "e5m10", "e5m10", n), x, create_graph=True)
    with pytest.raises(gs.GradError, match="qpow"):
        torch.autograd.grad(dx, n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_have_the_dtypes_of_the_operands(dtype):
    x, n = leaves(torch.tensor([1.5, 0.5], dtype=dtype), torch.tensor([2.0]))
    z = gs.qpow(x, "e4m3", "e4m3", n)
    dx, dn = torch.autograd.grad(z.sum(), [x, n])
    assert (dx.dtype, dn.dtype, dn.shape) == (dtype, torch.float32, (1,)) and dx.tolist() == [3.0, 1.0]


def test_batches_and_compiled_code():
    x, n = leaves(torch.rand(3, 4) + 0.5, torch.tensor([0.5, 2.0, 3.0, -1.0]))

    def loss(x, n):
        return gs.qpow(x, "e5m2", "e5m2", n)

    want = loss(x, n)
    assert torch.equal(torch.vmap(loss, in_dims=(0, None))(x, n), want)
    assert torch.equal(torch.compile(loss, fullgraph=True, backend="aot_eager")(x, n), want)
    assert torch.equal(gs.qpow(x, "e5m2", "e5m2", x), gs.qpow(x, "e5m2", "e5m2", x.detach().clone()))
