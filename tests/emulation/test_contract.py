"""Contractions: einsum, tensordot, chains, powers, bilinear forms, distances and covariances against the net."""

import pytest
import torch
from emulation.agreement import NARROW, agree, numbers, same, with_gradients
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.rounding import assert_near

import gemmsim as gs
from gemmsim.emulation.context import emulate

F = torch.nn.functional
aten = torch.ops.aten
SIZES = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 5, "B": 2, "Z": 3}

EQUATIONS = [
    *["ij,jk->ik", "ij,kj->ik", "oi,bi->bo", "bij,bjk->bik", "bhqd,bhkd->bhqk", "bhqk,bkhd->bqhd", "i,i->", "i,i"],
    *["ij,ij->", "ij,ij->i", "i,j->ij", "ij,j", "ij,jk", "...ij,...jk->...ik", "...ij,jk->...ik", "i...,i...->..."],
    *[
        "ii,ij->j",
        "iij,jk->ik",
        "ij,jk,kl->il",
        "ij,j,jk->ik",
        "ab,bc,cd,de->ae",
        "ijk,kl->",
        "Ba,aB->",
        "bn,anm,bm->ba",
    ],
    *["ij,jk->ki", " i j , j k -> i k ", "ijk,jk->i", "ijk,jlk->il", "ab,cd->abcd", "ab,cd->", "ij,kl,jl->ik"],
]


def operands(equation: str, dtype: torch.dtype = torch.float32, sizes=None) -> list[torch.Tensor]:
    """Operands for an equation; ellipses stand for sizes 2 and 3."""
    sizes = sizes or {}
    found = []
    for n, labels in enumerate(equation.replace(" ", "").split("->")[0].split(",")):
        shape = [(2, 3) if c == "." else (sizes.get(c, 2 + ord(c) % 4),) for c in labels.replace("...", ".")]
        found.append(numbers(*(size for part in shape for size in part), seed=n, dtype=dtype))
    return found


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equations(equation, dtype):
    agree(lambda *t: torch.einsum(equation, *t), *operands(equation, dtype))


@st.composite
def equations(draw) -> tuple[str, dict[str, int], list[tuple[int, ...]]]:
    """An equation, and shapes of its operands; some dimensions are broadcast, some labels repeated."""
    labels = "abcdeBZ"
    inputs = [
        "".join(draw(st.lists(st.sampled_from(labels), min_size=1, max_size=4))) for _ in range(draw(st.integers(2, 3)))
    ]
    used = sorted({c for part in inputs for c in part})
    output = draw(st.lists(st.sampled_from(used), unique=True, max_size=4))
    right = "" if draw(st.booleans()) else "->" + "".join(output)
    ones = draw(st.sets(st.tuples(st.integers(0, 2), st.sampled_from(used)), max_size=2))
    shapes = [tuple(1 if (n, c) in ones else SIZES[c] for c in part) for n, part in enumerate(inputs)]
    return ",".join(inputs) + right, {}, shapes


@given(equations(), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=60)
@example(("ab,ab->a", {}, [(2, 3), (1, 3)]), torch.float32)
@example(("ab,bc,ca->", {}, [(2, 3), (3, 4), (4, 2)]), torch.float32)
def test_any_equation(case, dtype):
    equation, _, shapes = case
    tensors = [numbers(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]
    agree(lambda *t: torch.einsum(equation, *t), *tensors)


@pytest.mark.parametrize("size", [0, 1])
def test_equations_of_empty_and_single_sizes(size):
    for equation in ("ij,jk->ik", "bij,bjk->bik", "ij,ij->", "ij,jk,kl->il"):
        for label in sorted(set(equation) - set(",->")):
            agree(lambda *t, e=equation: torch.einsum(e, *t), *operands(equation, sizes={label: size}))


def test_other_spellings_of_einsum():
    a, b = numbers(3, 7), numbers(7, 4)
    with emulate(NARROW):
        expected = torch.einsum("ij,jk->ik", a, b)
        same(torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), expected)
        same(torch.einsum(a, [Ellipsis, 30], b, [30, 2], [..., 2]), expected)
        same(torch.einsum("ij,jk->ik", [a, b]), expected)
        same(aten.einsum.default("ij,jk->ik", [a, b]), expected)
        same(torch._C._VariableFunctions.einsum("ij,jk->ik", [a, b]), expected)
    same(expected, gs.qmatmul(a, b, NARROW))


