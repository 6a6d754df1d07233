"""The backward pass, role by role, equals the products it is defined as, written out with public calls.

fprop: ``y = qa @ qb``; dgrad: ``grad_a = qg @ qb.mT``; wgrad: ``grad_b = qa.mT @ qg``, gradient first in the spec.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference


def gradients(call, *tensors, grad=None):
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = call(*leaves)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(5)) if grad is None else grad)
    return (y.detach(), *(t.grad for t in leaves))


def tensors(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize(
    "spec", ["e4m3 * e5m2 : e5m7 -> bf16", ":mul=e5m5, add=e5m4", "bf16 : e5m3/rtz, arithmetic=fp32"]
)
def test_a_plain_spec_uses_its_accumulator_for_all_three_products(spec):
    a, b, g = tensors((4, 9), (9, 5), (4, 5))
    meaning = gs.GemmSpec.of(spec)
    qa = a if meaning.a is None else gs.quantize(a, meaning.a)
    qb = b if meaning.b is None else gs.quantize(b, meaning.b)
    backward = gs.GemmSpec(accumulator=meaning.accumulator, out=meaning.out, arithmetic=meaning.arithmetic)
    y, grad_a, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, spec), a, b, grad=g)
    assert_bitwise_equal(y, gs.qmatmul(a, b, spec))
    assert_bitwise_equal(grad_a, gs.qmatmul(g, qb.mT, backward))
    assert_bitwise_equal(grad_b, gs.qmatmul(qa.mT, g, backward))


def test_an_instruction_gets_each_operand_where_its_format_is():
    """``hw`` with a in e4m3 and b in e5m2: the gradient takes the place, and the format, of the operand it replaces."""
    (x, w, g), name = tensors((4, 40), (5, 40), (4, 5)), "hw(hopper, wgmma, {}, {})"
    qx, qw = gs.quantize(x, "e4m3"), gs.quantize(w, "e5m2")
    forward, swapped = name.format("e4m3", "e5m2"), name.format("e5m2", "e4m3")
    y, grad_x, grad_w = gradients(lambda x, w: gs.qlinear(x, w, None, f":{forward}"), x, w, grad=g)
    assert_bitwise_equal(y, gs.qmatmul(qx, qw.mT, f":{forward}"))
    assert_bitwise_equal(grad_x, gs.qmatmul(gs.quantize(g, "e4m3"), qw, f":{forward}"))
    assert_bitwise_equal(grad_w, gs.qmatmul(gs.quantize(g.mT, "e5m2"), qx, f":{swapped}"))
    z, grad_a, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, f":{forward}"), x, w.mT.contiguous(), grad=g)
    for mine, want in zip((z, grad_a, grad_b.mT), (y, grad_x, grad_w), strict=True):
        assert_bitwise_equal(mine, want)


FORMATS = gs.QAffineFormats(
    fprop="e4m3 : e5m7",
    dgrad="e5m2 * e4m3 : e5m5/rtz",
    wgrad="e5m2/ru * e3m2 : mul=e5m6, add=e6m4 -> e5m2",
    input_quant="e4m3/rtz",
    weight_quant="e3m4",
    bias_quant="e4m3",
    output_quant="e5m6",
    grad_quant="e5m3",
)


def test_every_step_of_qlinear_is_the_one_written_out():
    x, w, bias, g = tensors((4, 9), (5, 9), (5,), (4, 5))
    got = gradients(lambda x, w, bias: gs.qlinear(x, w, bias, FORMATS), x, w, bias, grad=g)
    # Forward: the spec's operand casts act on what the quantisers return, and that is saved.
    qx, qw = gs.quantize(gs.quantize(x, "e4m3/rtz"), "e4m3"), gs.quantize(gs.quantize(w, "e3m4"), "e4m3")
    y = gs.quantize(gs.qmatmul(qx, qw.mT, ":e5m7") + gs.quantize(bias, "e4m3"), "e5m6")
    qg = gs.quantize(g, "e5m3")
    grad_x = gs.quantize(gs.qmatmul(qg, qw, "e5m2 * e4m3 : e5m5/rtz"), "e5m3")
    grad_w = gs.quantize(gs.qmatmul(qg.mT, qx, "e5m2/ru * e3m2 : mul=e5m6, add=e6m4 -> e5m2"), "e5m3")
    grad_bias = gs.quantize(gs.qmatmul(torch.ones(1, 4), qg, ":e6m4")[0], "e5m3")
    for name, mine, want in zip(("y", "x", "weight", "bias"), got, (y, grad_x, grad_w, grad_bias), strict=True):
        assert_bitwise_equal(mine, want, context=name)


def test_every_step_of_qmatmul_is_the_one_written_out():
    a, b, g = tensors((4, 9), (9, 5), (4, 5))
    got = gradients(lambda a, b: gs.qmatmul(a, b, FORMATS), a, b, grad=g)
    qa, qb = gs.quantize(gs.quantize(a, "e4m3/rtz"), "e4m3"), gs.quantize(gs.quantize(b, "e3m4"), "e4m3")
    qg = gs.quantize(g, "e5m3")
    y = gs.quantize(gs.qmatmul(qa, qb, ":e5m7"), "e5m6")
    grad_a = gs.quantize(gs.qmatmul(qg, qb.mT, "e5m2 * e4m3 : e5m5/rtz"), "e5m3")
    grad_b = gs.quantize(gs.qmatmul(qa.mT, qg, "e3m2 * e5m2/ru : mul=e5m6, add=e6m4 -> e5m2"), "e5m3")
    for name, mine, want in zip(("y", "a", "b"), got, (y, grad_a, grad_b), strict=True):
        assert_bitwise_equal(mine, want, context=name)


def test_the_bias_gradient_is_a_sequential_sum_in_the_add_format():
    x, w, bias = tensors((64, 5, 3), (3, 3), (3,))
    formats = gs.QAffineFormats(bwd_mac=("e4m3", "e5m2"))
    g = torch.ones(64, 5, 3)
    *_, grad_bias = gradients(lambda x, w, b: gs.qlinear(x, w, b, formats), x, w, bias, grad=g)
    want = reference.gemm(torch.ones(1, 320).tolist(), g.reshape(320, 3).tolist(), ":e4m3")
    assert_bitwise_equal(grad_bias, torch.tensor(want)[0])
    assert grad_bias[0] == 16.0  # 16 + 1 is a tie, and the even neighbour is 16


def test_the_weight_gradient_of_a_batch_is_one_long_sum():
    """Not a batch of GEMMs added afterwards: 64 x 5 ones in e4m3 stop at 16."""
    x, w = torch.ones(64, 5, 3), torch.ones(2, 3)
    formats = gs.QAffineFormats(bwd_mac="e4m3")
    _, grad_x, grad_w = gradients(lambda x, w: gs.qlinear(x, w, None, formats), x, w, grad=torch.ones(64, 5, 2))
    assert torch.equal(grad_w, torch.full((2, 3), 16.0)) and torch.equal(grad_x, torch.full((64, 5, 3), 2.0))
    *_, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, formats), x, w.mT, grad=torch.ones(64, 5, 2))
    assert torch.equal(grad_b, torch.full((3, 2), 16.0))


BROADCASTS = [
    ((3, 4, 5), (5, 6)),
    ((4, 5), (3, 5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((2, 3, 4, 5), (2, 1, 5, 6)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
    ((1, 4, 5), (1, 5, 6)),
    ((2, 2, 1, 4, 5), (2, 1, 3, 5, 6)),
]


@pytest.mark.parametrize(("left", "right"), BROADCASTS, ids=str)
@pytest.mark.parametrize("spec", ["e4m3 : e5m2", "e4m3 : mul=e5m3, add=e4m2/rtz"])
def test_broadcast_dimensions_join_the_contraction(left, right, spec):
    """Sum over (broadcast dims, row) with rows fastest, by a loop over kept batch indices."""
    a, b = tensors(left, right)
    y, grad_a, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, spec), a, b)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
    batch = y.shape[:-2]
    qa = gs.quantize(a, "e4m3").expand(*batch, *a.shape[-2:])
    qb = gs.quantize(b, "e4m3").expand(*batch, *b.shape[-2:])
    backward = gs.GemmSpec(accumulator=gs.GemmSpec.of(spec).accumulator)

    def summed(shape, term_left, term_right):
        """For each element of the operand's batch: the terms of all batch indices that it was used at, in order."""
        padded = (1,) * (len(batch) + 2 - len(shape)) + tuple(shape)
        result = torch.empty(padded)
        for index in torch.cartesian_prod(*(torch.arange(n) for n in padded[:-2])).reshape(-1, len(batch)).tolist():
            where = tuple(slice(None) if n == 1 else i for i, n in zip(index, padded[:-2], strict=True))
            lefts = term_left[where].reshape(-1, *term_left.shape[-2:])
            rights = term_right[where].reshape(-1, *term_right.shape[-2:])
            one_left, one_right = torch.cat(list(lefts), 1), torch.cat(list(rights), 0)
            result[tuple(index)] = gs.qmm(one_left, one_right, backward)
        return result.reshape(shape)

    assert_bitwise_equal(grad_a, summed(left, g, qb.mT), context="a")
    assert_bitwise_equal(grad_b, summed(right, qa.mT, g), context="b")


