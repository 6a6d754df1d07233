"""Convolutions bit for bit: equal to products of gathered windows, whatever the spec, the strides, the machine."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support import conv as definition
from support.cpu import isas, operand

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.reference import gemm as exact_gemm

SPECS = [
    "e4m3 : e5m10",
    "e4m3 * e5m2/rtz : e6m9/ru -> bf16",
    "bf16 : mul=e5m10/rtz, add=e6m9",
    "e5m2/ftz : e5m3",
    ":fp32",
    ":e5m10, arithmetic=fp32",
    "fp16 : fp64",
    ":e5m10/sr8",
    "e4m3 : mul=e5m7/sr4, add=e6m9/sr16 -> e5m2/sr8",
    "int8 : int(9, saturate)",
    "fixed(8,4) : fixed(12, 6)",
    ":chunked(8, e5m7)",
    ":kahan(bf16)",
    ":interleaved(4, e5m10)",
    ":pairwise(e5m10, leaf=4)",
    ":shuffled(e5m3, 7)",
    "e4m3 : exact(fp32)",
    gs.GemmSpec(accumulator=gs.acc.hw("hopper", "wgmma", "e4m3")).key,
    "fp16 : promote(e5m10, 8)",
]
#: spatial rank, channels (in, out), groups, size, kernel, stride, padding, dilation
SHAPES = [
    (1, (3, 5), 1, (11,), (3,), (1,), (1,), (1,)),
    (2, (4, 6), 2, (7, 9), (3, 2), (2, 1), (1, 2), (1, 2)),
    (2, (3, 40), 1, (5, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, (6, 6), 6, (6, 17), (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, (2, 3), 1, (4, 3, 5), (2, 3, 2), (1, 2, 3), (0, 1, 2), (2, 1, 1)),
]


def tensors(shape, *, dtype=torch.float32, kind=None, batch=3, seed=0):
    """x, the weight of a convolution, the weight of a transposed one, and the number of windows."""
    _, (inputs, outputs), groups, size, kernel, stride, padding, dilation = shape
    rng = random.Random(seed)
    x = operand(rng, batch * inputs, math.prod(size), dtype, kind).view(batch, inputs, *size)
    w = operand(rng, outputs, inputs // groups * math.prod(kernel), dtype, kind).view(outputs, -1, *kernel)
    t = operand(rng, inputs, outputs // groups * math.prod(kernel), dtype, kind).view(inputs, -1, *kernel)
    reach = zip(size, kernel, stride, padding, dilation, strict=True)
    return x, w, t, tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in reach)


def with_gradients(function, x, w, formats, g=None, **options):
    """Result and gradients for the gradient ``g``, which stands for a random one."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = function(x, w, spec=formats, **options)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype) if g is None else g
    y.backward(g)
    return y.detach(), x.grad, w.grad, g


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}d-groups{s[2]}-k{s[4]}")
@pytest.mark.parametrize("spec", SPECS)
def test_the_products_of_windows(spec, shape):
    n, (inputs, outputs), groups, size, kernel, stride, padding, dilation = shape
    where, seed = (stride, padding, dilation, groups), 5
    x, w, t, count = tensors(shape, kind="wide" if "int" not in spec else "small")
    if "int" in spec and "interleaved" not in spec:
        x, w, t = x * 4, w * 4, t * 4
    got = definition.CONVS[n - 1](x, w, None, *where, spec, seed=seed)
    plain = spec.replace(" -> e5m2/sr8", "")
    want = definition.conv(x, w, plain, count, *where, seed=seed)
    if plain != spec:  # the output's bits belong to places in the result, not in the matrix of windows
        want = stochastic_output(x, w, plain, count, where, seed)
    assert_bitwise_equal(got, want, context=spec)
    got = definition.TRANSPOSES[n - 1](x, t, None, stride, padding, 0, groups, dilation, plain, seed=seed)
    want = definition.transposed(x, t, plain, got.shape[2:], *where, seed=seed)
    assert_bitwise_equal(got, want, context=spec)


