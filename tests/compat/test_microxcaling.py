"""gemmsim.compat.microxcaling: microxcaling's stored values, its settings and errors, its operations step by step."""

from __future__ import annotations

import argparse
import copy
import pickle

import numpy as np
import pytest
import torch
from support import mx as vectors
from support.fork import run_forked
from support.rounding import assert_near, gamma, largest
from torch import nn
from torch.nn import functional

import gemmsim as gs
from gemmsim.compat import microxcaling as mxc
from gemmsim.compat.microxcaling import blocks, elementwise, formats, steps

BLOCK_KEYS = [key for key in vectors.archive("mxc") if "elemwise" not in key]
ELEMENTWISE_KEYS = [key for key in vectors.archive("mxc") if "elemwise" in key and not key.endswith("|x")]
MIXED = {"w_elem_format": "fp6_e3m2", "a_elem_format": "fp8_e4m3", "block_size": 16, "bfloat": 16, "round": "even"}


def same(got: torch.Tensor, want) -> bool:
    got, want = (
        got.detach().numpy(),
        np.asarray(want.detach() if isinstance(want, torch.Tensor) else want, dtype=np.float32),
    )
    return bool(((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))).all())


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("key", BLOCK_KEYS)
def test_blocks_have_the_stored_values_by_kernels_and_by_steps(key):
    _, tensor, element, round, *rest = key.split("|")
    flush = "flush" in rest
    x, want = torch.from_numpy(vectors.inputs(tensor).copy()), vectors.values(key)
    got = mxc._quantize_mx(x, 8, element, axes=[-1], block_size=32, round=round, flush_fp32_subnorms=flush)
    assert same(got, want)
    assert same(blocks._by_steps(x, formats.ElemFormat.from_str(element), 8, round, flush), want)


@pytest.mark.parametrize("key", ELEMENTWISE_KEYS)
def test_elementwise_rounding_has_the_stored_values(key):
    data = vectors.archive("mxc")
    _, _, name, round = key.split("|")
    format = {"fp": 16} if name == "fp16" else {"bfloat": int(name[6:8])}
    specs = mxc.finalize_mx_specs({**format, "bfloat_subnorms": "nosub" not in name, "round": round})
    assert same(mxc.quantize_elemwise_op(torch.from_numpy(data["mxc|elemwise|x"]), specs), data[key])


@pytest.mark.parametrize("subnormals", [True, False])
@pytest.mark.parametrize("round", ["nearest", "even"])
@pytest.mark.parametrize("exp_bits, bits", [(8, 9), (8, 3), (8, 17), (5, 12), (5, 3), (5, 17)])
def test_kernels_and_steps_agree_on_every_upper_half_of_a_float32(exp_bits, bits, round, subnormals):
    upper = np.arange(65536, dtype=np.uint32) << 16
    largest = formats._get_max_norm(exp_bits, bits)
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = torch.from_numpy((upper + np.uint32(lower)).view(np.float32))
        want = steps.rounded(x, bits, exp_bits, largest, round, saturate=False, subnormals=subnormals)
        assert same(elementwise._by_kernel(x, bits, exp_bits, round, subnormals), want), hex(lower)


def test_floor_of_the_rounded_logarithm_is_lifted_just_below_powers_of_two():
    below = np.float32(2.0**127).view(np.uint32) - np.arange(1, 60, dtype=np.uint32)
    x = torch.from_numpy(below.view(np.float32))
    assert (steps.floor_log2(x) == 127).tolist() == [count <= 44 for count in range(1, 60)]
    assert (steps.floor_log2(x, from_bits=True) == 126).all()
    exponents = torch.arange(-149.0, 129.0)
    with np.errstate(over="ignore"):
        assert same(steps.power_of_two(exponents), np.float32(2.0) ** exponents.numpy())