def test_seeds_of_the_roles():
    a, b, g = tensors((4, 9), (9, 5), (4, 5))
    spec = "e4m3 : e5m2/sr8"
    y, grad_a, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, spec, seed=6), a, b, grad=g)
    qa, qb = gs.quantize(a, "e4m3"), gs.quantize(b, "e4m3")
    derive, stream = gs.ops.derive_seed, gs.ops.Stream
    assert_bitwise_equal(y, gs.qmatmul(qa, qb, ":e5m2/sr8", seed=6))
    assert_bitwise_equal(grad_a, gs.qmatmul(g, qb.mT, ":e5m2/sr8", seed=derive(6, stream.DGRAD)))
    assert_bitwise_equal(grad_b, gs.qmatmul(qa.mT, g, ":e5m2/sr8", seed=derive(6, stream.WGRAD)))


def test_directions_left_out_are_pytorchs_own():
    x, w, bias, g = tensors((4, 9), (5, 9), (5,), (4, 5))
    _, grad_x, grad_w, grad_b = gradients(
        lambda x, w, b: gs.qlinear(x, w, b, gs.QAffineFormats("e5m3")), x, w, bias, grad=g
    )
    for mine, want in ((grad_x, g @ w), (grad_w, g.mT @ x), (grad_b, g.sum(0))):
        assert_bitwise_equal(mine, want)
    y, grad_x, _, _ = gradients(
        lambda x, w, b: gs.qlinear(x, w, b, gs.QAffineFormats(bwd_mac="e5m3")), x, w, bias, grad=g
    )
    assert_bitwise_equal(y, x @ w.mT + bias)
    assert_bitwise_equal(grad_x, gs.qmatmul(g, w, ":e5m3"))