def stochastic_output(x, w, plain, count, where, seed):
    from gemmsim.backends.cpu import quantize

    raw = definition.conv(x.double(), w.double(), plain, count, *where, seed=seed)
    out = torch.empty_like(raw, dtype=torch.float32)
    quantize(raw.contiguous(), gs.formats.parse_cast("e5m2/sr8"), out, seed, 4)
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}d-groups{s[2]}-k{s[4]}")
@pytest.mark.parametrize("spec", ["e4m3 : e5m7", ":mul=e5m7, add=e6m5/rtz", "bf16 : chunked(8, e5m7)", "e5m2 : fp32"])
def test_gradients_are_the_products_of_their_roles(spec, shape):
    n, _, groups, size, kernel, stride, padding, dilation = shape
    where = (stride, padding, dilation, groups)
    x, w, t, count = tensors(shape)
    back = spec.split(":")[1]
    formats = gs.QAffineFormats(fprop=spec, dgrad=f"e5m2 * fp32 : {back}", wgrad=f"e5m2 * fp32 : {back}")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    qx, qw, qt = (gs.quantize(v, gs.GemmSpec.of(spec).a or "fp32") for v in (x, w, t))
    _, gx, gw, g = with_gradients(definition.CONVS[n - 1], x, w, formats, **options)
    qg = gs.quantize(g, "e5m2")
    assert_bitwise_equal(gx, definition.transposed(qg, qw, f":{back}", size, *where), context="dgrad")
    assert_bitwise_equal(gw, definition.weight_gradient(qx, qg, f":{back}", kernel, *where), context="wgrad")
    _, gx, gt, g = with_gradients(definition.TRANSPOSES[n - 1], x, t, formats, **options)
    qg = gs.quantize(g, "e5m2")
    assert_bitwise_equal(gx, definition.conv(qg, qt, f":{back}", size, *where), context="transposed dgrad")
    want = definition.weight_gradient(qg, qx, f":{back}", kernel, *where)
    assert_bitwise_equal(gt, want, context="transposed wgrad")


@pytest.mark.parametrize("spec", ["e4m3 : e5m7", "e5m2 : mul=e5m3, add=e6m5/rtz", ":fp32"])
def test_the_integer_reference(spec):
    x, w, _, count = tensors(SHAPES[1], batch=2)
    where = ((2, 1), (1, 2), (1, 2), 2)
    got = gs.qconv2d(x, w, None, *where, spec)
    for g in range(2):
        left = definition.windows(x.chunk(2, 1)[g], count, (3, 2), *where[:3])
        want = exact_gemm(left.tolist(), w.chunk(2)[g].flatten(1).T.tolist(), gs.GemmSpec.of(spec))
        mine = got.chunk(2, 1)[g].movedim(1, -1).flatten(0, -2)
        assert_bitwise_equal(mine.contiguous(), torch.tensor(want), context=spec)


MACHINE_SPECS = ["e4m3 : e5m10", ":e5m10/sr8", ":kahan(bf16)", ":e5m4/rtz", ":fp64"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["normal", "huge", "special"])
def test_every_instruction_set_thread_count_and_stride_gives_the_same_bits(dtype, kind):
    shape = (2, (8, 6), 2, (13, 11), (3, 3), (2, 1), (1, 1), (1, 1))
    x, w, t, _ = tensors(shape, dtype=dtype, kind=kind, batch=4)
    options = {"stride": (2, 1), "padding": 1, "groups": 2}
    strided = torch.empty(4, 13, 22, 8, dtype=dtype)[:, :, ::2].movedim(-1, 1).copy_(x)
    variants = [
        (x, w),
        (x.contiguous(memory_format=torch.channels_last), w.flip(-1).flip(-1)),
        (strided, w.mT.contiguous().mT),
    ]
    for spec in MACHINE_SPECS:
        want = None
        for name in isas():
            for threads in (1, 3):
                cpu.set_isa(name)
                torch.set_num_threads(threads)
                for a, b in variants:
                    got = with_gradients(lambda *p, **o: gs.qconv2d(*p, seed=3, **o), a, b, spec, **options)[:3]
                    want = got if want is None else want
                    for mine, theirs in zip(got, want, strict=True):
                        assert_bitwise_equal(mine.contiguous(), theirs.contiguous(), context=f"{spec} {name} {threads}")
        isas()


