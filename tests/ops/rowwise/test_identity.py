"""With formats that are the dtype, functions are PyTorch's in value and gradient, for arguments drawn at random.

Convolutions: tests/ops/conv/test_arguments.py. Where PyTorch raises, so do ours; whatever PyTorch's C code leaves
undefined is not drawn.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.rounding import assert_near, largest
from torch import Tensor
from torch.nn import functional as F

import gemmsim as gs

#: Formats are drawn by their number: hypothesis walks through fields of values, class constants included, to print them.
pytestmark = pytest.mark.filterwarnings("ignore")
ID = "fp32"
#: A direction left out, too: the other one's steps then are PyTorch's or the dtype's.
SOFT = [gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID), gs.QSoftmaxFormats(ID, None, None, ID, ID, ID)]
SOFT += [gs.QSoftmaxFormats(ID, ID, ID), gs.QSoftmaxFormats(bwd_add=ID, bwd_mul=ID), gs.QSoftmaxFormats(grad_quant=ID)]
SOFT += [gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID, order="tree(4)", masked_rows="zero")]
NORM = [gs.QLayerNormFormats(*[ID] * 7), gs.QLayerNormFormats(*[ID] * 4), gs.QLayerNormFormats(input_quant=ID)]
NORM += [gs.QLayerNormFormats(bwd_acc=ID, bwd_mul=ID, bwd_div=ID), gs.QLayerNormFormats(*[ID] * 7, order="tree(8)")]
NORM += [gs.QLayerNormFormats(weight_quant=ID, bias_quant=ID, output_quant=ID, grad_quant=ID)]
GELU = [gs.QGELUFormats(ID, ID, ID, ID), gs.QGELUFormats(inter_quant=ID), gs.QGELUFormats(grad_quant=ID)]
QUANTS = [{"fwd_quant": ID, "bwd_quant": ID}, {"fwd_quant": ID}, {"bwd_quant": ID}, {"fwd_quant": torch.clone}]
MANY = settings(max_examples=30, deadline=None, phases=[Phase.generate])  # a failing example says enough as it is

seeds = st.integers(0, 999)
sizes = st.integers(1, 5)


def randn(shape, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(list(shape), generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(function, *tensors):
    """Result and gradients, or the exception."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    try:
        y = function(*leaves)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        return error
    g = randn(y.shape, 5).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, g, allow_unused=True)]


def same(ours, theirs, *tensors, terms: int = 1, growth: float = 1.0) -> None:
    """Both are float32 computations: ``terms`` in a sum, of which a gradient has three on its way, and at most 32 other
    roundings (PyTorch's exp, erf and pow are off by up to 4 of them), of numbers no larger than operands or results, but
    for a division that makes them ``growth`` times as large."""
    got, want = run(ours, *tensors), run(theirs, *tensors)
    if isinstance(want, Exception):
        assert isinstance(got, (gs.ShapeError, gs.DTypeError, IndexError)), (want, got)
        return
    assert not isinstance(got, Exception), got
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        if g is not None:
            assert g.shape == w.shape and g.dtype == w.dtype
            assert_near(g, w, 3 * terms + 32, size=growth * max(1.0, largest(w, *tensors)))


@MANY
@given(st.lists(sizes, max_size=4), st.integers(-5, 4), st.integers(0, len(SOFT) - 1), seeds, st.booleans())
def test_softmax(shape, dim, formats, seed, masked):
    x = randn(shape, seed)
    if masked and x.numel() > 1:
        x = x.flatten().index_fill(0, torch.tensor([seed % x.numel()]), float("-inf")).reshape(shape)
        if x.dim() and bool((x.amax(dim % x.dim()) == float("-inf")).any()):
            return  # all masked: NaN there, NaN or 0 here
    same(lambda x: gs.qsoftmax(x, dim, SOFT[formats]), lambda x: torch.softmax(x, dim), x)