def test_functions_as_quantisers_run_without_grad_and_may_use_quantize():
    seen = []

    def quant(t):
        seen.append(torch.is_grad_enabled())
        return gs.quantize(t, "e4m3")

    x, w, g = tensors((4, 9), (5, 9), (4, 5))
    by_function = gs.QAffineFormats("e5m5", "e5m5", input_quant=quant, weight_quant=quant, grad_quant=quant)
    by_name = gs.QAffineFormats("e5m5", "e5m5", input_quant="e4m3", weight_quant="e4m3", grad_quant="e4m3")
    mine = gradients(lambda x, w: gs.qlinear(x, w, None, by_function), x, w, grad=g)
    want = gradients(lambda x, w: gs.qlinear(x, w, None, by_name), x, w, grad=g)
    for m, n in zip(mine, want, strict=True):
        assert_bitwise_equal(m, n)
    assert seen and not any(seen)


@pytest.mark.parametrize("quant", [lambda t: t, lambda t: t.detach(), lambda t: t.view_as(t), lambda t: t[...]])
def test_functions_as_quantisers_may_return_their_argument(quant):
    x, w, g = tensors((4, 9), (5, 9), (4, 5))
    formats = gs.QAffineFormats(
        "e5m5", "e5m5", input_quant=quant, weight_quant=quant, output_quant=quant, bias_quant=quant, grad_quant=quant
    )
    mine = gradients(lambda x, w: gs.qlinear(x, w, None, formats), x, w, grad=g)
    want = gradients(lambda x, w: gs.qlinear(x, w, None, ":e5m5"), x, w, grad=g)
    for m, n in zip(mine, want, strict=True):
        assert_bitwise_equal(m, n)


