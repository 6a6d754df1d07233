"""What microxcaling's modules have beside the flat names: steps of rounding, vector steps, norms in parts."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch
from support import assert_bitwise_equal
from support import mx as vectors

from gemmsim.compat import microxcaling as mx
from gemmsim.compat.microxcaling import custom_extensions, elemwise_ops, mx_mapping, mx_ops, norm_utils, vector_ops
from gemmsim.compat.microxcaling.formats import FP32_MIN_NORMAL, ElemFormat, RoundingMode, _get_format_params
from gemmsim.compat.microxcaling.functions import (
    BMMFunction,
    LinearFunction,
    MatMulFunction,
    QuantizeBfloatFunction,
    SoftmaxFunction,
)

SPECS = {"w_elem_format": "fp6_e3m2", "a_elem_format": "fp8_e4m3", "block_size": 16, "bfloat": 16}
ELEMENTS = [kind.name for kind in ElemFormat if kind.name not in ("float16", "bfloat16")]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(got, want):
    """Bit for bit, any NaN for any NaN."""
    assert_bitwise_equal(got, want, nan_is_nan=True)


def specs(**more):
    return mx.finalize_mx_specs({**SPECS, **more})


def test_functions_keep_their_names_beside_modules_of_the_same_name():
    for found in pkgutil.iter_modules(mx.__path__):
        module = importlib.import_module(f"{mx.__name__}.{found.name}")
        assert module.__doc__ and all(hasattr(module, name) for name in getattr(module, "__all__", ())), found.name
    assert all(callable(getattr(mx, name)) for name in ("softmax", "linear", "bmm", "matmul"))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("round", ["nearest", "even", "floor"])
def test_the_steps_put_together_are_the_stored_values(element, round):
    key = next((k for k in vectors.archive("mxc") if k.split("|")[1:] == ["f32", element, round]), None)
    x = torch.from_numpy(vectors.inputs("f32").copy())
    ebits, mbits, emax, max_norm, _ = _get_format_params(element)
    cut, axes, shape, padded = mx_ops._reshape_to_blocks(x, [-1], 32)
    shared = mx_ops._shared_exponents(cut, axes=[axis + 1 for axis in axes]) - emax
    shared = torch.where(shared > 127, torch.nan, shared.clamp(min=-127))
    scaled = elemwise_ops._safe_lshift(cut, 0, shared)
    rounded = elemwise_ops._quantize_elemwise_core(scaled, mbits, ebits, max_norm, round, saturate_normals=True)
    got = mx_ops._undo_reshape_to_blocks(elemwise_ops._safe_rshift(rounded, 0, shared), padded, shape, axes)
    same(got, mx._quantize_mx(x, 8, element, axes=[-1], block_size=32, round=round))
    if key is not None:
        same(got, torch.from_numpy(vectors.values(key).copy()))


@pytest.mark.parametrize("axes, block", [([-1], 4), ([0], 3), ([0, 2], 2), ([2, 1], 5), ([1], 16), ([], 4)], ids=str)
def test_blocks_are_cut_and_put_together(axes, block):
    x = randn(4, 6, 10)
    given = list(axes)
    cut, counts, shape, padded = mx_ops._reshape_to_blocks(x, axes, block)
    assert axes == given and cut.dim() == 3 + len(axes) and len(shape) == len(padded) == cut.dim()
    for place, axis in zip(counts, sorted(a % 3 for a in axes), strict=True):
        assert cut.shape[place : place + 2] == (-(-x.shape[axis] // block), block)
        assert (shape[place], shape[place + 1]) == (x.shape[axis], 1)
    assert torch.equal(cut[cut != 0].sort().values, x.flatten().sort().values) and padded.numel() == cut.numel()
    same(mx_ops._undo_reshape_to_blocks(cut, padded, shape, counts), x)


def test_errors_of_blocks():
    with pytest.raises(Exception, match="axes required"):
        mx_ops._reshape_to_blocks(randn(4), None, 2)
    with pytest.raises(Exception, match="block_size == 0"):
        mx_ops._reshape_to_blocks(randn(4), [0], 0)
    with pytest.raises(AssertionError, match="dimensions"):
        mx_ops._reshape_to_blocks(randn(4), [1], 2)
    with pytest.raises(Exception, match="shared exponent selection"):
        mx_ops._shared_exponents(randn(4), method="mean")
    with pytest.raises(Exception, match="round method"):
        elemwise_ops._round_mantissa(randn(4), 4, "up")


def test_shared_exponents():
    x = torch.tensor([[0.0, -3.0, 0.5], [0.0, 0.0, -0.0], [2.0**-140, 1.0, float("inf")], [float("nan"), 1.0, 2.0]])
    got = mx_ops._shared_exponents(x, axes=[1])
    assert got[:3].flatten().tolist() == [1.0, -126.0, float("inf")] and got[3].isnan().all() and got.shape == (4, 1)
    assert mx_ops._shared_exponents(x[:2]).item() == 1.0 and mx_ops._shared_exponents(x[:2]).dim() == 0
    each = mx_ops._shared_exponents(x, method="none")
    assert each[0].tolist() == [-126.0, 1.0, -1.0] and each[2, 0] == -140
    narrow = mx_ops._shared_exponents(torch.tensor([2.0**9, 2.0**-9, 8.0]), method="none", ebits=4)
    assert narrow[0].isnan() and narrow[1:].tolist() == [-7.0, 3.0]
    below = torch.tensor([2.0**100 * (1 - 2.0**-24)])  # its logarithm rounds to 100 in float32
    assert mx_ops._shared_exponents(below).item() == 100 and FP32_MIN_NORMAL == torch.finfo(torch.float32).tiny


def test_mantissas():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.4, -0.4])
    rounded = elemwise_ops._round_mantissa
    assert rounded(x, 8, "nearest").tolist() == [1, 2, 3, -1, -2, -3, 0, 0]
    assert rounded(x, 8, "even").tolist() == [0, 2, 2, 0, -2, -2, 0, 0]
    assert rounded(x, 8, "floor").tolist() == [0, 1, 2, 0, -1, -2, 0, 0]
    assert rounded(x * 100, 4, "nearest", clamp=True).abs().max() == 7
    torch.manual_seed(0)
    mean = rounded(torch.full((20000,), 0.25), 8, "dither").mean().item()
    assert abs(mean - 0.25) < 6 * (0.25 * 0.75 / 20000) ** 0.5  # six standard deviations of a share


@pytest.mark.parametrize("round", [None, "even"])
def test_vector_steps(round):
    a, b, s = randn(4, 8), randn(4, 8, seed=1) + 3, specs()

    def q(x):
        return mx.quantize_elemwise_op(x, s, round)

    v = vector_ops
    for got, want in (
        (v.vec_quantize(a, s, round), q(a)), (v.vec_add(a, b, s, round), q(a + b)), (v.vec_sub(a, 1.5, s, round), q(a - 1.5)),
        (v.vec_mul(a, b, s, round), q(a * b)), (v.vec_div(a, b, s, round), q(a / b)), (v.vec_exp(a, s, round), q(a.exp())),
        (v.vec_exp2(a, s, round), q(a.exp2())), (v.vec_recip(b, s, round), q(1 / b)), (v.vec_sqrt(b, s, round), q(b.sqrt())),
        (v.vec_tanh(a, s, round), q(a.tanh())), (v.vec_reduce_sum(a, -1, True, s, round), q(a.sum(-1, keepdim=True))),
        (v.vec_reduce_mean(a, [0, 1], False, s, round), q(q(a.sum([0, 1])) / 32)),
        (v.vec_div(a, b, specs(vec_use_recip=True), round), q(a * q(1 / b))),
        (v.vec_exp(a, specs(vec_use_exp2=True), round), q(q(1.4453125 * a).exp2())),
    ):  # fmt: skip
        same(got, want)
    same(v.vec_add(a, b), a + b)
    same(v.vec_reduce_mean(a, 1), a.mean(1))


def test_norms_in_parts_are_the_norms():
    s, x, grad = specs(), randn(6, 8, 5), randn(6, 8, 5, seed=2)
    q = mx.quantize_elemwise_op
    for axes, axis, groups, weight, bias in (
        ([0, 2], 1, None, randn(8, seed=3), randn(8, seed=4)),
        ([1, 2], 1, 2, randn(8, seed=3), randn(8, seed=4)),
        (-1, None, None, randn(5, seed=3), randn(5, seed=4)),
    ):
        t = x.clone().requires_grad_()
        if axis is None:
            want = mx.layer_norm(t, 5, weight, bias, 1e-5, s)
        elif groups:
            want = mx.group_norm(t, groups, weight, bias, 1e-5, s)
        else:
            want = mx.batch_norm(t, None, None, weight, bias, True, 0.1, 1e-5, s)
        want.backward(grad)
        w, b = q(weight, s), q(bias, s)
        out, shifted, value, inverse, _, variance = norm_utils._norm_forward(q(x, s), axes, w, b, 1e-5, s, groups, axis)
        same(out, want.detach())
        if axis is None:
            back = norm_utils._norm_backward_LN(q(grad, s), axes, w, value, variance, s)
        else:
            back = norm_utils._norm_backward(q(grad, s), axes, w, shifted, inverse, s, groups, axis)
        same(back, t.grad)
    mean, var = randn(8, seed=5), randn(8, seed=6).abs()
    want = mx.batch_norm(x, mean, var, w8 := randn(8), w8, False, 0.1, 1e-5, s)
    got = norm_utils._norm_forward(q(x, s), [0, 2], q(w8, s), q(w8, s), 1e-5, s, None, 1, True, mean, var)[0]
    same(got, want)
    assert norm_utils._get_group_shape(x, 1, 4) == ([6, 8, 5], [6, 4, 2, 5])
    with pytest.raises(AssertionError, match="divisor"):
        norm_utils._get_group_shape(x, 1, 3)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("mode", RoundingMode)
def test_extensions_by_name(element, mode):
    funcs = custom_extensions.funcs
    ebits, mbits, _, largest, _ = _get_format_params(element)
    x = randn(8, 64) * torch.logspace(-3, 3, 8)[:, None]
    want = mx._quantize_mx(x, 8, element, axes=[1], block_size=32, round=mode.name, custom_cuda=True)
    same(funcs.quantize_mx_by_tile_func_cuda(x, 8, ebits, mbits, largest, 32, 1, False, mode), want)
    whole = mx._quantize_mx(x, 8, element, axes=[0], round=mode.name, custom_cuda=True)
    amax = x.abs().amax(0, keepdim=True)
    same(funcs.quantize_mx_func_cpp(x, 8, ebits, mbits, largest, amax, 0, False, mode), whole)
    wide = funcs.quantize_mx_func_cuda(x, 8, ebits, mbits, largest, amax * 16, 0, False, mode)
    same(wide, mx._quantize_mx(torch.cat([x, amax * 16]), 8, element, axes=[0], round=mode.name, custom_cuda=True)[:8])
    if ebits:
        same(
            funcs.quantize_elemwise_func_cpp(x, mbits, ebits, largest, mode, True),
            mx._quantize_elemwise(x, element, mode.name, custom_cuda=True, saturate_normals=True),
        )


def test_reductions_and_refusals_of_extensions():
    x = randn(3, 5)
    assert torch.equal(custom_extensions.funcs.reduce_max_inner_dim(x), x.amax(-1))
    assert torch.equal(custom_extensions.funcs.reduce_sum_inner_dim(x), x.sum(-1))
    with pytest.raises(ValueError, match="allowed"):
        custom_extensions.funcs.quantize_mx_by_tile_func_cuda(x, 8, 3, 3, 7.0, 32, 0)


def test_autograd_functions_by_name():
    s, x, w, b = specs(), randn(4, 32), randn(8, 32, seed=1), randn(8, seed=2)
    same(LinearFunction.apply(x, w, b, s, None), mx.linear(x, w, b, s))
    same(MatMulFunction.apply(x, w.t(), None, s, None, "aw"), mx.matmul(x, w.t(), None, s, mode_config="aw"))
    same(BMMFunction.apply(x[None], w.t()[None], s, None), mx.bmm(x[None], w.t()[None], s))
    same(SoftmaxFunction.apply(x, -1, s, None), mx.softmax(x, -1, s))
    same(QuantizeBfloatFunction.apply(x, s), mx.quantize_bfloat(x, s))
    same(mx_mapping.addmm_mx(b, x, w.t(), s), mx.addmm(b, x, w.t(), s))
    double = mx_mapping.tracer_decorator(mx.linear, s)(x, w, dtype=torch.float64)
    assert double.dtype == torch.float64 and torch.equal(double.float(), mx.linear(x, w, None, s))