@MANY
@given(st.lists(st.integers(2, 5), min_size=1, max_size=4), st.data())
def test_norms_over_last_dimensions(shape, data):
    seed, formats = data.draw(seeds), NORM[data.draw(st.integers(0, len(NORM) - 1))]
    last = shape[-data.draw(st.integers(1, len(shape))) :]
    x, w, b = randn(shape, seed), randn(last, seed + 1), randn(last, seed + 2)
    eps = data.draw(st.sampled_from([0.01, 0.5]))
    given_w, given_b = data.draw(st.booleans()), data.draw(st.booleans())
    tensors = [x, *([w] if given_w else []), *([b] if given_b else [])]

    def split(rest):
        rest = list(rest)
        return rest.pop(0) if given_w else None, rest.pop(0) if given_b else None

    size = last if data.draw(st.booleans()) or len(last) > 1 else last[0]
    same(
        lambda x, *rest: gs.qlayernorm(x, size, *split(rest), eps, formats),
        lambda x, *rest: F.layer_norm(x, last, *split(rest), eps),
        *tensors,
        terms=math.prod(last), growth=eps**-0.5,
    )  # fmt: skip
    eps = data.draw(st.sampled_from([None, 0.01]))
    tensors = tensors[: 1 + given_w]
    rms = float(x.flatten(-len(last)).square().mean(-1).min()) ** 0.5
    same(
        lambda x, w=None: gs.qrmsnorm(x, last, w, eps, formats), lambda x, w=None: F.rms_norm(x, last, w, eps), *tensors,
        terms=math.prod(last), growth=1 / rms,
    )  # fmt: skip