@pytest.mark.parametrize("axes, size", [([0], 4), ([1], 0), ([-1, 0], 4), ([0, 1, 2], 2), ([1, 2], 0), (2, 5)])
@pytest.mark.parametrize("round", ["nearest", "even", "floor"])
def test_blocks_along_several_axes(axes, size, round):
    x = randn(6, 7, 9) * 2.0 ** randn(6, 7, 9, seed=1).mul(4).round()
    got = mxc._quantize_mx(x, 8, "fp4", axes=axes, block_size=size, round=round)
    want = torch.empty_like(x)
    chosen = {axis % 3 for axis in ([axes] if isinstance(axes, int) else axes)}
    cuts = [size or extent if axis in chosen else 1 for axis, extent in enumerate(x.shape)]
    for i in range(0, 6, cuts[0]):
        for j in range(0, 7, cuts[1]):
            for k in range(0, 9, cuts[2]):
                where = (slice(i, i + cuts[0]), slice(j, j + cuts[1]), slice(k, k + cuts[2]))
                flat = x[where].reshape(1, -1)
                tile = gs.mx.quantize(flat, blocks.block_format(formats.ElemFormat.fp4, flat.numel(), round, False))
                want[where] = tile.view(x[where].shape)
    assert same(got, want)


def test_options_of_blocks():
    x = torch.tensor([[3.0, -0.0, 0.4, 2.0**-130, 2.0**20, 2.0**-20]])
    alone = mxc._quantize_mx(x, 8, "fp4", shared_exp_method="none", axes=[-1], block_size=32)
    assert same(alone, [[3.0, 0.0, 0.375, 0.0, 2.0**20, 2.0**-20]])
    assert mxc._quantize_mx(torch.tensor([1.0, float("inf")]), 8, "fp4", "none", axes=[0]).isnan().tolist() == [
        False,
        True,
    ]
    # a shared exponent of 4 bits goes from -7 to 7, that of fp4 elements up to 2 more
    narrow = mxc._quantize_mx(torch.tensor([[6.0 * 2**7], [2.0**10], [2.0**-7], [2.0**-10]]), 4, "fp4", axes=[-1])
    assert same(narrow, [[768.0], [float("nan")], [2.0**-7], [0.0]])
    for element in ("fp16", "bf16"):
        y = randn(5, 40)
        close = mxc._quantize_mx(y, 8, element, axes=[-1], block_size=8)
        assert not torch.equal(close, y)
        assert bool(((close - y).abs() <= 2.0 ** (-8 if element == "bf16" else -11) * y.abs()).all())  # u of each
    torch.manual_seed(0)
    tenth = torch.full((20000,), 1.1)
    tenth[0] = 6.0
    dithered = mxc._quantize_mx(tenth, 8, "fp4", axes=[0], round="dither")
    assert set(dithered.tolist()) == {1.0, 1.5, 6.0}
    deviation = 0.5 * (0.2 * 0.8 / 19999) ** 0.5  # of the mean: two neighbours 0.5 apart, the upper one in a fifth
    assert abs(dithered[1:].mean().item() - 1.1) < 6 * deviation
    zeros = mxc._quantize_mx(torch.tensor([[1.0, -0.0, -1e-9]]), 8, "fp4", axes=[-1], custom_cuda=True)
    assert same(zeros, [[1.0, 0.0, -0.0]])
    assert mxc._quantize_mx(x, 8, None) is x
    whole = mxc._quantize_mx(randn(3, 4), 8, "int8")
    assert same(whole, mxc._quantize_mx(randn(3, 4), 8, "int8", axes=[0, 1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_come_back_in_their_own(dtype):
    x = randn(4, 32).to(dtype)
    got = mxc._quantize_mx(x, 8, "fp8_e4m3", axes=[-1], block_size=16)
    assert got.dtype == dtype and torch.equal(
        got.float(), mxc._quantize_mx(x.float(), 8, "fp8_e4m3", axes=[-1], block_size=16)
    )
    assert mxc._quantize_bfloat(x, 12).dtype == dtype
    grad = x.clone().requires_grad_()
    assert not mxc._quantize_mx(grad, 8, "fp4", axes=[-1]).requires_grad


def test_errors():
    x = randn(4, 4)
    for call in (
        lambda: mxc._quantize_mx(x, 8, "fp5", axes=[0]),
        lambda: mxc._quantize_mx(x, 8, "fp4", axes=[0], round="up"),
        lambda: mxc._quantize_mx(x, 8, "fp4", "mean", axes=[0]),
        lambda: mxc._quantize_mx(x, 8, "fp4", block_size=2),
        lambda: mxc._quantize_bfloat(x, 16, round="up"),
    ):
        with pytest.raises(Exception, match="allowed|Undefined"):
            call()
    with pytest.raises(AssertionError):
        mxc._quantize_mx(x, 0, "fp4", axes=[0])
    with pytest.raises(IndexError):
        mxc._quantize_mx(x, 8, "fp4", axes=[2])
    for specs in ({"bfloat": 9}, {"fp": 6}, {"bfloat": 16, "fp": 16}):
        with pytest.raises(ValueError, match="mx_specs"):
            mxc.quantize_elemwise_op(x, mxc.finalize_mx_specs(specs))
    with pytest.raises(KeyError):
        mxc.linear(x, x, mx_specs={"unknown": 1})
    with pytest.raises(KeyError):
        mxc.finalize_mx_specs({"a_elem_format": "fp4", "unknown": 1})
    with pytest.raises(AssertionError):
        mxc.matmul(x, x, mx_specs=MIXED, mode_config="ww")
    for options in ({"batch_first": True}, {"proj_size": 2}):
        with pytest.raises(AssertionError):
            mxc.LSTM(3, 4, **options)


def test_specs(monkeypatch):
    assert mxc.finalize_mx_specs({}) is None and mxc.finalize_mx_specs({"block_size": 32}) is None
    assert dict(mxc.finalize_mx_specs({}, early_exit=False)) == dict(mxc.get_default_mx_specs())
    given = {
        "w_elem_format": "fp4",
        "a_elem_format_bp_os": "int8",
        "a_elem_format": "fp6_e2m3",
        "round": "even",
        "bfloat": None,
    }
    specs = mxc.finalize_mx_specs(given)
    assert len(given) == 5 and len(specs) == 30
    ends = {"a_elem_format_bp": "fp6_e2m3", "a_elem_format_bp_os": "int8", "a_elem_format_bp_ex": "fp6_e2m3"}
    assert {key: specs[key] for key in ends} == ends and specs["w_elem_format_bp"] == "fp4"
    assert all(
        value == "even" for key, value in specs.items() if key.startswith("round") and not key.startswith("round_mx_")
    )
    assert (
        specs["round_mx_output"] == "even"
        and specs["round_mx_input_grad_weight"] == "nearest"
        or specs["round_grad_input"] == "even"
    )
    assert mxc.finalize_mx_specs({"a_elem_format_bp": "fp4"})["a_elem_format"] is None
    off = mxc.get_backwards_mx_specs(mxc.finalize_mx_specs({**given, "quantize_backprop": False}))
    assert (
        off["a_elem_format_bp"] is off["a_elem_format_bp_os"] is None
        and off["round"] == "even"
        and specs["a_elem_format_bp_os"] == "int8"
    )
    parser = mxc.add_mx_args(argparse.ArgumentParser())
    parsed = parser.parse_args(
        ["--w_elem_format", "int4", "--no_quantize_backprop", "--block_size", "8", "--softmax_exp2"]
    )
    found = mxc.get_mx_specs(parsed)
    assert (found["w_elem_format_bp"], found["quantize_backprop"], found["block_size"], found["softmax_exp2"]) == (
        "int4",
        False,
        8,
        True,
    )
    assert mxc.get_mx_specs(parser.parse_args([])) is None
    assert mxc.get_mx_specs(parser.parse_args(["--skip_early_exit"])) is not None
    assert '"scale_bits": 0' in str(specs) and copy.deepcopy(specs) == specs
    monkeypatch.setenv("MX_ASSERT", "True")
    with pytest.raises(ValueError, match="MX_ASSERT"):
        mxc.linear(randn(2, 4), randn(3, 4))


# fmt: off
#: name: (of the package, of PyTorch, arguments)
OPERATIONS = {
    "linear": (mxc.linear, functional.linear, (randn(2, 5, 24), randn(7, 24, seed=1), randn(7, seed=2))),
    "matmul": (lambda a, b, mx_specs: mxc.matmul(a, b, mx_specs=mx_specs), torch.matmul, (randn(2, 5, 24), randn(24, 7, seed=1))),
    "matmul_bias": (lambda a, b, c, mx_specs: mxc.matmul(a, b, c, mx_specs, mode_config="aw"), lambda a, b, c: a @ b + c, (randn(2, 5, 24), randn(2, 24, 7, seed=1), randn(7, seed=2))),
    "bmm": (mxc.bmm, torch.bmm, (randn(2, 5, 24), randn(2, 24, 7, seed=1))),
    "addmm": (mxc.addmm, torch.addmm, (randn(7), randn(5, 24, seed=1), randn(24, 7, seed=2))),
    "conv1d": (lambda x, w, b, mx_specs: mxc.conv1d(x, w, b, 2, 1, mx_specs=mx_specs), lambda x, w, b: functional.conv1d(x, w, b, 2, 1), (randn(2, 6, 9), randn(4, 6, 3, seed=1), randn(4, seed=2))),
    "conv2d": (lambda x, w, b, mx_specs: mxc.conv2d(x, w, b, 1, "same", 1, 2, mx_specs=mx_specs), lambda x, w, b: functional.conv2d(x, w, b, 1, "same", 1, 2), (randn(2, 6, 9, 8), randn(4, 3, 3, 3, seed=1), randn(4, seed=2))),
    "conv3d": (lambda x, w, b, mx_specs: mxc.conv3d(x, w, b, 1, 0, 2, mx_specs=mx_specs), lambda x, w, b: functional.conv3d(x, w, b, 1, 0, 2), (randn(1, 3, 6, 7, 7), randn(4, 3, 2, 3, 3, seed=1), randn(4, seed=2))),
    "conv_transpose2d": (lambda x, w, b, mx_specs: mxc.conv_transpose2d(x, w, b, 2, 1, 1, mx_specs=mx_specs), lambda x, w, b: functional.conv_transpose2d(x, w, b, 2, 1, 1), (randn(2, 6, 9, 8), randn(6, 4, 3, 3, seed=1), randn(4, seed=2))),
    "softmax": (lambda x, mx_specs: mxc.softmax(x, 1, mx_specs), lambda x: functional.softmax(x, 1), (randn(2, 6, 9),)),
    "layer_norm": (lambda x, w, b, mx_specs: mxc.layer_norm(x, (9,), w, b, 1e-5, mx_specs), lambda x, w, b: functional.layer_norm(x, (9,), w, b), (randn(2, 6, 9), randn(9, seed=1), randn(9, seed=2))),
    "group_norm": (lambda x, w, b, mx_specs: mxc.group_norm(x, 3, w, b, mx_specs=mx_specs), lambda x, w, b: functional.group_norm(x, 3, w, b), (randn(2, 6, 9), randn(6, seed=1), randn(6, seed=2))),
    "batch_norm": (lambda x, w, b, mx_specs: mxc.batch_norm(x, None, None, w, b, True, mx_specs=mx_specs), lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), (randn(2, 6, 9), randn(6, seed=1), randn(6, seed=2))),
    "sigmoid": (mxc.sigmoid, torch.sigmoid, (randn(2, 6, 9),)),
    "tanh": (mxc.tanh, torch.tanh, (randn(2, 6, 9),)),
    "relu": (mxc.relu, torch.relu, (randn(2, 6, 9),)),
    "relu6": (mxc.relu6, functional.relu6, (randn(2, 6, 9) * 5,)),
    "leaky_relu": (lambda x, mx_specs: mxc.leaky_relu(x, 0.1, mx_specs=mx_specs), lambda x: functional.leaky_relu(x, 0.1), (randn(2, 6, 9),)),
    "silu": (mxc.silu, functional.silu, (randn(2, 6, 9),)),
    "adaptive_avg_pool2d": (lambda x, mx_specs: mxc.adaptive_avg_pool2d(x, (3, None), mx_specs), lambda x: functional.adaptive_avg_pool2d(x, (3, None)), (randn(2, 6, 9, 5),)),
    "simd_add": (mxc.simd_add, torch.add, (randn(2, 6, 9), randn(6, 1, seed=1))),
    "simd_sub": (mxc.simd_sub, torch.sub, (randn(2, 6, 9), randn(6, 1, seed=1))),
    "simd_mul": (mxc.simd_mul, torch.mul, (randn(2, 6, 9), randn(6, 1, seed=1))),
    "simd_div": (mxc.simd_div, torch.div, (randn(2, 6, 9), randn(6, 1, seed=1) + 9)),
    "simd_div_number": (lambda x, mx_specs: mxc.simd_div(x, 3.0, mx_specs), lambda x: x / 3.0, (randn(2, 6, 9),)),
    "simd_split": (lambda x, mx_specs: sum(mxc.simd_split(x, mx_specs)), lambda x: x + x, (randn(2, 6, 9),)),
    "simd_square": (mxc.simd_square, torch.square, (randn(2, 6, 9),)),
    "simd_sqrt": (mxc.simd_sqrt, torch.sqrt, (randn(2, 6, 9).abs() + 0.1,)),
    "simd_exp": (mxc.simd_exp, torch.exp, (randn(2, 6, 9),)),
    "simd_log": (mxc.simd_log, torch.log, (randn(2, 6, 9).abs() + 0.1,)),
    "simd_reduce_sum": (lambda x, mx_specs: mxc.simd_reduce_sum(x, [0, -1], mx_specs=mx_specs), lambda x: x.sum([0, -1]), (randn(2, 6, 9),)),
    "simd_reduce_mean": (lambda x, mx_specs: mxc.simd_reduce_mean(x, 1, True, mx_specs), lambda x: x.mean(1, True), (randn(2, 6, 9),)),
    "simd_norm": (lambda x, mx_specs: mxc.simd_norm(x, mx_specs=mx_specs), torch.linalg.norm, (randn(2, 6, 9),)),
}
# fmt: on


def values_and_gradients(function, tensors, **options):
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = function(*leaves, **options)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_pytorchs_where_nothing_is_quantised_and_near_them_in_formats(name):
    ours, plain, tensors = OPERATIONS[name]
    want = values_and_gradients(plain, tensors)
    for specs in (None, {}):
        got = values_and_gradients(ours, tensors, mx_specs=specs)
        for g, w in zip(got, want, strict=True):
            # No sum has more than 510 terms (a bias's gradient), of a norm's gradient three of 108 lie on its way.
            assert_near(g, w, 510 + 16, size=1 + largest(w))
    for specs in (
        MIXED,
        {**MIXED, "quantize_backprop": False},
        {"fp": 12},
        {"bfloat": 14, "vec_use_recip": True, "vec_use_exp2": True},
    ):
        got = values_and_gradients(ours, tensors, mx_specs=mxc.finalize_mx_specs(specs))
        differ = 0
        for g, w in zip(got, want, strict=True):
            differ += not torch.equal(g, w)
            # fp6_e3m2 is off by 2^-3 at most, half of it in the mean square; what is near 0, by vector formats' 2^-10
            assert (g - w).norm() < 0.5 * 2.0**-3 * 2 * w.norm() + 2.0**-10, specs
        assert differ or name == "simd_split", specs


def test_linear_is_its_steps():
    specs = mxc.finalize_mx_specs(
        {**MIXED, "a_elem_format_bp_ex": "int8", "a_elem_format_bp_os": "fp8_e5m2", "w_elem_format_bp": "fp4"}
    )
    x, w, b, g = randn(3, 6, 40), randn(9, 40, seed=1), randn(9, seed=2), randn(3, 6, 9, seed=3)
    bf16 = lambda t: t.bfloat16().float() + 0.0  # noqa: E731  (nearest even; -0 becomes +0)
    mx = lambda t, name, dim: gs.mx.quantize(t, f"{name}/b16/microxcaling", dim=dim)  # noqa: E731
    ones = [t.clone().requires_grad_() for t in (x, w, b)]
    out = mxc.linear(*ones, mx_specs=specs)
    out.backward(g)
    x, w, b, g = (bf16(t) for t in (x, w, b, g))
    product = bf16(mx(x, "mxfp8_e4m3", -1) @ mx(w, "mxfp6_e3m2", -1).T)
    assert same(out, bf16(product + b))
    assert same(ones[0].grad, bf16(mx(g, "mxfp8_e5m2", -1) @ mx(w, "mxfp4", 0)))
    flat = [mx(t, "mxint8", -2).flatten(0, 1) for t in (g, x)]
    assert same(ones[1].grad, bf16(flat[0].T @ flat[1]))
    assert same(ones[2].grad, bf16(g.flatten(0, 1).sum(0)))


@pytest.mark.parametrize("batched", [False, True], ids=["matmul", "bmm"])
def test_products_of_activations_are_their_steps(batched):
    specs = mxc.finalize_mx_specs({**MIXED, "a_elem_format_bp": "int8", "a_elem_format_bp_os": "fp8_e5m2"})
    a, b, g = randn(3, 6, 40), randn(3, 40, 9, seed=1), randn(3, 6, 9, seed=2)
    bf16 = lambda t: t.bfloat16().float() + 0.0  # noqa: E731  (nearest even; -0 becomes +0)
    mx = lambda t, name, dim: gs.mx.quantize(t, f"{name}/b16/microxcaling", dim=dim)  # noqa: E731
    ones = [t.clone().requires_grad_() for t in (a, b)]
    out = (mxc.bmm if batched else mxc.matmul)(*ones, mx_specs=specs)
    out.backward(g)
    a, b, g = (bf16(t) for t in (a, b, g))
    assert same(out, bf16(mx(a, "mxfp8_e4m3", -1) @ mx(b, "mxfp8_e4m3", -2)))
    assert same(ones[0].grad, bf16(mx(g, "mxfp8_e5m2", -1) @ mx(b, "mxint8", -1).mT))
    assert same(ones[1].grad, bf16(mx(a, "mxint8", -2).mT @ mx(g, "mxfp8_e5m2", -2)))


def test_compiled_operations():
    x, w = randn(3, 40), randn(40, 40, seed=1)

    def run(x, w):
        out = mxc.matmul(mxc.softmax(mxc.linear(x, w, mx_specs=MIXED), -1, MIXED), w, mx_specs=MIXED)
        out = mxc.layer_norm(out, (40,), mx_specs=MIXED)
        return mxc._quantize_mx(out, 8, "int8", axes=[0], block_size=2) + out

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    got, want = (values_and_gradients(f, (x, w)) for f in (compiled, run))
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


def test_softmax_and_norm_are_their_steps():
    specs = mxc.finalize_mx_specs({"bfloat": 12, "round": "floor"})
    q = lambda t: mxc._quantize_bfloat(t, 12, "floor")  # noqa: E731
    x = randn(4, 9)
    e = q(torch.exp(q(q(x) - q(x).max(-1, keepdim=True).values)))
    assert same(mxc.softmax(x, -1, specs), q(e / q(e.sum(-1, keepdim=True))))
    w, b = randn(9, seed=1), randn(9, seed=2)
    layer = mxc.LayerNorm(9, 1e-3, specs)
    layer.load_state_dict({"weight": w, "bias": b})
    shifted = q(q(x) - q(q(q(x).sum(-1, keepdim=True)) / 9))
    variance = q(q(q(shifted * shifted).sum(-1, keepdim=True)) / 9)
    normal = q(shifted * q(1 / q(torch.sqrt(q(variance + 1e-3)))))
    assert same(layer(x), q(q(q(w) * normal) + q(b)))


def test_lstm():
    ours, plain = mxc.LSTM(5, 6, 2, bidirectional=True, mx_specs={}), nn.LSTM(5, 6, 2, bidirectional=True)
    plain.load_state_dict(ours.state_dict())
    x = randn(7, 3, 5)
    (out, (hidden, cell)), (want, states) = ours(x), plain(x)
    for ours_of, theirs in ((out, want), (hidden, states[0]), (cell, states[1])):
        assert_near(ours_of, theirs, 7 * 2 * (12 + 6 + 12), size=1 + largest(theirs))  # steps, layers, terms and gates
    ours.apply_mx_specs(MIXED)
    out, _ = ours(x, (hidden, cell))
    out.sum().backward()
    assert ours.weight_hh_l0_reverse.grad is not None


# fmt: off
MODULES = {
    "Linear": (lambda s: mxc.Linear(8, 4, mx_specs=s), (3, 8)),
    "Conv1d": (lambda s: mxc.Conv1d(4, 4, 3, padding=1, mx_specs=s), (2, 4, 8)),
    "Conv2d": (lambda s: mxc.Conv2d(4, 4, 3, mx_specs=s), (2, 4, 8, 8)),
    "Conv3d": (lambda s: mxc.Conv3d(4, 4, 3, mx_specs=s), (2, 4, 4, 4, 4)),
    "ConvTranspose2d": (lambda s: mxc.ConvTranspose2d(4, 4, 3, 2, mx_specs=s), (2, 4, 5, 5)),
    "LayerNorm": (lambda s: mxc.LayerNorm(8, mx_specs=s), (3, 8)),
    "BatchNorm1d": (lambda s: mxc.BatchNorm1d(8, s), (3, 8)),
    "BatchNorm2d": (lambda s: mxc.BatchNorm2d(4, mx_specs=s, momentum=None), (2, 4, 8, 8)),
    "BatchNorm3d": (lambda s: mxc.BatchNorm3d(4, mx_specs=s), (2, 4, 3, 3, 3)),
    "GroupNorm": (lambda s: mxc.GroupNorm(2, 4, mx_specs=s), (2, 4, 8, 8)),
    "AdaptiveAvgPool2d": (lambda s: mxc.AdaptiveAvgPool2d(2, mx_specs=s), (2, 4, 7, 8)),
    **{name: (lambda s, name=name: getattr(mxc, name)(mx_specs=s), (3, 8)) for name in ("Sigmoid", "Tanh", "ReLU", "ReLU6", "LeakyReLU", "SiLU", "GELU")},
    "Softmax": (lambda s: mxc.Softmax(-1, mx_specs=s), (3, 8)),
}
# fmt: on


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    module, x = make(None), randn(*shape)
    plain = nn.__dict__[name].forward(copy.deepcopy(module), x)
    assert torch.equal(module(x), plain)
    module.apply_mx_specs({**MIXED, "bfloat": 10})
    for training in (True, False):
        module.train(training)
        out = pickle.loads(pickle.dumps(module))(x)
        assert torch.equal(out, copy.deepcopy(module)(x)) and not torch.equal(out, plain)
    assert set(module.state_dict()) == set(make(None).state_dict())


def test_rms_norm_with_and_without_settings():
    x = randn(3, 8)
    want = x / (x.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    assert_near(mxc.RMSNorm(8)(x), want, 8 + 8)
    rough = mxc.RMSNorm(8, mx_specs={"bfloat": 16})(x)
    assert not torch.equal(rough, want)
    # seven steps are rounded to bfloat16: the input, its square, mean and root, the quotient, two products
    assert bool(((rough - want).abs() <= gamma(7, torch.bfloat16) * want.abs()).all())


def test_batch_norm_brings_running_statistics_up_to_date():
    ours, plain = mxc.BatchNorm1d(4, mx_specs={}), nn.BatchNorm1d(4)
    x = randn(50, 4)
    ours(x), plain(x)
    assert_near(ours.running_mean, plain.running_mean, 50 + 4, size=0.1 * largest(x))
    biased = 0.9 + 0.1 * (x.var(0, unbiased=False) + 1e-5)
    assert_near(ours.running_var, biased, 2 * 50 + 4, size=0.9 + 0.1 * largest(x) ** 2)
    assert ours.num_batches_tracked == 1


def test_first_order_gelu_and_gradient_rounding():
    x = randn(50)
    assert_near(mxc.gelu(x, first_order_gelu=True), x * torch.sigmoid(1.703125 * x), 8, size=largest(x))
    inner = 1.59375 * (x + 0.044677734375 * x**3)  # as documented; fewer than 16 roundings of x times it
    assert_near(mxc.gelu(x, {}), x * torch.sigmoid(inner), 16, size=largest(x * inner))
    leaf = x.clone().requires_grad_()
    mxc.quantize_bfloat(leaf, {"bfloat": 10}).backward(x)
    assert same(leaf.grad, mxc._quantize_bfloat(x, 10))


def test_injection_exchanges_pytorchs_names():
    code = """
import torch
from gemmsim.compat import microxcaling as mxc
x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
specs = mxc.finalize_mx_specs({"w_elem_format": "fp4", "a_elem_format": "fp4", "block_size": 32, "bfloat": 16})
want = mxc.matmul(x, x.T, mx_specs=specs), mxc.softmax(x, -1, specs), mxc.simd_norm(x, mx_specs=specs)
mxc.inject_pyt_ops(specs)
got = torch.mm(x, x.T), torch.nn.functional.softmax(x, dim=-1, dtype=torch.float64), torch.norm(x)
assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1].double()) and torch.equal(got[2], want[2])
layer = torch.nn.Linear(32, 8)
assert isinstance(layer, mxc.Linear) and layer.mx_specs["w_elem_format"] == "fp4"
torch.nn.Sequential(layer, torch.nn.LayerNorm(8), torch.nn.GELU())(x).sum().backward()
print("done")
"""
    assert "done" in run_forked(code).stdout


def test_integers_are_no_operands():
    with pytest.raises(gs.DTypeError, match="floating-point tensors"):
        mxc._quantize_mx(torch.arange(8), 8, "fp8_e4m3", axes=-1, block_size=4)
