"""Products of two tensors, and sums with them: every spelling against PyTorch's own decomposition in the net."""

import warnings

import pytest
import torch
from emulation.agreement import NARROW, agree, numbers, same, with_gradients

import gemmsim as gs
from gemmsim.emulation.context import emulate

F = torch.nn.functional
aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]

MATMUL = {
    "function": torch.matmul,
    "method": torch.Tensor.matmul,
    "operator": lambda a, b: a @ b,
    "reflected": lambda a, b: b.__rmatmul__(a),
    "linalg": torch.linalg.matmul,
    "keyword": lambda a, b: torch.matmul(input=a, other=b),
    "out": None,
    "aten": aten.matmul,
    "overload": aten.matmul.default,
    "mm": torch.mm,
    "mm method": torch.Tensor.mm,
    "mm keyword": lambda a, b: torch.mm(a, mat2=b),
    "mm aten": aten.mm,
    "mm overload": aten.mm.default,
    "inner": lambda a, b: torch.inner(a, b.mT),
    "inner method": lambda a, b: a.inner(b.mT),
    "linear": lambda a, b: F.linear(a, b.mT),
    "linear aten": lambda a, b: aten.linear.default(a, b.mT),
    "chain": torch.chain_matmul,
    "multi_dot": lambda a, b: torch.linalg.multi_dot([a, b]),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "einsum": lambda a, b: torch.einsum("ik,kj->ij", a, b),
    "addmm": lambda a, b: torch.addmm(a.new_zeros(b.shape[1]), a, b),
}  # fmt: skip