@MANY
@given(st.integers(1, 3), st.sampled_from([1, 2, 3, 4, 6]), st.lists(st.integers(1, 4), max_size=3), st.data())
def test_norms_over_channels(batch, channels, rest, data):
    seed, affine = (
        data.draw(seeds),
        data.draw(st.sampled_from([(True, True), (True, False), (False, True), (False,) * 2])),
    )
    x = randn((batch, channels, *rest), seed)
    vectors = [randn((channels,), seed + i) for i, there in enumerate(affine) if there]

    def split(found):
        found = list(found)
        return [found.pop(0) if there else None for there in affine]

    groups, formats = data.draw(st.integers(1, 4)), NORM[data.draw(st.integers(0, len(NORM) - 1))]
    # Of one number a group, all that is left is rounding errors over sqrt(eps). PyTorch's gradient fails without weight.
    if x[0].numel() > groups and affine != (False, True):
        same(
            lambda x, *v: gs.qgroupnorm(x, groups, *split(v), 0.1, formats),
            lambda x, *v: F.group_norm(x, groups, *split(v), 0.1),
            x, *vectors, terms=x.numel() // batch, growth=0.1**-0.5,
        )  # fmt: skip
    quants, training = QUANTS[data.draw(st.integers(0, len(QUANTS) - 1))], data.draw(st.booleans())
    momentum, tracked = data.draw(st.sampled_from([0.0, 0.1, 1.0])), data.draw(st.booleans())
    stats = [[randn((channels,), seed), randn((channels,), seed).abs() + 0.5] for _ in range(2)]
    means = [s if tracked or not training else [None, None] for s in stats]
    same(
        lambda x, *v: gs.qbatchnorm(x, *means[0], *split(v), training, momentum, 0.1, **quants),
        lambda x, *v: F.batch_norm(x, *means[1], *split(v), training, momentum, 0.1),
        x, *vectors, terms=x.numel() // channels, growth=0.1**-0.5,
    )  # fmt: skip
    assert_near(stats[0][0], stats[1][0], x.numel() // channels + 4, size=largest(x, stats[1][0]))
    if not training:
        assert torch.equal(stats[0][1], stats[1][1])


@MANY
@given(st.integers(1, 3), st.data())
def test_average_pooling(rank, data):
    def several(low, high):
        one, each = st.integers(low, high), st.lists(st.integers(low, high), min_size=rank, max_size=rank)
        return data.draw(st.one_of(one, each.map(tuple)))

    seed, quants = data.draw(seeds), QUANTS[data.draw(st.integers(0, len(QUANTS) - 1))]
    batch = data.draw(st.sampled_from([(), (1,), (3,)]))
    x = randn((*batch, 2, *(data.draw(st.integers(2, 6)) for _ in range(rank))), seed)
    arguments = {"kernel_size": several(1, 3), "stride": data.draw(st.one_of(st.none(), st.integers(1, 4)))}
    arguments |= {"padding": several(0, 2), "ceil_mode": data.draw(st.booleans())}
    arguments["count_include_pad"] = data.draw(st.booleans())
    if rank > 1:
        arguments["divisor_override"] = data.draw(st.one_of(st.none(), st.integers(1, 5)))
    theirs = getattr(F, f"avg_pool{rank}d")
    same(lambda x: gs.qavgpool(x, **arguments, rank=rank, **quants), lambda x: theirs(x, **arguments), x)
    size = several(1, 5)
    size = tuple(data.draw(st.sampled_from([s, None])) for s in size) if isinstance(size, tuple) and rank > 1 else size
    theirs = getattr(F, f"adaptive_avg_pool{rank}d")
    same(lambda x: gs.qadaptive_avgpool(x, size, rank=rank, **quants), lambda x: theirs(x, size), x)


@settings(MANY, max_examples=40)
@given(st.data())
def test_attention(data):
    seed, length, source = data.draw(seeds), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    batch = data.draw(st.sampled_from([(), (3,), (2, 4), (1, 2, 4)]))
    gqa = len(batch) > 1 and data.draw(st.booleans())
    heads = (*batch[:-1], data.draw(st.sampled_from([1, 2, 4]))) if gqa else batch
    q, k, v = (
        randn((*batch, length, 4), seed),
        randn((*heads, source, 4), seed + 1),
        randn((*heads, source, 3), seed + 2),
    )
    kind = data.draw(st.sampled_from(["none", "causal", "bool", "float", "two", "both"]))
    shape = data.draw(st.sampled_from([(length, source), (1, source), (length, 1), (*batch, length, source)]))
    mask = None
    if kind in ("bool", "both"):
        mask = randn(shape, seed + 3) > -0.7
        mask[..., 0] = True  # of rows that are hidden entirely PyTorch gives 0 or NaN, as its kernels please
    elif kind == "float":
        mask = randn(shape, seed + 3)
    options = {"is_causal": kind in ("causal", "both"), "enable_gqa": gqa}
    options["scale"] = data.draw(st.sampled_from([None, 0.3, 2.0]))
    formats = gs.QAttentionFormats(
        data.draw(st.sampled_from([":fp32", None])), SOFT[data.draw(st.integers(0, len(SOFT) - 1))],
        data.draw(st.sampled_from([":fp32", None])), data.draw(st.sampled_from([ID, None])),
    )  # fmt: skip
    same(
        lambda q, k, v: gs.qattention(q, k, v, mask, 0.0, spec=formats, **options),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, 0.0, **options),
        q, k, v, terms=2 * 5 * 4, growth=largest(q, k, v),  # a score multiplies operands, over 5 rows and 4 heads
    )  # fmt: skip


def test_dropout_of_attention_drops_and_scales_as_torchs():
    """PyTorch draws in an order of its own: compared are the share that is dropped and the mean."""
    q, k, v = randn((64, 32, 4), 0), randn((64, 32, 4), 1), torch.eye(32).expand(64, 32, 32)
    formats = gs.QAttentionFormats(":fp32", SOFT[0], ":fp32")
    plain = gs.qattention(q, k, v, spec=formats)
    for p in (0.25, 1.0):
        torch.manual_seed(3)
        y = gs.qattention(q, k, v, dropout_p=p, spec=formats)
        theirs = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        kept = y != 0
        deviation = (p * (1 - p) / kept.numel()) ** 0.5
        assert abs(float(kept.double().mean()) - (1 - p)) <= 6 * deviation
        assert abs(float((theirs != 0).double().mean()) - (1 - p)) <= 6 * deviation
        if p < 1:  # a product with the identity: softmax's number, scaled by 1 / (1 - p), itself rounded
            wanted = (plain / (1 - p))[kept]
            assert bool(((y[kept] - wanted).abs() <= 3 * 2.0**-24 * wanted).all())
        torch.manual_seed(3)
        assert torch.equal(gs.qattention(q, k, v, dropout_p=p, spec=formats), y)


