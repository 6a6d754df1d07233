"""A counter is added to the seed when kernels run: forward, backward, in batches, in compiled code."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.rowwise import activations, batchnorm, elementwise, logsoftmax, lstm_gates, normalization, softmax
from gemmsim.ops.rowwise import operators as row_operators
from gemmsim.ops.seeds import Bits

CAST = "e5m2/sr8"
X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
W, B = torch.rand(8) + 0.5, torch.randn(8)
#: The steps of each operation, with these random bits: of the tensor and two vectors, which have gradients as well.
OPERATIONS = {
    "softmax": lambda x, w, b, bits: softmax.softmax(x, 1, CAST, bits),
    "softmax of a row": lambda x, w, b, bits: softmax.softmax(x, -1, CAST, bits),
    "log_softmax": lambda x, w, b, bits: logsoftmax.logsoftmax(x, 1, (CAST, CAST), "sequential", bits),
    "layer_norm": lambda x, w, b, bits: normalization.layernorm(x, 8, (w, b), 1e-3, CAST, bits),
    "rms_norm": lambda x, w, b, bits: normalization.rmsnorm(x, 8, w, None, CAST, bits),
    "group_norm": lambda x, w, b, bits: normalization.groupnorm(x, 2, (w[:6], b[:6]), 1e-5, CAST, bits),
    "batch_norm": lambda x, w, b, bits: batchnorm.batchnorm(
        x, (None, None, w[:6], b[:6]), (True, 0.1, 1e-5), (CAST, CAST), "sequential", bits
    ),
    "gelu": lambda x, w, b, bits: activations.gelu(x, CAST, "none", bits),
    "silu": lambda x, w, b, bits: activations.silu(x, CAST, bits),
    "sigmoid": lambda x, w, b, bits: lstm_gates.gate("sigmoid", x, CAST, CAST, bits),
    "tanh": lambda x, w, b, bits: lstm_gates.gate("tanh", x, CAST, CAST, bits),
    "relu": lambda x, w, b, bits: elementwise.relu(x, CAST, CAST, bits),
}
OPERATORS = {
    "map": (row_operators.row_map_op, (X, W, "add", CAST)),
    "sum": (row_operators.row_sum_op, (X, CAST, 4)),
    "softmax": (row_operators.row_softmax_op, (X, f"{CAST};{CAST};{CAST};", 1, False)),
    "softmax_grad": (row_operators.row_softmax_grad_op, (X, X, f"{CAST};{CAST};{CAST};", 1)),
    "norm": (row_operators.row_norm_op, (X, W, B, ";".join([CAST] * 12), 1e-5, 1, True)),
    "norm_grad": (
        row_operators.row_norm_grad_op,
        (X, W, X[..., 0], X[..., 1], X, ";".join([CAST] * 13), 1, True),
    ),
}


def count(n):
    return torch.full((), n, dtype=torch.int64)


def passes(operation, bits):
    leaves = [t.clone().requires_grad_() for t in (X, W, B)]
    out = operation(*leaves, bits)
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    grads = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
    return [out.detach(), *(g for g in grads if g is not None)]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_take_seed_plus_counter_forward_and_backward(operation):
    expected = passes(operation, Bits(11))
    for bits in (Bits(7, count(4)), Bits(12, count(-1))):
        for a, b in zip(passes(operation, bits), expected, strict=True):
            assert_bitwise_equal(a, b)
    other = passes(operation, Bits(7, count(5)))
    assert not any(torch.equal(a, b) for a, b in zip(other, expected, strict=True) if a.numel() > 8)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_one_graph_serves_all_counts(operation):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(
        lambda x, w, b, counter: operation(x, w, b, Bits(7, counter)), backend="aot_eager", fullgraph=True
    )
    for n in (0, 1, 5):
        found = passes(lambda x, w, b, bits, n=n: compiled(x, w, b, count(n)), None)
        for a, b in zip(found, passes(operation, Bits(7 + n)), strict=True):
            assert_bitwise_equal(a, b)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(("operator", "arguments"), OPERATORS.values(), ids=OPERATORS)
def test_operators(operator, arguments):
    def results(seed, stream, *counter):
        found = operator(*arguments, seed, stream, *counter)
        return found if isinstance(found, tuple) else (found,)

    for stream in (0, 6):
        for a, b in zip(results(7, stream, count(4)), results(11, stream), strict=True):
            assert_bitwise_equal(a, b)
        assert not torch.equal(results(7, stream, count(5))[0], results(11, stream)[0])
    top = (1 << 63) - 1  # seeds are numbers modulo 2**64
    assert_bitwise_equal(results(top, 0, count(1))[0], results(-(1 << 63), 0)[0])
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, (*arguments, 7, 3, count(4)), test_utils=tests)


@pytest.mark.parametrize(("operator", "arguments"), OPERATORS.values(), ids=OPERATORS)
def test_batches(operator, arguments):
    """Of members with tensors of their own, and of what all share."""
    tensors = [t for t in arguments if isinstance(t, torch.Tensor)]
    rest = [t for t in arguments if not isinstance(t, torch.Tensor)]

    for dims in ([0 if t.dim() > 1 else None for t in tensors], [0] * len(tensors)):
        given = [t if d is None or t.dim() > 1 else t.expand(4, -1) for t, d in zip(tensors, dims, strict=True)]

        def run(seed, *counter, dims=dims, given=given):
            found = torch.vmap(lambda *each: operator(*each, *rest, seed, 3, *counter), in_dims=tuple(dims))(*given)
            return found if isinstance(found, tuple) else (found,)

        for a, b in zip(run(7, count(4)), run(11), strict=True):
            assert_bitwise_equal(a, b)


def test_vmap_and_checkpoints_of_gradients():
    def loss(x, bits):
        return (softmax.softmax(x, -1, CAST, bits) * torch.arange(8.0)).sum()

    both = [
        torch.vmap(torch.func.grad(lambda x, bits=bits: loss(x, bits)))(X) for bits in (Bits(11), Bits(7, count(4)))
    ]
    assert_bitwise_equal(*both)
    x = X.clone().requires_grad_()
    again = torch.utils.checkpoint.checkpoint(loss, x, Bits(7, count(4)), use_reentrant=False)
    assert_bitwise_equal(torch.autograd.grad(again, x)[0], torch.autograd.grad(loss(x, Bits(11)), x)[0])


def test_without_a_seed_a_counter_changes_nothing():
    torch.manual_seed(0)
    drawn = gs.qrelu(X, CAST)
    torch.manual_seed(0)
    assert_bitwise_equal(elementwise.relu(X, CAST, None, Bits(None, count(3))), drawn)