@pytest.mark.parametrize("path", [[0, 1, 0, 1], [1, 2, 0, 1], [0, 2, 0, 1], [2, 0, 1, 0]])
def test_paths_of_contractions(path):
    agree(lambda *t: aten.einsum.default("ij,jk,kl->il", t, path=path), *operands("ij,jk,kl->il"))


def test_opt_einsums_path_is_taken(monkeypatch):
    """With a stand-in for the package, which PyTorch asks for a path."""

    class Chooser:
        asked: list[object] = []

        @classmethod
        def contract_path(cls, equation, *operands, optimize, shapes=False):
            cls.asked.append([tuple(t) if shapes else tuple(t.shape) for t in operands])
            return [(1, 2), (0, 1)], None

    optimizer = torch.backends.opt_einsum
    monkeypatch.setattr(optimizer, "is_available", lambda: True)
    monkeypatch.setattr(optimizer, "get_opt_einsum", lambda: Chooser)
    monkeypatch.setattr(optimizer, "enabled", True)
    tensors = operands("ij,jk,kl->il")
    found = agree(lambda *t: torch.einsum("ij,jk,kl->il", *t), *tensors)
    same(found.detach(), gs.qmatmul(tensors[0], gs.qmatmul(*tensors[1:], NARROW), NARROW))
    assert all(shapes == [tuple(t.shape) for t in tensors] for shapes in Chooser.asked)


@st.composite
def contractions(draw) -> tuple[tuple[int, ...], tuple[int, ...], object]:
    """Shapes of two tensors and dimensions to contract, some of them of size one in one operand."""
    count = draw(st.integers(0, 2))
    kept = [draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2)) for _ in range(2)]
    inner = [draw(st.sampled_from([1, 2, 3, 4])) for _ in range(count)]
    sides = []
    for rest in kept:
        order = draw(st.permutations(range(count + len(rest))))
        sizes = [*(draw(st.sampled_from([n, n, 1])) for n in inner), *rest]
        sides.append((tuple(sizes[i] for i in order), [order.index(i) for i in range(count)]))
    return sides[0][0], sides[1][0], (sides[0][1], sides[1][1])


@given(contractions(), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=60)
def test_any_tensordot(case, dtype):
    left, right, dims = case
    a, b = numbers(*left, dtype=dtype), numbers(*right, seed=1, dtype=dtype)
    one = torch.tensordot(a, b, dims).numel() == 1  # PyTorch's dot, of whose gradients the products' tests are
    agree(lambda x, y: torch.tensordot(x, y, dims), a, b, gradients=not one)


@pytest.mark.parametrize(
    "dims", [0, 1, ([0, 1], [1, 0]), ([1], [0]), ([-1, 0], [0, -1]), torch.tensor([[1, 0], [0, 1]]), torch.tensor(1)]
)
def test_spellings_of_tensordot(dims):
    agree(lambda a, b: torch.tensordot(a, b, dims=dims), numbers(4, 3), numbers(3, 4), gradients=False)
    with emulate(NARROW):
        a, b = numbers(2, 3, 4), numbers(4, 3, 5)
        expected = torch.tensordot(a, b, ([2, 1], [0, 1]))
        same(aten.tensordot.default(a, b, [2, 1], [0, 1]), expected)