@pytest.mark.parametrize("spelling", [name for name in MATMUL if name != "out"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_spelling_of_a_product_of_matrices(spelling, dtype):
    a, b = numbers(3, 9, dtype=dtype), numbers(9, 4, dtype=dtype)
    found = agree(MATMUL[spelling], a, b)
    same(found.detach(), gs.qmatmul(a, b, NARROW))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "left, right",
    [
        *[((3, 8), (8, 5)), ((2, 3, 8), (8, 5)), ((2, 3, 8), (2, 8, 5)), ((2, 1, 3, 8), (2, 8, 5)), ((8,), (8, 5))],
        *[((1, 8), (8, 1)), ((0, 8), (8, 5)), ((3, 0), (0, 5)), ((0, 3, 8), (8, 5)), ((2, 3, 8), (2, 8, 0))],
        *[((3, 8), (2, 8, 5)), ((1, 3, 8), (2, 8, 5))],
    ],
)
def test_matmul_of_all_shapes(left, right, dtype):
    # Where PyTorch expands an operand of a batch, it adds products that gemmsim contracts in one sum: tested below.
    expanded = left in ((2, 1, 3, 8),)
    agree(torch.matmul, numbers(*left, dtype=dtype), numbers(*right, dtype=dtype), gradients=not expanded)


def test_gradients_of_broadcast_batches_are_one_sum_over_batch_and_rows():
    a, b = numbers(2, 1, 3, 8), numbers(2, 8, 5)
    with emulate(NARROW):
        out, (grad_a, grad_b) = with_gradients(torch.matmul, a, b)
    grad = numbers(*out.shape, seed=5)
    columns = grad.permute(0, 2, 1, 3).reshape(2, 3, 10)
    rows = b.permute(0, 2, 1).reshape(10, 8)
    same(grad_a, gs.qmatmul(columns, rows, NARROW).unsqueeze(1))
    left = a.squeeze(1).reshape(6, 8).mT
    expected = [gs.qmatmul(left, grad[:, i].reshape(6, 5), NARROW) for i in range(2)]
    same(grad_b, torch.stack(expected))


@pytest.mark.parametrize(
    "call, left, right",
    [
        *[(torch.mv, (3, 8), (8,)), (torch.Tensor.mv, (3, 8), (8,)), (aten.mv.default, (3, 8), (8,))],
        *[(torch.dot, (8,), (8,)), (torch.Tensor.dot, (8,), (8,)), (torch.vdot, (8,), (8,)), (aten.dot, (8,), (8,))],
        *[(torch.matmul, (3, 8), (8,)), (torch.matmul, (8,), (8,)), (torch.matmul, (2, 3, 8), (8,))],
        *[(torch.inner, (8,), (8,)), (torch.linalg.vecdot, (8,), (8,)), (torch.matmul, (8,), (2, 8, 3))],
        *[(F.linear, (3, 8), (8,)), (torch.mv, (3, 0), (0,)), (torch.dot, (0,), (0,))],
    ],
)
def test_vectors_are_matrices_of_one_row_or_column(call, left, right):
    a, b = numbers(*left), numbers(*right)
    agree(call, a, b, gradients=False)
    with emulate(NARROW):
        out, grads = with_gradients(call, a, b)
    rows = a if a.dim() > 1 else a.unsqueeze(0)
    columns = b if b.dim() > 1 else b.unsqueeze(1)
    grad = numbers(*out.shape, seed=5).reshape(*torch.broadcast_shapes(rows.shape[:-2], columns.shape[:-2]),
                                               rows.shape[-2], columns.shape[-1])  # fmt: skip
    leaves = [rows.clone().requires_grad_(), columns.clone().requires_grad_()]
    expected = torch.autograd.grad(gs.qmatmul(*leaves, NARROW), leaves, grad)
    for found, wanted, t in zip(grads, expected, (a, b), strict=True):
        same(found, wanted.reshape(t.shape))


@pytest.mark.parametrize("call", [torch.bmm, torch.Tensor.bmm, aten.bmm.default, torch.matmul])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(call, dtype):
    agree(call, numbers(3, 4, 7, dtype=dtype), numbers(3, 7, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "x",
    [
        numbers(7), numbers(3, 7), numbers(2, 3, 7), numbers(2, 2, 3, 7), numbers(3, 2, 7).transpose(0, 1),
        numbers(2, 3, 14)[..., ::2], numbers(0, 7),
    ],
    ids=["vector", "matrix", "batch", "two batches", "transposed", "strided", "empty"],
)  # fmt: skip
@pytest.mark.parametrize("bias", [True, False])
def test_linear_of_all_layouts(x, dtype, bias):
    tensors = (x.to(dtype), numbers(5, 7, dtype=dtype), numbers(5, seed=3, dtype=dtype))
    call = (lambda a, w, b: F.linear(a, w, b)) if bias else (lambda a, w, b: F.linear(a, w))
    agree(call, *tensors)


def test_linear_cross_entropy_is_linear_then_cross_entropy():
    target = torch.tensor([0, 4, 2])
    x, w, b = numbers(3, 7), numbers(5, 7), numbers(5)
    agree(lambda *t: F.linear_cross_entropy(*t[:2], target, linear_bias=t[2], label_smoothing=0.1), x, w, b)
    options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options").LinearCrossEntropyOptions()
    with emulate(NARROW):
        plain = F.linear_cross_entropy(x, w, target)
        same(F.linear_cross_entropy(x, w, target, options=options), plain)
    same(plain, F.cross_entropy(gs.qlinear(x, w, None, NARROW), target))


FACTORS = [(1, 1), (0.5, 1), (1, 2.5), (0, 1), (0, -3.0), (2, 0)]
ADDITIONS = {
    "addmm": (torch.addmm, (3, 4), (3, 7), (7, 4)),
    "addmv": (torch.addmv, (3,), (3, 7), (7,)),
    "baddbmm": (torch.baddbmm, (2, 3, 4), (2, 3, 7), (2, 7, 4)),
    "addbmm": (torch.addbmm, (3, 4), (2, 3, 7), (2, 7, 4)),
}


@pytest.mark.parametrize("name", ADDITIONS)
@pytest.mark.parametrize("beta, alpha", FACTORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_with_products(name, beta, alpha, dtype):
    call, *shapes = ADDITIONS[name]
    tensors = [numbers(*shape, dtype=dtype) for shape in shapes]
    agree(lambda *t: call(*t, beta=beta, alpha=alpha), *tensors, gradients=name != "addmv")


@pytest.mark.parametrize("c", [(4,), (1, 4), (3, 1), (), (1,), (3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_addends_broadcast(c, dtype):
    a, b = numbers(3, 7, dtype=dtype), numbers(7, 4, dtype=dtype)
    agree(torch.addmm, numbers(*c, dtype=dtype), a, b)
    agree(torch.baddbmm, numbers(*c, dtype=dtype), torch.stack([a, -a]), torch.stack([b, b]))
    agree(torch.addbmm, numbers(*c, dtype=dtype), torch.stack([a, -a]), torch.stack([b, b]))


def test_gradients_of_addmv_are_products_of_one_column():
    c, a, b = numbers(3), numbers(3, 7), numbers(7)
    with emulate(NARROW):
        out, grads = with_gradients(lambda *t: torch.addmv(*t, beta=0.5, alpha=3), c, a, b)
    grad = numbers(3, seed=5)
    same(grads[0], grad * 0.5)
    same(grads[1], gs.qmatmul(grad.unsqueeze(1), b.unsqueeze(0), NARROW) * 3)
    same(grads[2], gs.qmatmul(a.mT, grad, NARROW) * 3)


@pytest.mark.parametrize("name", ADDITIONS)
def test_other_spellings_of_sums(name):
    call, *shapes = ADDITIONS[name]
    c, a, b = (numbers(*shape) for shape in shapes)
    with emulate(NARROW):
        expected = call(c, a, b, beta=2, alpha=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [
                getattr(c, name)(a, b, beta=2, alpha=3),
                getattr(aten, name)(c, a, b, beta=2, alpha=3),
                getattr(aten, name).default(c, a, b, beta=2, alpha=3),
                call(2, c, 3, a, b),  # the order of older versions
                getattr(c, name)(2, 3, a, b),
                call(c, a, b, beta=2, alpha=3, out=torch.empty_like(expected)),
                getattr(c.clone(), f"{name}_")(a, b, beta=2, alpha=3),
            ]
    for out in found:
        same(out, expected)
    plain = call(c, a, b)
    assert not torch.equal(plain, expected)


@pytest.mark.parametrize("name", ADDITIONS)
def test_in_place_forms_write_into_their_tensor_and_have_gradients(name):
    call, *shapes = ADDITIONS[name]
    tensors = [numbers(*shape, dtype=torch.bfloat16) for shape in shapes]

    def run(c, a, b):
        c = c * 1
        kept = c
        assert getattr(c, f"{name}_")(a, b, beta=0.5) is kept
        return kept

    agree(run, *tensors, gradients=name != "addmv")


def test_addmm_with_an_activation():
    c, a, b = numbers(4), numbers(3, 7), numbers(7, 4)
    with emulate(NARROW):
        same(torch._addmm_activation(c, a, b), torch.relu(torch.addmm(c, a, b)))
        same(aten._addmm_activation(c, a, b, use_gelu=True), F.gelu(torch.addmm(c, a, b)))


def test_a_beta_of_zero_does_not_look_at_the_addend():
    c, a, b = torch.full((3, 4), torch.nan), numbers(3, 7), numbers(7, 4)
    with emulate(NARROW):
        assert torch.addmm(c, a, b, beta=0).isfinite().all()


OUT = {
    "matmul": lambda out: torch.matmul(numbers(3, 7), numbers(7, 4), out=out),
    "mm": lambda out: torch.mm(numbers(3, 7), numbers(7, 4), out=out),
    "addmm": lambda out: torch.addmm(numbers(4), numbers(3, 7), numbers(7, 4), out=out),
    "tensordot": lambda out: torch.tensordot(numbers(3, 7), numbers(7, 4), 1, out=out),
    "multi_dot": lambda out: torch.linalg.multi_dot([numbers(3, 7), numbers(7, 4)], out=out),
    "aten": lambda out: aten.mm.out(numbers(3, 7), numbers(7, 4), out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name):
    with emulate(NARROW):
        expected = OUT[name](torch.empty(3, 4))
        for out in (torch.empty(3, 4), torch.empty(4, 3).mT, torch.empty(0)):
            assert OUT[name](out) is out
            same(out, expected)
    assert not torch.equal(expected, OUT[name](torch.empty(0)))


AUTOCAST = {
    **{name: (call, (3, 7), (7, 4)) for name, call in MATMUL.items() if call is not None},
    **ADDITIONS,
    "mv": (torch.mv, (3, 7), (7,)),
    "dot": (torch.dot, (7,), (7,)),
    "vdot": (torch.vdot, (7,), (7,)),
    "vecdot": (torch.linalg.vecdot, (7,), (7,)),
    "inner of vectors": (torch.inner, (7,), (7,)),
    "bmm": (torch.bmm, (2, 3, 7), (2, 7, 4)),
    "linear with bias": (lambda b, x, w: F.linear(x, w, b), (4,), (3, 7), (4, 7)),
    "addmm_": (lambda c, a, b: c.clone().addmm_(a, b), (3, 4), (3, 7), (7, 4)),
    "out": (lambda a, b: torch.mm(a, b, out=torch.empty(0, dtype=a.dtype)), (3, 7), (7, 4)),
    "cdist": (lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"), (3, 7), (4, 7)),
}


@pytest.mark.parametrize("name", AUTOCAST)
@pytest.mark.parametrize(
    "cast, dtype",
    [(torch.bfloat16, d) for d in (torch.float32, torch.bfloat16, torch.float64)] + [(torch.float16, torch.float32)],
)
def test_autocast_in_both_orders(name, cast, dtype):
    call, *shapes = AUTOCAST[name]
    tensors = [numbers(*shape, dtype=dtype) for shape in shapes]

    def run(*tensors):
        with torch.autocast("cpu", cast):
            return call(*tensors)

    found = agree(run, *tensors, gradients=False)
    with torch.autocast("cpu", cast), emulate(NARROW):
        same(call(*tensors), found)


def test_gradients_under_autocast():
    def run(x, w, b):
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(x, w, b) @ b

    agree(lambda x, w, b: run(x, w, b).float(), numbers(3, 7), numbers(4, 7), numbers(4, 2).sum(1), gradients=False)
    agree(lambda x, w: torch.addmm(x[:, :4], x, w), numbers(7, 7), numbers(7, 4))


WRONG = {
    "inner sizes": lambda: torch.matmul(numbers(3, 7), numbers(8, 4)),
    "batches": lambda: torch.matmul(numbers(2, 3, 7), numbers(3, 7, 4)),
    "scalar": lambda: torch.matmul(numbers(3, 7), torch.tensor(1.0)),
    "dtypes": lambda: torch.matmul(numbers(3, 7), numbers(7, 4, dtype=torch.float64)),
    "mm of a batch": lambda: torch.mm(numbers(2, 3, 7), numbers(2, 7, 4)),
    "bmm of matrices": lambda: torch.bmm(numbers(3, 7), numbers(7, 4)),
    "bmm of batches": lambda: torch.bmm(numbers(1, 3, 7), numbers(2, 7, 4)),
    "mv of a matrix": lambda: torch.mv(numbers(3, 7), numbers(7, 1)),
    "dot of matrices": lambda: torch.dot(numbers(3, 7), numbers(3, 7)),
    "dot of lengths": lambda: torch.dot(numbers(3), numbers(7)),
    "linear": lambda: F.linear(numbers(3, 7), numbers(4, 8)),
    "linear bias": lambda: F.linear(numbers(3, 7), numbers(4, 7), numbers(5)),
    "linear bias dtype": lambda: F.linear(numbers(3, 7), numbers(4, 7), numbers(4, dtype=torch.float64)),
    "vector weight and bias": lambda: F.linear(numbers(3, 7), numbers(7), numbers(3)),
    "addmm addend": lambda: torch.addmm(numbers(5), numbers(3, 7), numbers(7, 4)),
    "addmm in place": lambda: numbers(4).addmm_(numbers(3, 7), numbers(7, 4)),
    "addmm dtype": lambda: torch.addmm(numbers(4, dtype=torch.float64), numbers(3, 7), numbers(7, 4)),
    "baddbmm": lambda: torch.baddbmm(numbers(4), numbers(3, 7), numbers(7, 4)),
    "addbmm": lambda: torch.addbmm(numbers(4), numbers(2, 3, 7), numbers(3, 7, 4)),
    "out dtype": lambda: torch.mm(numbers(3, 7), numbers(7, 4), out=torch.empty(3, 4, dtype=torch.float64)),
    "out with gradients": lambda: torch.mm(numbers(3, 7).requires_grad_(), numbers(7, 4), out=torch.empty(3, 4)),
    "inner": lambda: torch.inner(numbers(3, 7), numbers(4, 8)),
    "vecdot": lambda: torch.linalg.vecdot(numbers(7), numbers(8)),
    "chain": lambda: torch.linalg.multi_dot([numbers(3, 7), numbers(8, 4)]),
    "one of a chain": lambda: torch.linalg.multi_dot([numbers(3, 7)]),
    "power": lambda: torch.linalg.matrix_power(numbers(3, 7), 3),
    "number": lambda: torch.mm(numbers(3, 7), 3),
    "einsum equation": lambda: torch.einsum("ij,jk->iz", numbers(3, 7), numbers(7, 4)),
    "einsum ranks": lambda: torch.einsum("ijl,jk->ik", numbers(3, 7), numbers(7, 4)),
    "einsum sizes": lambda: torch.einsum("ij,jk->ik", numbers(3, 7), numbers(8, 4)),
    "einsum dtypes": lambda: torch.einsum("ij,jk->ik", numbers(3, 7), numbers(7, 4, dtype=torch.float64)),
    "einsum operands": lambda: torch.einsum("ij,jk,kl->il", numbers(3, 7), numbers(7, 4)),
    "tensordot": lambda: torch.tensordot(numbers(3, 7), numbers(8, 4), 1),
    "tensordot count": lambda: torch.tensordot(numbers(3, 7), numbers(7, 4), 3),
    "tensordot lists": lambda: torch.tensordot(numbers(3, 7), numbers(7, 4), ([1, 0], [0])),
    "tensordot fractions": lambda: torch.tensordot(numbers(3, 7), numbers(7, 4), ([1.0], [0])),
    "missing": lambda: torch.mm(numbers(3, 7)),
    "tensordot twice": lambda: torch.tensordot(numbers(3, 3), numbers(3, 3), ([0, 0], [0, 1])),
    "bilinear": lambda: F.bilinear(numbers(2, 3), numbers(2, 4), numbers(5, 3, 5)),
    "cdist": lambda: torch.cdist(numbers(30, 3), numbers(4, 5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_pytorchs_own(name):
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as expected:
        WRONG[name]()
    with pytest.raises(type(expected.value)) as found, emulate(NARROW):
        WRONG[name]()
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_integers_and_complex_numbers_are_pytorchs(dtype):
    a, b = (numbers(3, 7) * 9).to(dtype), (numbers(7, 4) * 9).to(dtype)
    calls = [torch.matmul, torch.mm, lambda x, y: torch.einsum("ij,jk", x, y), lambda x, y: torch.tensordot(x, y, 1)]
    calls += [lambda x, y: torch.addmm(x[:, :4], x, y), lambda x, y: torch.linalg.multi_dot([x, y])]
    for call in calls:
        expected = call(a, b)
        with emulate(NARROW):
            assert torch.equal(call(a, b), expected)


def test_not_a_number_and_infinities():
    a, b = numbers(4, 6), numbers(6, 3)
    a[0, 1], a[1, 2], b[2, 0], a[2], b[3, 1] = torch.nan, torch.inf, 0.0, -0.0, -torch.inf
    for call in (torch.matmul, lambda x, y: torch.einsum("ij,jk", x, y), lambda x, y: torch.addmm(x[:, :3], x, y)):
        agree(call, a, b)


def test_an_identity_spec_gives_the_native_numbers():
    a, b, c = numbers(5, 40), numbers(40, 6), numbers(6)
    bound = 41 * 2.0**-23 * (a.abs() @ b.abs() + c.abs())
    for call in (torch.addmm, lambda z, x, y: F.linear(x, y.mT, z), lambda z, x, y: torch.einsum("ij,jk", x, y) + z):
        with emulate(":fp32"):
            found = call(c, a, b)
        assert ((found - call(c, a, b)).abs() <= bound).all()


def test_first_operands_are_inputs_and_second_ones_weights():
    formats = {"fprop": "e4m3 * e5m2 : e5m10", "dgrad": ": e5m4", "wgrad": ": e5m5"}
    a, b = numbers(3, 7), numbers(7, 4)
    given = gs.QAffineFormats(**formats, bias_sum="torch")
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    expected = torch.autograd.grad(gs.qmatmul(*leaves, given), leaves, numbers(3, 4, seed=5))
    for name in ("function", "mm", "einsum", "tensordot", "chain", "addmm"):
        with emulate(formats):
            out, grads = with_gradients(MATMUL[name], a, b)
        same(out.detach(), gs.qmatmul(a, b, formats["fprop"]))
        for found, wanted in zip(grads, expected, strict=True):
            same(found, wanted, name)