@MANY
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_embedding(rows, width, data):
    seed, quants = data.draw(seeds), QUANTS[data.draw(st.integers(0, len(QUANTS) - 1))]
    index = data.draw(st.lists(st.integers(0, rows - 1), min_size=4, max_size=4))
    index = torch.tensor(index, dtype=data.draw(st.sampled_from([torch.int64, torch.int32])))
    index = index.reshape(data.draw(st.sampled_from([(4,), (2, 2), (1, 4, 1)])))
    options = {"padding_idx": data.draw(st.one_of(st.none(), st.integers(-rows - 1, rows)))}
    options |= {"norm_type": data.draw(st.sampled_from([1.0, 2.0, 3.5]))}
    options["scale_grad_by_freq"] = data.draw(st.booleans())
    w = randn((rows, width), seed)
    same(lambda w: gs.qembedding(index, w, **options, **quants), lambda w: F.embedding(index, w, **options), w)
    if options["padding_idx"] is None or -rows <= options["padding_idx"] < rows:
        tables = [w.clone(), w.clone()]
        limited = {**options, "max_norm": 0.5}
        got, want = gs.qembedding(index, tables[0], **limited, **quants), F.embedding(index, tables[1], **limited)
        for ours, theirs in ((got, want), (tables[0], tables[1])):  # a norm of at most 3 numbers, a quotient, a product
            assert_near(ours, theirs, 3 + 16, size=largest(w))


@MANY
@given(st.lists(sizes, max_size=3), seeds, st.integers(0, len(GELU) - 1), st.integers(0, len(QUANTS) - 1))
def test_activations(shape, seed, formats, quants):
    formats, quants = GELU[formats], QUANTS[quants]
    x = 3 * randn(shape, seed)
    for approximate in ("none", "tanh"):
        same(lambda x: gs.qgelu(x, formats, approximate), lambda x: F.gelu(x, approximate=approximate), x)  # noqa: B023
    same(lambda x: gs.qsilu(x, formats), F.silu, x)
    for ours, theirs in ((gs.qrelu, F.relu), (gs.qsigmoid, torch.sigmoid), (gs.qtanh, torch.tanh)):
        same(lambda x: ours(x, **quants), theirs, x)  # noqa: B023
    same(lambda x: gs.qsqrt(x, **quants), torch.sqrt, x.abs() + 0.1)


@MANY
@given(st.lists(sizes, max_size=3), st.lists(sizes, max_size=3), seeds, st.data())
def test_arithmetic_broadcasts_and_sums_as_torchs(left, right, seed, data):
    x, y, quants = randn(left, seed), randn(right, seed + 1), QUANTS[data.draw(st.integers(0, len(QUANTS) - 1))]
    y = y + y.sign()  # away from zero
    for ours, theirs in ((gs.qadd, torch.add), (gs.qmul, torch.mul), (gs.qdiv, torch.div)):
        same(lambda x, y: ours(x, y, **quants), theirs, x, y)  # noqa: B023
    n = data.draw(st.sampled_from([2.0, 3.0, 0.5, -1.0, 1.7]))
    same(lambda x: gs.qpow(x, n=n, **quants), lambda x: x**n, x.abs() + 0.5)
    dims = data.draw(st.one_of(st.none(), st.integers(-4, 3), st.lists(st.integers(-3, 2), max_size=2).map(tuple)))
    keep, order = data.draw(st.booleans()), data.draw(st.sampled_from(["sequential", "tree(2)"]))
    for ours, theirs in (
        (lambda x: gs.qsum(x, dims, ID, keep, order=order), lambda x: torch.sum(x, dims, keep)),
        (lambda x: gs.qmean(x, dim=dims, keepdim=keep, order=order, **quants), lambda x: torch.mean(x, dims, keep)),
    ):
        same(ours, theirs, x, terms=x.numel())
