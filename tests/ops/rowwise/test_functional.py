"""gemmsim.functional against PyTorch: identity formats, arguments at random, gradients, transforms, errors."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.rounding import assert_gradients, assert_near, largest
from torch._subclasses.fake_tensor import FakeTensorMode

import gemmsim as gs
from gemmsim.ops.rowwise import operators as row_operators

ID = "fp32"
SOFTMAX = gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID)
LSE = gs.QSoftmaxFormats(ID, None, None, ID, ID, ID)
NORM = gs.QLayerNormFormats(*[ID] * 7)
GELU = gs.QGELUFormats(ID, ID, ID, ID)
ATTENTION = gs.QAttentionFormats(":fp32", SOFTMAX, ":fp32")
ZERO = gs.QAttentionFormats(":fp32", gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID, masked_rows="zero"), ":fp32")


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(list(shape), generator=torch.Generator().manual_seed(seed + sum(shape)))


def check(ours, theirs, *tensors: torch.Tensor) -> None:
    a, b = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    y, z = ours(*a), theirs(*b)
    assert y.shape == z.shape and y.dtype == z.dtype
    # sums of at most 240 numbers, in a norm's gradient of 60 three, and fewer than 16 other roundings
    size = 1 + largest(z, *tensors)
    assert_near(y, z, 240 + 16, size=size)
    g = randn(*z.shape, seed=5)
    y.backward(g)
    z.backward(g)
    for p, q in zip(a, b, strict=True):
        assert_near(p.grad, q.grad, 240 + 16, size=size + largest(q.grad))


X, W, C = randn(4, 6, 10), randn(10), randn(6)
Q, K, V = randn(2, 4, 5, 8), randn(2, 2, 7, 8), randn(2, 2, 7, 6)
K4, V4 = randn(2, 4, 7, 8), randn(2, 4, 7, 6)
MASK = torch.ones(5, 7, dtype=torch.bool).tril(1)
HIDDEN = MASK.clone()
HIDDEN[2] = False
INDEX = torch.tensor([[0, 3, 3], [2, 0, 3]])

CASES = {
    "add": (lambda x, y: gs.qadd(x, y, ID, ID), torch.add, X, W),
    "mul": (lambda x, y: gs.qmul(x, y, ID, ID), torch.mul, X, W),
    "div": (lambda x, y: gs.qdiv(x, y, ID, ID), torch.div, X, W.abs() + 0.5),
    "sqrt": (lambda x: gs.qsqrt(x, ID, ID), torch.sqrt, X.abs() + 0.1),
    "pow": (lambda x: gs.qpow(x, ID, ID, 3.0), lambda x: x**3, X),
    "pow-real": (lambda x: gs.qpow(x, ID, ID, 1.7), lambda x: x**1.7, X.abs() + 0.1),
    "sum-all": (lambda x: gs.qsum(x, None, ID), lambda x: x.sum(), X),
    "sum-keepdim": (lambda x: gs.qsum(x, 1, ID, True), lambda x: x.sum(1, keepdim=True), X),
    "mean": (lambda x: gs.qmean(x, ID, ID, (2, 0)), lambda x: x.mean((2, 0)), X),
    "mean-tree": (lambda x: gs.qmean(x, ID, ID, -1, True, order="tree(4)"), lambda x: x.mean(-1, True), X),
    "relu": (lambda x: gs.qrelu(x, ID, ID), torch.relu, X),
    "layernorm": (lambda x, w, b: gs.qlayernorm(x, 10, w, b, 1e-5, NORM), lambda x, w, b: F.layer_norm(x, (10,), w, b), X, W, W + 1),
    "layernorm-2": (lambda x: gs.qlayernorm(x, (6, 10), None, None, 1e-5, NORM), lambda x: F.layer_norm(x, (6, 10)), X),
    "rmsnorm": (lambda x, w: gs.qrmsnorm(x, 10, w, 1e-5, NORM), lambda x, w: F.rms_norm(x, (10,), w, 1e-5), X, W),
    "groupnorm": (lambda x, w, b: gs.qgroupnorm(x, 3, w, b, 1e-5, NORM), lambda x, w, b: F.group_norm(x, 3, w, b), X, C, C + 1),
    "batchnorm": (lambda x, w, b: gs.qbatchnorm(x, None, None, w, b, True, fwd_quant=ID, bwd_quant=ID), lambda x, w, b: F.batch_norm(x, None, None, w, b, True), X, C, C + 1),
    "softmax": (lambda x: gs.qsoftmax(x, 1, SOFTMAX), lambda x: F.softmax(x, 1), X),
    "softmax-lse": (lambda x: gs.qsoftmax(x, None, LSE), lambda x: F.softmax(x, -1), X),
    "gelu": (lambda x: gs.qgelu(x, GELU), F.gelu, X),
    "gelu-tanh": (lambda x: gs.qgelu(x, GELU, "tanh"), lambda x: F.gelu(x, approximate="tanh"), X),
    "silu": (lambda x: gs.qsilu(x, GELU), F.silu, X),
    "embedding": (lambda w: gs.qembedding(INDEX, w, 2, None, 2.0, True, fwd_quant=ID, bwd_quant=ID), lambda w: F.embedding(INDEX, w, 2, None, 2.0, True), X[0]),
    "pool": (lambda x: gs.qavgpool2d(x, 2, ID, ID), lambda x: F.avg_pool2d(x, 2), X[None]),
    "pool-adaptive": (lambda x: gs.qadaptive_avgpool(x, 4, ID, ID), lambda x: F.adaptive_avg_pool2d(x, 4), X[None]),
    "attention-gqa": (lambda q, k, v: gs.qattention(q, k, v, enable_gqa=True, spec=ATTENTION), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), Q, K, V),
    "attention-mask": (lambda q, k, v: gs.qattention(q, k, v, MASK, scale=0.3, spec=ATTENTION), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK, scale=0.3), Q, K4, V4),
    "attention-float-mask": (lambda q, k, v: gs.qattention(q, k, v, MASK.float(), spec=ATTENTION), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK.float()), Q, K4, V4),
    "attention-causal": (lambda q, k, v: gs.qattention(q, k, v, is_causal=True, spec=ATTENTION), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), Q, K4, V4),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_identity_formats_equal_pytorch_in_value_and_gradient(name):
    check(*CASES[name])


@pytest.mark.parametrize("formats", [ZERO, ATTENTION, gs.QAttentionFormats(":fp32", None, ":fp32")])
def test_fully_masked_rows_are_pytorchs_zeros_and_do_not_poison_gradients(formats):
    tensors = [t.clone().requires_grad_() for t in (Q, K4, V4)]
    y = gs.qattention(*tensors, HIDDEN, spec=formats)
    assert bool((y[:, :, 2] == 0).all())
    y.sum().backward()
    assert all(bool(t.grad.isfinite().all()) for t in tensors)
    check(
        lambda *t: gs.qattention(*t, HIDDEN, spec=formats),
        lambda *t: F.scaled_dot_product_attention(*t, HIDDEN),
        Q, K4, V4,
    )  # fmt: skip


def test_fully_masked_rows_are_nan_if_asked():
    formats = gs.QAttentionFormats(":fp32", gs.QSoftmaxFormats(ID, ID, ID, masked_rows="nan"), ":fp32")
    assert bool(gs.qattention(Q, K4, V4, HIDDEN, spec=formats)[:, :, 2].isnan().all())
    assert gs.QAttentionFormats.from_dict(formats.to_dict()) == formats


@pytest.mark.parametrize("need_weights", [True, False])
def test_fully_masked_rows_of_the_module_are_those_of_torchs(need_weights):
    torch.manual_seed(0)
    plain = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours = gs.nn.QMultiheadAttention.from_float(plain, ATTENTION, ":fp32")
    x, hidden = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    hidden[1] = True
    got, want = (m(x, x, x, hidden, need_weights=need_weights)[0] for m in (ours, plain))
    assert_near(
        got, want, 4 * 8 + 8
    )  # projections, scores and outputs are sums of at most 8; softmax rounds less often
    assert bool(got[1].isnan().any()) is need_weights


pools = st.fixed_dictionaries(
    {
        "kernel_size": st.tuples(st.integers(1, 3), st.integers(1, 4)),
        "stride": st.one_of(st.none(), st.integers(1, 3)),
        "padding": st.integers(0, 1),
        "ceil_mode": st.booleans(),
        "count_include_pad": st.booleans(),
        "divisor_override": st.one_of(st.none(), st.integers(1, 5)),
    }
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(pools, st.integers(3, 7), st.integers(4, 8))
def test_average_pooling_of_any_arguments(arguments, height, width):
    x = randn(2, 3, height, width)
    try:
        F.avg_pool2d(x, **arguments)
    except RuntimeError:
        with pytest.raises(gs.ShapeError):
            gs.qavgpool2d(x, **arguments, fwd_quant=ID, bwd_quant=ID)
        return
    check(
        lambda x: gs.qavgpool2d(x, **arguments, fwd_quant=ID, bwd_quant=ID), lambda x: F.avg_pool2d(x, **arguments), x
    )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(1, 6))
def test_adaptive_pooling(h, w):
    x = randn(2, 5, 6)
    check(lambda x: gs.qadaptive_avgpool(x, (h, w), ID, ID), lambda x: F.adaptive_avg_pool2d(x, (h, w)), x)
    check(lambda x: gs.qavgpool1d(x, h % 3 + 1, ID, ID), lambda x: F.avg_pool1d(x, h % 3 + 1), x)
    y = randn(1, 2, 4, 5, 6)
    check(lambda x: gs.qavgpool3d(x, 2, ID, ID, padding=1), lambda x: F.avg_pool3d(x, 2, padding=1), y)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_sums_and_norms_of_any_shape(shape, drawn):
    x = randn(*shape)
    dims = drawn.draw(
        st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=3, unique_by=lambda d: d % len(shape))
    )
    keep = drawn.draw(st.booleans())
    check(lambda x: gs.qsum(x, dims, ID, keep), lambda x: x.sum(dims, keepdim=keep), x)
    last = drawn.draw(st.integers(1, len(shape)))
    normal = shape[-last:]
    if torch.Size(normal).numel() > 1:
        check(lambda x: gs.qlayernorm(x, normal, None, None, 0.1, NORM), lambda x: F.layer_norm(x, normal, eps=0.1), x)


@pytest.mark.parametrize("name", CASES)
def test_compiled_whole(name):
    ours, _, *tensors = CASES[name]
    want = ours(*tensors)
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    leaves = [t.clone().requires_grad_() for t in tensors]
    got = compiled(*leaves)
    assert torch.equal(got, want)
    got.sum().backward()
    assert all(t.grad is not None for t in leaves)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("attention", "pow", "sum"))])
def test_differentiating_twice_raises(name):
    ours, _, *tensors = CASES[name]
    leaf = tensors[0].clone().requires_grad_()
    (g,) = torch.autograd.grad(ours(leaf, *tensors[1:]).sum(), leaf, create_graph=True)
    with pytest.raises(gs.GradError, match="first derivatives"):
        g.sum().backward()


def test_float64_pass_through_gradients():
    x = randn(3, 5).double().requires_grad_()
    w = randn(5).double().requires_grad_()
    f = "fp64"
    norm, soft = gs.QLayerNormFormats(*[f] * 7), gs.QSoftmaxFormats(f, f, f, None, f, f)
    assert_gradients(lambda x, w: gs.qlayernorm(x, 5, w, None, 1e-5, norm), (x, w))
    assert_gradients(lambda x: gs.qsoftmax(x, -1, soft), (x,))
    assert_gradients(lambda x: gs.qgelu(x, gs.QGELUFormats(f, f, f, f)), (x,))
    assert_gradients(lambda x, w: gs.qmul(x, w, f, f), (x, w))


def test_operators_pass_opcheck():
    x, w = randn(3, 8), randn(8)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(row_operators.row_map_op, (x, w, "add", "e5m10"), test_utils=tests)
    torch.library.opcheck(row_operators.row_sum_op, (x, "e5m10", 4), test_utils=tests)
    torch.library.opcheck(row_operators.row_softmax_op, (x, "e5m10;e5m10;e5m10;", 1, False), test_utils=tests)
    torch.library.opcheck(row_operators.row_softmax_grad_op, (x, x, ";;;", 1), test_utils=tests)
    torch.library.opcheck(row_operators.row_norm_op, (x, w, w, ";" * 11, 1e-5, 1, True), test_utils=tests)
    torch.library.opcheck(
        row_operators.row_norm_grad_op, (x, w, x[:, 0], x[:, 1], x, ";" * 12, 1, True), test_utils=tests
    )


def test_vmap_equals_the_batch():
    x = randn(3, 4, 6)
    soft = gs.QSoftmaxFormats("bf16", "bf16", "bf16")
    assert torch.equal(torch.vmap(lambda t: gs.qsoftmax(t, -1, soft))(x), gs.qsoftmax(x, -1, soft))
    norm = gs.QLayerNormFormats(*["bf16"] * 4)
    assert torch.equal(
        torch.vmap(lambda t: gs.qlayernorm(t, 6, None, None, 1e-5, norm), in_dims=1, out_dims=1)(x),
        gs.qlayernorm(x, 6, None, None, 1e-5, norm),
    )
    assert torch.equal(torch.vmap(lambda t: gs.qadd(t, x[0, 0], "e4m3"))(x), gs.qadd(x, x[0, 0], "e4m3"))


def test_broadcast_gradients_are_summed_in_the_backward_format():
    """300 ones in e4m3 stop at 16, where one is half an ulp and the tie goes to even."""
    bias = torch.zeros(1, requires_grad=True)
    gs.qadd(torch.ones(300, 1), bias, None, "e4m3").sum().backward()
    assert bias.grad.item() == 16.0


@pytest.mark.parametrize(
    "formats",
    [SOFTMAX, LSE, NORM, GELU, gs.QSoftmaxFormats("e5m10/rtz", "bf16", "e4m3/sr8", output_quant=("e4m3", "rtz"), order="tree(64)", seed=3), gs.QLayerNormFormats(grad_quant="e5m2", bias_quant="bf16")],
    ids=["softmax", "lse", "norm", "gelu", "mixed", "quants"],
)  # fmt: skip
def test_formats_are_values(formats):
    again = type(formats).from_dict(formats.to_dict())
    for other in (again, copy.deepcopy(formats), pickle.loads(pickle.dumps(formats)), eval(repr(formats), vars(gs))):
        assert other == formats and hash(other) == hash(formats) and other.plan == formats.plan
    assert formats != type(formats)()


def test_roundings_of_a_direction_replace_those_of_the_formats():
    assert gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", fwd_rnd="rtz") == gs.QSoftmaxFormats(*["e5m10/rtz"] * 3)
    assert gs.QSoftmaxFormats("e5m10", fwd_lse="e5m10").use_lse and not SOFTMAX.use_lse


BAD = {
    "incomplete softmax": (gs.FormatError, lambda: gs.QSoftmaxFormats("e5m10")),
    "incomplete norm": (gs.FormatError, lambda: gs.QLayerNormFormats("e5m10")),
    "unknown order": (gs.SpecError, lambda: gs.QSoftmaxFormats(order="tree(3)")),
    "unknown field": (gs.SpecError, lambda: gs.QGELUFormats.from_dict({"what": 1})),
    "integers": (gs.DTypeError, lambda: gs.qsoftmax(torch.ones(3, dtype=torch.int32), 0)),
    "dim": (IndexError, lambda: gs.qsoftmax(X, 3, SOFTMAX)),
    "repeated dim": (gs.ShapeError, lambda: gs.qsum(X, (0, -3), ID)),
    "broadcast": (gs.ShapeError, lambda: gs.qadd(X, C, ID)),
    "normal shape": (gs.ShapeError, lambda: gs.qlayernorm(X, 9, spec=NORM)),
    "weight shape": (gs.ShapeError, lambda: gs.qlayernorm(X, 10, C, spec=NORM)),
    "groups": (gs.ShapeError, lambda: gs.qgroupnorm(X, 4, spec=NORM)),
    "groups of nothing": (gs.ShapeError, lambda: gs.qgroupnorm(X[..., :0], 3, spec=NORM)),
    "batch of one": (gs.ShapeError, lambda: gs.qbatchnorm(X[:1, :, :1], None, None, training=True, fwd_quant=ID)),
    "statistics": (gs.ShapeError, lambda: gs.qbatchnorm(X, None, None, fwd_quant=ID)),
    "approximate": (gs.SpecError, lambda: gs.qgelu(X, GELU, "sine")),
    "pool rank": (gs.ShapeError, lambda: gs.qavgpool2d(X[0], 2, ID, ID)),
    "pool padding": (gs.ShapeError, lambda: gs.qavgpool2d(X, 2, ID, ID, padding=2)),
    "index range": (gs.ShapeError, lambda: gs.qembedding(torch.tensor([6]), X[0], fwd_quant=ID)),
    "padding_idx": (gs.ShapeError, lambda: gs.qembedding(INDEX, X[0], 6, fwd_quant=ID)),
    "sparse": (gs.UnsupportedSpec, lambda: gs.qembedding(INDEX, X[0], sparse=True, fwd_quant=ID)),
    "attention shapes": (gs.ShapeError, lambda: gs.qattention(Q, K4[..., :7], V4, spec=ATTENTION)),
    "two masks": (gs.ShapeError, lambda: gs.qattention(Q, K4, V4, MASK, is_causal=True, spec=ATTENTION)),
    "mask shape": (gs.ShapeError, lambda: gs.qattention(Q, K4, V4, MASK.T, spec=ATTENTION)),
    "heads": (gs.ShapeError, lambda: gs.qattention(Q[:, :3], K, V, enable_gqa=True, spec=ATTENTION)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name):
    error, call = BAD[name]
    with pytest.raises(error, match="allowed"):
        call()


def test_vmap_over_weights_tables_and_windows_equals_a_loop():
    norm, x, w = gs.QLayerNormFormats(*["e5m10"] * 7), randn(3, 2, 4), randn(3, 4)
    quants = {"fwd_quant": "e5m10", "bwd_quant": "e5m10"}
    table, index = randn(3, 5, 2), torch.tensor([[1, 2], [3, 4], [0, 0]])
    cases = [
        (lambda x, w: gs.qlayernorm(x, 4, w, w + 1, 1e-5, norm), x, w),
        (lambda x, w: gs.qrmsnorm(x, 4, w, 1e-5, norm), x, w),
        (lambda x: gs.qavgpool2d(x, 2, **quants), randn(3, 2, 4, 4)),
        (lambda x: gs.qadaptive_avgpool(x, 2, **quants), randn(3, 2, 5, 5)),
        (lambda i, t: gs.qembedding(i, t, **quants), index, table),
    ]
    for ours, *tensors in cases:
        want = torch.stack([ours(*(t[i] for t in tensors)) for i in range(3)])
        assert torch.equal(torch.vmap(ours)(*tensors), want)
    per_example = torch.func.grad(lambda w, x: gs.qlayernorm(x, 4, w, None, 1e-5, norm).square().sum())
    want = torch.stack([per_example(w[0], x[i]) for i in range(3)])
    assert torch.equal(torch.vmap(per_example, in_dims=(None, 0))(w[0], x), want)


@pytest.mark.parametrize("name", ["attention", "conv", "transposed"])
def test_second_derivatives_by_any_argument_are_refused(name):
    soft = gs.QSoftmaxFormats(*["e5m10"] * 3, None, "e5m10", "e5m10")
    attention = gs.QAttentionFormats(":e5m10", soft, ":e5m10")
    ours, tensors = {
        "attention": (lambda *t: gs.qattention(*t, spec=attention), [Q[:, :, :2], K4, V4]),
        "conv": (lambda *t: gs.qconv1d(*t, spec=":e5m10"), [randn(1, 2, 6), randn(3, 2, 2), randn(3)]),
        "transposed": (
            lambda *t: gs.qconv_transpose1d(*t, spec=":e5m10"),
            [randn(1, 2, 6), randn(2, 3, 2), randn(3)],
        ),
    }[name]
    leaves = [t.clone().requires_grad_() for t in tensors]
    grads = torch.autograd.grad(ours(*leaves).square().sum(), leaves, create_graph=True)
    for leaf, g in zip(leaves, grads, strict=True):
        with pytest.raises(gs.GradError, match="first derivatives"):
            torch.autograd.grad(g.sum(), leaf, retain_graph=True)


@pytest.mark.parametrize("table", [torch.randn(5, 3), torch.zeros(5, 0)])
@pytest.mark.parametrize(
    "index", [torch.zeros(0, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long), torch.tensor([1])]
)
def test_embedding_of_no_rows_has_a_gradient(table, index):
    weight = table.clone().requires_grad_()
    y = gs.qembedding(index, weight, fwd_quant=ID, bwd_quant=ID)
    y.sum().backward()
    want = table.clone().requires_grad_()
    F.embedding(index, want).sum().backward()
    assert torch.equal(weight.grad, want.grad) and y.shape == (*index.shape, table.shape[1])


def test_embedding_without_data():
    weight = torch.randn(5, 3, device="meta", requires_grad=True)
    y = gs.qembedding(torch.zeros(2, 4, dtype=torch.long, device="meta"), weight, fwd_quant=ID, bwd_quant=ID)
    y.sum().backward()
    assert y.shape == (2, 4, 3) and weight.grad.shape == (5, 3)
    with FakeTensorMode():
        assert gs.qembedding(torch.tensor([1, 2]), torch.randn(5, 3), fwd_quant=ID).shape == (2, 3)


def test_group_norm_of_one_value_in_each_group_is_refused_as_by_pytorch():
    x = torch.randn(1, 2, 1)
    with pytest.raises(ValueError, match="more than 1 value"):
        F.group_norm(x, 2)
    with pytest.raises(gs.ShapeError, match="more than one value"):
        gs.qgroupnorm(x, 2, spec="e5m10")
    assert gs.qgroupnorm(torch.randn(2, 2, 1), 2, spec="e5m10").shape == (2, 2, 1)


@pytest.mark.parametrize(
    "quant", [None, "e8m7", "e4m3/sr", lambda x: gs.quantize(x, "e5m2")], ids=["none", "e8m7", "e4m3_sr", "function"]
)
def test_squares_are_products(quant):
    """Correctly rounded powers test each result for a tie, which products need not: minutes for a large batch norm."""
    x = torch.cat([X.flatten(), torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, 3e38])]).requires_grad_()
    y = gs.qpow(x, quant, quant, seed=4)
    assert_bitwise_equal(y.detach(), gs.qmul(x.detach(), x.detach().clone(), quant, quant, seed=4), nan_is_nan=True)
    if quant is None:
        assert_bitwise_equal(y.detach(), x.detach() ** 2, nan_is_nan=True)
    g = torch.autograd.grad(y.sum(), x)[0][: X.numel()]
    if quant in (None, "e8m7"):
        rounded = x.detach()[: X.numel()] if quant is None else gs.quantize(x.detach()[: X.numel()], quant)
        assert torch.equal(g, rounded * 2)
