"""Convolutions as operators of PyTorch: formats for each role, opcheck, compile, vmap, gradcheck, two derivatives."""

from __future__ import annotations

import itertools

import pytest
import torch
from support import assert_bitwise_equal
from support.conv import CONVS
from support.rounding import assert_gradients

import gemmsim as gs

FULL = gs.QAffineFormats(
    fprop="e4m3 : e8m10",
    dgrad="e5m2 * e4m3 : e6m9",
    wgrad="e5m2 * e4m3 : e6m9",
    input_quant="e4m3",
    weight_quant=torch.round,
    bias_quant="bf16",
    output_quant="bf16",
    grad_quant="e5m2",
    use_scaling=True,
)
PER_ROLE = {
    "string": "e4m3 : e5m10",
    "full": FULL,
    "forward alone": gs.QAffineFormats(fprop="e4m3 : e5m10"),
    "backward alone": gs.QAffineFormats(dgrad=":e6m9", wgrad="e5m2 * fp32 : e5m10/rtz", grad_quant="e5m2"),
    "bias first": gs.QAffineFormats(fprop="e4m3 : e5m7", bias_in_accumulator=True),
    "scaled, bias first": gs.QAffineFormats("e5m7", input_quant="e4m3", weight_quant="e4m3", use_scaling=True,
                                            bias_in_accumulator=True),
    "matrix instruction": gs.acc.hw("hopper", "wgmma", "e4m3"),
    "seed": gs.QAffineFormats(fprop=":e5m7/sr8", dgrad=":e5m7/sr8", wgrad=":e5m7", seed=3),
    "wide": ":fp64",
}  # fmt: skip


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def run(call, *tensors):
    """Result and gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = call(*leaves)
    y.pow(2).sum().backward()
    return (y.detach(), *(t.grad for t in leaves))


def assert_same(mine, want):
    for m, w in zip(mine, want, strict=True):
        assert_bitwise_equal(m.contiguous(), w.contiguous())


@pytest.mark.parametrize("name", [name for name in PER_ROLE if not name.endswith("alone")])
@pytest.mark.parametrize("n", [1, 2])
def test_kernels_of_one_position_are_linear_layers(name, n):
    """Every field of the formats does what it does in ``qlinear``: quantisers, scales, bias, seeds, each role."""
    x, w, bias = tensors((6, 5, *(1,) * n), (4, 5, *(1,) * n), (4,))
    got = run(lambda *p: CONVS[n - 1](*p, spec=PER_ROLE[name]), x, w, bias)
    want = run(lambda *p: gs.qlinear(*p, PER_ROLE[name]), x.flatten(1), w.flatten(1), bias)
    if name == "seed":  # random bits of the weight's gradient and of operands lie at other places
        got, want = got[:2], want[:2]
    assert_same([t.flatten(1) if t.dim() > 1 else t for t in got], want)


#: Both functions with formats of every role, one with a string, one with a seed; the other pairs in the long run.
SHORT = {("full", False), ("full", True), ("string", False), ("seed", True)}
COMPILED = [
    pytest.param(*pair, marks=[] if pair in SHORT else pytest.mark.long)
    for pair in itertools.product(PER_ROLE, (False, True))
]


@pytest.mark.parametrize(("name", "transposed"), COMPILED)
def test_compiled_code_has_the_bits_of_eager_mode(name, transposed):
    torch._dynamo.reset()
    x, w, bias = tensors((2, 4, 6, 5), (4, 3, 3, 2) if transposed else (6, 2, 3, 2), (6,))
    function = gs.qconv_transpose2d if transposed else gs.qconv2d

    def call(x, w, bias):
        y = function(x.sin(), w, bias, stride=2, padding=1, groups=2, spec=PER_ROLE[name]).cos()
        return function(x[0], w, None, padding=1, groups=2, spec=PER_ROLE[name]).sum() + y

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(run(compiled, x, w, bias), run(call, x, w, bias))
    with torch.no_grad():
        assert_bitwise_equal(compiled(x, w, bias), call(x, w, bias))


def test_changing_sizes_and_padding_modes_do_not_break_the_graph():
    torch._dynamo.reset()

    def call(x, w):
        y = gs.qconv2d(x, w, padding="same", spec=FULL)
        for mode in ("circular", "reflect"):
            y = y + gs.qconv2d(x, w, padding="same", spec="e4m3 : e5m10", padding_mode=mode)
        return y

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (5, 8, 11):
        args = tensors((2, 3, size, 7), (4, 3, 3, 3))
        assert_same(run(compiled, *args), run(call, *args))


X, W, G = tensors((2, 4, 6, 5), (6, 2, 3, 2), (2, 6, 3, 3))
MAP = ([2, 2], [1, 1], [1, 1], 2)
OPCHECKS = {
    "conv": (X, W, "e4m3 : e5m10", [3, 3], *MAP, False),
    "conv seed": (X.double(), W, ":e5m10/sr8", [3, 3], *MAP, False, "col2im", 3, torch.bfloat16),
    "conv addend": (X, W, ":sequential(e5m10, init=c_first)", [3, 3], *MAP, False, "col2im", None, None, torch.ones(6)),
    "conv transposed": (X, torch.ones(4, 3, 3, 2), "e4m3 : e5m10", [11, 8], *MAP, True),
    "conv transposed zeros": (X, torch.ones(4, 3, 3, 2), "e4m3 : e5m10", [11, 8], *MAP, True, "zeros"),
    "conv_with_operands": (X, W, "e4m3 * fp64 : e5m10", [3, 3], *MAP, False),
    "conv_weight": (X, G, "e4m3 : e5m10", [3, 2], *MAP, 3),
}


@pytest.mark.parametrize("name", OPCHECKS)
def test_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.gemmsim, name.split()[0]).default, OPCHECKS[name])


def test_raw_operators_have_no_gradient():
    y = torch.ops.gemmsim.conv(X.clone().requires_grad_(), W, ":fp32", [3, 3], *MAP, False)
    with pytest.raises(gs.GradError, match="qconv2d"):
        y.sum().backward()


@pytest.mark.parametrize("spec", ["e4m3 : e5m7", ":e5m7/sr8", FULL], ids=["plain", "stochastic", "formats"])
@pytest.mark.parametrize("dims", [(0, None), (None, 0), (1, 2)], ids=str)
def test_vmap_is_a_call_for_each_example(spec, dims):
    x, w = tensors((3, 4, 5, 5), (6, 4, 3, 3))
    many_x = x if dims[0] is None else torch.stack([x, x * 2, x - 1], dims[0])
    many_w = w if dims[1] is None else torch.stack([w, w * 3, w + 1], dims[1])

    def loss(x, w):
        return gs.qconv2d(x, w, spec=spec, seed=5).pow(2).sum()

    got = torch.vmap(torch.func.grad(loss, (0, 1)), dims)(many_x, many_w)
    for i in range(3):
        a = many_x if dims[0] is None else many_x.select(dims[0], i)
        b = many_w if dims[1] is None else many_w.select(dims[1], i)
        leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
        loss(*leaves).backward()
        assert_same([t[i] for t in got], [t.grad for t in leaves])


@pytest.mark.parametrize("transposed", [False, True])
def test_gradcheck_in_float64(transposed):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 4, 5), (4, 2, 3, 2) if transposed else (4, 2, 3, 2), (4,))
    leaves = [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]
    function = gs.qconv_transpose2d if transposed else gs.qconv2d
    for options in ({"stride": 2, "padding": 1, "groups": 2}, {"dilation": (1, 2), "padding": 2, "groups": 2}):
        assert_gradients(lambda *p: function(*p, spec=":fp64", **options), leaves)  # noqa: B023


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_gradcheck_of_padding_modes(mode):
    generator = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in ((1, 2, 4, 5), (2, 2, 3, 2))
    ]
    call = lambda *p: gs.qconv2d(*p, padding=(2, 1), spec=":fp64", padding_mode=mode)  # noqa: E731
    assert_gradients(call, leaves)


def test_differentiating_twice_is_refused():
    x, w = tensors((2, 4, 6, 5), (6, 4, 3, 2))
    x.requires_grad_()
    (g,) = torch.autograd.grad(gs.qconv2d(x, w, spec=":e5m10").pow(2).sum(), x, create_graph=True)
    with pytest.raises(gs.GradError, match="first derivatives"):
        g.sum().backward()


def test_one_seed_repeats_and_torchs_generator_does_too():
    x, w = tensors((2, 4, 6, 5), (6, 4, 3, 2))
    call = lambda **o: gs.qconv2d(x, w, spec="e4m3/sr4 : e5m3/sr8 -> e5m2/sr8", **o)  # noqa: E731
    assert_bitwise_equal(call(seed=4), call(seed=4))
    assert not torch.equal(call(seed=4), call(seed=5))
    torch.manual_seed(0)
    first = call()
    torch.manual_seed(0)
    assert_bitwise_equal(call(), first)


def test_groups_draw_bits_of_their_own():
    x = torch.ones(1, 2, 8, 8) / 3
    y = gs.qconv2d(x, torch.ones(2, 1, 3, 3), groups=2, spec=":e5m2/sr8", seed=1)
    assert not torch.equal(y[:, 0], y[:, 1])


def test_the_record_says_what_ran():
    x, w = tensors((2, 4, 6, 5), (6, 4, 3, 2))
    gs.qconv2d(x, w, spec="e4m3 : e5m10")
    record = gs.last_backend()
    assert (record.op, record.backend, record.spec) == ("conv", "cpu", "e4m3 : e5m10") and "lanes" in record.plan
    gs.qconv2d(x[:0], w, spec="e4m3 : e5m10")
    assert "nothing to compute" in gs.last_backend().plan