def test_images_do_not_depend_on_their_batch():
    x, w, t, _ = tensors(SHAPES[1], batch=5)
    whole = gs.qconv2d(x, w, None, 2, 1, 1, 2, "e4m3 : e5m7")
    for i in range(5):
        assert_bitwise_equal(whole[i], gs.qconv2d(x[i], w, None, 2, 1, 1, 2, "e4m3 : e5m7"))


def test_padding_is_a_zero_that_is_multiplied():
    x, inf = torch.ones(1, 1, 3), float("inf")
    kernel = torch.tensor([[[inf, 1.0, -1.0]]])
    got = gs.qconv1d(x, kernel, padding=1, spec=":fp32")
    assert got[0, 0].isnan().tolist() == [True, False, False] and got[0, 0, 1:].tolist() == [inf, inf]
    # a sum of -0 alone stays a +0 that the register starts from; a negative weight times padding is -0
    assert not torch.signbit(gs.qconv1d(torch.full((1, 1, 1), -0.0), torch.ones(1, 1, 1), spec=":fp32")).any()
    # Zeros between elements are terms where the formats say so, and only there.
    assert gs.qconv_transpose1d(x, kernel, stride=2, spec=":fp32").tolist() == [[[inf, 1, inf, 1, inf, 1, -1]]]
    zeros = gs.QAffineFormats(fprop=":fp32", transposed_sum="zeros")
    assert gs.qconv_transpose1d(x, kernel, stride=2, spec=zeros).isnan().any()


def test_overflow_and_subnormals_follow_the_accumulator():
    x = torch.full((1, 4, 4, 4), 120.0)
    w = torch.full((1, 4, 3, 3), 120.0)
    assert gs.qconv2d(x, w, spec=":e5m10").isinf().all()
    assert (gs.qconv2d(x, w, spec=":e5m10/sat") == 65504).all()
    tiny = torch.full((1, 1, 3), 2.0**-24)
    assert (gs.qconv1d(tiny, torch.ones(1, 1, 1), spec=":e5m10") == 2.0**-24).all()
    assert (gs.qconv1d(tiny, torch.ones(1, 1, 1), spec=":e5m10/ftz") == 0).all()


@settings(max_examples=25)
@given(st.data())
def test_windows_in_place_and_in_memory_have_the_same_bits(data):
    """Asking for native products makes the windows a matrix; for a spec without one the bits stay."""
    shape = data.draw(st.sampled_from(SHAPES))
    n, _, groups, _, _, stride, padding, dilation = shape
    spec = data.draw(st.sampled_from([":e5m7", "e4m3 : e5m7/sr8", "e4m3/sr4 : e6m9 -> e5m2/sr8", ":kahan(e5m7)"]))
    x, w, t, _ = tensors(shape, seed=data.draw(st.integers(0, 99)))
    where = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for function, weight in ((definition.CONVS[n - 1], w), (definition.TRANSPOSES[n - 1], t)):
        run = lambda *p, **o: function(*p, seed=9, **o)  # noqa: B023, E731
        got = with_gradients(run, x, weight, spec, **where)
        with gs.cublas_acceleration(True):
            want = with_gradients(run, x, weight, spec, **where)
            assert "refused" in gs.last_backend().plan
        for mine, theirs in zip(got, want, strict=True):
            assert_bitwise_equal(mine, theirs, context=spec)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", [0, 2])
def test_gradients_of_a_sum_over_no_channels(batch, groups):
    x, w = (torch.randn(*s, requires_grad=True) for s in ((batch, 0, 4, 5), (2, 0, 1, 3)))
    bias = torch.randn(2, requires_grad=True)
    y = gs.qconv2d(x, w, bias, groups=groups, spec="e4m3 : e5m10")
    assert torch.equal(y, bias.view(1, 2, 1, 1).expand(batch, 2, 4, 3))
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape and bias.grad.tolist() == [12.0 * batch] * 2