@pytest.mark.parametrize(("needs_x", "needs_w", "saved"), [(True, False, 1), (False, True, 1), (True, True, 2)])
def test_only_the_operands_that_a_gradient_needs_are_saved(needs_x, needs_w, saved):
    x, w = tensors((4, 9), (5, 9))
    x.requires_grad_(needs_x), w.requires_grad_(needs_w)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        y = gs.qlinear(x, w, None, "e4m3 : e5m5")
    assert len(kept) == saved
    y.sum().backward()
    assert (x.grad is not None, w.grad is not None) == (needs_x, needs_w)


@pytest.mark.parametrize("spec", [":e5m5", "e4m3 : e5m5"])
def test_an_expanded_gradient_is_taken_as_it_is(spec):
    a, b = tensors((4, 9), (9, 5))
    _, grad_a, grad_b = gradients(lambda a, b: gs.qmatmul(a, b, spec).sum().expand(3), a, b, grad=torch.ones(3))
    _, want_a, want_b = gradients(lambda a, b: gs.qmatmul(a, b, spec), a, b, grad=torch.full((4, 5), 3.0))
    assert_bitwise_equal(grad_a, want_a)
    assert_bitwise_equal(grad_b, want_b)


def test_differentiating_twice_raises():
    a, b = tensors((4, 9), (9, 5))
    a.requires_grad_()
    (grad,) = torch.autograd.grad(gs.qmatmul(a, b, ":e5m5").pow(2).sum(), a, create_graph=True)
    with pytest.raises(gs.GradError, match="first derivatives"):
        grad.sum().backward()


def test_checkpointing_repeats_the_same_bits():
    from torch.utils.checkpoint import checkpoint

    x, w = tensors((4, 9), (5, 9))
    formats = gs.QAffineFormats(fprop="e4m3/sr8 : e5m2/sr8", dgrad=":e5m5", wgrad=":e5m5")
    results = []
    for call in (lambda f, *t: f(*t), lambda f, *t: checkpoint(f, *t, use_reentrant=False)):
        torch.manual_seed(3)
        layer = lambda x, w: gs.qlinear(x, w, None, formats).pow(2)  # noqa: E731
        results.append(gradients(lambda x, w, c=call, f=layer: c(f, x, w), x, w))
    for mine, want in zip(*results, strict=True):
        assert_bitwise_equal(mine, want)


def test_an_unused_result_gives_no_gradients():
    a, b = tensors((4, 9), (9, 5))
    a.requires_grad_()
    y = gs.qmatmul(a, b, ":e5m5")
    z = (y * 0).sum() + a.sum()
    z.backward()
    assert_bitwise_equal(a.grad, torch.ones(4, 9))