@pytest.mark.parametrize(
    "sizes", [(3, 4, 5), (3, 4, 5, 2), (5, 2, 7, 3), (2, 9, 3, 8, 4), (6, 2, 8, 1, 9, 3), (4, 4, 4, 4, 4)]
)
@pytest.mark.parametrize("ends", ["matrices", "row", "column", "both"])
def test_chains_in_the_order_of_least_work(sizes, ends):
    tensors = [numbers(m, n, seed=i) for i, (m, n) in enumerate(zip(sizes, sizes[1:], strict=False))]
    if ends == "matrices":
        agree(torch.chain_matmul, *tensors)
    if ends in ("row", "both"):
        tensors[0] = tensors[0][0]
    if ends in ("column", "both"):
        tensors[-1] = tensors[-1][:, 0]
    agree(lambda *t: torch.linalg.multi_dot(t), *tensors)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 13, 16, -1, -2, -3, -5])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_powers(n, shape):
    a = numbers(*shape) / 2 + 2 * torch.eye(3)
    agree(lambda t: torch.linalg.matrix_power(t, n), a, gradients=n >= 0)  # inv's gradient is linear algebra
    agree(lambda t: t.matrix_power(n), a, gradients=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4,), (1,), (2, 3), (), (0,)])
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 4, 1), (3, 1, 2)])
def test_bilinear(dtype, shape, sizes):
    i, j, outs = sizes
    tensors = [numbers(*shape, i, dtype=dtype), numbers(*shape, j, dtype=dtype), numbers(outs, i, j, dtype=dtype)]
    agree(F.bilinear, *tensors)
    agree(F.bilinear, *tensors, numbers(outs, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "left, right", [((30, 4), (3, 4)), ((3, 4), (26, 4)), ((2, 30, 4), (5, 4)), ((2, 1, 30, 4), (3, 5, 4))]
)
def test_distances_by_a_product(left, right, dtype):
    x, y = numbers(*left, dtype=dtype), numbers(*right, dtype=dtype)
    with torch.no_grad():
        x[..., 0, :] = y[..., :1, :][..., 0, :] if x.dim() == y.dim() == 2 else x[..., 0, :]
    agree(torch.cdist, x, y)
    agree(lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"), x[..., :4, :], y)


def test_distances_without_a_product_are_pytorchs():
    x, y = numbers(30, 4), numbers(5, 4)
    for call in (
        lambda: torch.cdist(x, y, p=1.0),
        lambda: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        lambda: torch.cdist(x[:20], y),
    ):
        expected = call()
        with emulate(NARROW):
            same(call(), expected)


def test_gradients_of_distances_take_the_operands_as_multiplied():
    x, y = numbers(30, 4), numbers(5, 4)
    with emulate("e4m3 : fp32"):
        out, (grad_x, _) = with_gradients(torch.cdist, x, y)
    grad = numbers(*out.shape, seed=5)
    ratio = (grad / out).masked_fill(out == 0, 0)
    rounded = gs.quantize(y, "e4m3")
    size = (
        x.abs() * ratio.abs().sum(-1, True) + ratio.abs() @ rounded.abs()
    )  # sums of 5, a quotient, a product and a difference
    assert_near(grad_x, x * ratio.sum(-1, True) - ratio @ rounded, 5 + 3, size=size.double())


def test_formats_with_quantisers_have_no_meaning_in_formulas_of_their_own():
    formats = gs.QAffineFormats(fprop=": e5m10", input_quant="e4m3")
    with emulate(formats), pytest.raises(gs.UnsupportedSpec, match="cdist"):
        torch.cdist(numbers(30, 4), numbers(5, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_covariances(dtype):
    x, counts, weights = numbers(3, 7, dtype=dtype), torch.arange(1, 8), numbers(7).abs().to(dtype)
    agree(torch.cov, x)
    agree(lambda t: torch.cov(t, correction=0, fweights=counts), x)
    agree(lambda t: t.cov(fweights=counts, aweights=weights), x)
    agree(torch.cov, x[0])
    agree(torch.corrcoef, x)
    agree(torch.corrcoef, x[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (), (3, 1)])
def test_gradients_of_sums_with_outer_products(shape, dtype):
    tensors = [numbers(*shape, dtype=dtype), numbers(3, dtype=dtype), numbers(4, dtype=dtype)]
    agree(torch.addr, *tensors)
    agree(lambda *t: torch.addr(*t, beta=0.5, alpha=3), *tensors)
    if shape == (3, 4):
        agree(lambda c, x, y: (c * 1).addr_(x, y, alpha=2), *tensors)
