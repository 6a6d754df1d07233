"""Arguments, gradients, errors, dtypes and transforms of the functions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import tensor_quant as tq
from gemmsim.ops import DTypeError, GradError, OverlapError


def data(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_both_argument_orders():
    x = data(5, 8)
    want = tq.fake_tensor_quant(x, 1.5, num_bits=4, unsigned=False, narrow_range=False)
    for result in (
        tq.fake_tensor_quant(x, 1.5, 4, False, False),
        tq.fake_tensor_quant(x, 1.5, 4, False, False, "Float"),
        tq.fake_tensor_quant(x, 1.5, None, 4, False, False, None, False, None, None),
        tq.legacy_fake_tensor_quant(x, 1.5, 4, False, False),
        tq.legacy_fake_tensor_quant(x, torch.tensor(1.5), None, 4, False, False),
        tq.FakeTensorQuantFunction.apply(x, 1.5, 4, False, False),
        tq.LegacyFakeTensorQuantFunction.apply(x, 1.5, None, 4, False, False),
        tq.fake_quant_impl(x, 1.5, 4, False, False),
        tq.quantize_op(x, 1.5, 4, 0, False, False),
    ):
        assert torch.equal(result, want)
    e4m3 = tq.scaled_e4m3(x, 1.5, None, 4, 3, None, False)
    for result in (
        tq.scaled_e4m3(x, 1.5, 4, 3),
        tq.ScaledE4M3Function.apply(x, 1.5, 4, 3),
        tq.scaled_e4m3_impl(x, 1.5),
        tq.fp8_eager(x, 1.5),
        tq.quantize_op(x, 1.5, 8, 4),
    ):
        assert torch.equal(result, e4m3)
    assert tq.scaled_e4m3_abstract(x, 1.5).shape == x.shape
    with pytest.raises(TypeError, match="at most"):
        tq.tensor_quant(x, 1.5, 8, False, True, 3)
    block = tq.dynamic_block_quant(x, 8, None, None, (2, 1), (8, 0))
    assert torch.equal(block, tq.dynamic_block_quantize_op(x, 8, None, 4, 2, 9, 8))
    assert torch.equal(block, tq.DynamicBlockQuantizationFunction.apply(x, 8, None, None, (2, 1), (8, 0)))


def test_bias_is_taken_off_and_added():
    x, bias = data(4, 6), data(1, 6, seed=1)
    want = tq.fake_tensor_quant(x - bias, 2.0) + bias
    assert torch.equal(tq.fake_tensor_quant(x, 2.0, bias), want)
    assert torch.equal(tq.scaled_e4m3(x, 2.0, bias), tq.scaled_e4m3(x - bias, 2.0, 4, 3) + bias)
    want = tq.dynamic_block_quant(x - bias, 6) + bias
    assert torch.equal(tq.dynamic_block_quant(x, 6, None, bias), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_compute_in_float32(dtype):
    x = data(7, 33, dtype=dtype)
    for function in (
        lambda t: tq.fake_tensor_quant(t, 1.7),
        lambda t: tq.tensor_quant(t, 1.7)[0],
        lambda t: tq.scaled_e4m3(t, 1.7, 4, 3),
        lambda t: tq.fake_affine_tensor_quant(t, -1.2, 2.0),
        lambda t: tq.dynamic_block_quant(t, 16, None, None, (2, 1), (4, 3)),
        lambda t: tq.dynamic_block_quant(t, 16, None, None, 8, None),
    ):
        assert_bitwise_equal(function(x), function(x.float()).to(dtype))


def test_gradients_pass_where_nothing_is_clipped():
    x = torch.tensor([-3.0, -2.0, -0.5, 0.0, 2.0, 2.0000002, math.nan], requires_grad=True)
    g = torch.arange(1.0, 8.0)

    def gradient(function):
        (found,) = torch.autograd.grad(function(x), x, g)
        return found.tolist()

    clipped = [0, 2, 3, 4, 5, 0, 0]
    assert gradient(lambda t: tq.fake_tensor_quant(t, 2.0)) == clipped
    assert gradient(lambda t: tq.legacy_fake_tensor_quant(t, 2.0)) == clipped
    assert gradient(lambda t: tq.tensor_quant(t, 2.0)[0]) == clipped
    assert gradient(lambda t: tq.scaled_e4m3(t, 2.0, 4, 3)) == clipped
    assert gradient(lambda t: tq.scaled_e4m3(t, None)) == g.tolist()
    assert gradient(lambda t: tq.fake_tensor_quant(t, 2.0, None, 8, False, True, None, True)) == g.tolist()
    assert gradient(lambda t: tq.fake_affine_tensor_quant(t, -0.5, 2.0)) == [0, 0, 3, 4, 5, 0, 0]
    assert gradient(lambda t: tq.dynamic_block_quant(t, 8)) == g.tolist()
    assert gradient(lambda t: tq.int_cast_ste(t, 2)) == [0, 0, 3, 4, 0, 0, 0]
    assert gradient(lambda t: tq.fp4_cast_ste(t)) == [1, 2, 3, 4, 5, 6, 0]
    bias = torch.tensor(1.0)
    assert gradient(lambda t: tq.fake_tensor_quant(t, 1.0, bias)) == [0, 0, 0, 4, 5, 0, 0]
    with pytest.raises(RuntimeError):
        torch.autograd.grad(tq.fake_tensor_quant(x, 2.0).nansum(), x, create_graph=True)[0].sum().backward()


def test_no_gradient_goes_to_amax():
    amax = torch.tensor(1.0, requires_grad=True)
    x = data(6).requires_grad_()
    tq.fake_tensor_quant(x, amax).sum().backward()
    assert amax.grad is None and x.grad is not None


def test_learned_amax_has_the_gradient_of_lsq():
    x = torch.tensor([-2.0, -0.4, 0.1, 0.7, 3.0], dtype=torch.float64, requires_grad=True)
    amax = torch.tensor(1.0, requires_grad=True)
    y = tq.learned_fake_tensor_quant(x, amax, 4, grad_scale=1.0)
    assert torch.equal(y, tq.fake_tensor_quant(x, 1.0, 4, False, True))
    y.backward(torch.arange(1.0, 6.0, dtype=torch.float64))
    assert x.grad.tolist() == [0, 2, 3, 4, 0]
    step = 1 / 7
    slopes = [
        -7,
        *((torch.tensor([-0.4, 0.1, 0.7]) / step).round() - torch.tensor([-0.4, 0.1, 0.7]) / step).tolist(),
        7,
    ]
    assert math.isclose(
        amax.grad.item(),
        sum(k * s / 7 for k, s in zip(range(1, 6), slopes, strict=True)),
        rel_tol=0,
        abs_tol=16 * 2.0**-24 * 35,
    )  # five terms, each of three roundings to float32, of numbers up to 5 * 7
    again = torch.tensor(1.0, requires_grad=True)
    tq.learned_fake_tensor_quant(x, again, 4).backward(torch.arange(1.0, 6.0, dtype=torch.float64))
    assert math.isclose(again.grad.item(), amax.grad.item() / math.sqrt(5 * 7), rel_tol=0, abs_tol=16 * 2.0**-24 * 6)
    per_row = torch.ones(3, 1, requires_grad=True)
    tq.learned_fake_tensor_quant(data(3, 5), per_row, 8).sum().backward()
    assert per_row.grad.shape == (3, 1)


def test_pact_gives_the_ends_the_gradient_of_what_they_clip():
    x = torch.tensor([-2.0, -1.0, 0.5, 1.0, 3.0], requires_grad=True)
    low, high = torch.tensor(-1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    y = tq.pact(x, low, high)
    assert y.tolist() == [-1, -1, 0.5, 1, 1]
    y.backward(torch.tensor([1.0, 2, 4, 8, 16]))
    assert x.grad.tolist() == [0, 0, 4, 0, 0] and low.grad == 3 and high.grad == 24


ERRORS = [
    (ValueError, "Negative values in amax", lambda x: tq.fake_tensor_quant(x, -1.0)),
    (ValueError, "Negative values in amax", lambda x: tq.fake_tensor_quant(x, torch.tensor([[1.0], [math.nan], [-1.0]]))),
    (ValueError, "NaN", lambda x: tq.fake_tensor_quant(x, math.nan)),
    (ValueError, "infinity", lambda x: tq.scaled_e4m3(x, math.inf, 4, 3)),
    (ValueError, "nonfinite_amax", lambda x: tq.scaled_e4m3(x, 1.0, 4, 3, nonfinite_amax="keep")),
    (TypeError, "Negative values encountered in unsigned", lambda x: tq.fake_tensor_quant(x, 1.0, 8, True)),
    (TypeError, "Negative values encountered in unsigned", lambda x: tq.tensor_quant(torch.tensor([math.nan, -1.0]), 1.0, 8, True)),
    (TypeError, "Negative values", lambda x: tq.dynamic_block_quant(x, 2, None, None, 8, None, unsigned=True)),
    (ValueError, "one signed bit", lambda x: tq.fake_tensor_quant(x, 1.0, 1)),
    (ValueError, "2 to 23", lambda x: tq.fake_tensor_quant(x, 1.0, 24)),
    (RuntimeError, "broadcast", lambda x: tq.fake_tensor_quant(x, torch.ones(7))),
    (ValueError, "scale is too large for FP16", lambda x: tq.tensor_quant(x.half(), 1e-4)),
    (NotImplementedError, "Only support E=4 & M=3 for now", lambda x: tq.scaled_e4m3(x, 1.0, 5, 3)),
    (NotImplementedError, "scale_bits", lambda x: tq.dynamic_block_quant(x, 2, None, None, (4, 3), (5, 2))),
    (NotImplementedError, "num_bits", lambda x: tq.dynamic_block_quant(x, 2, None, None, (6, 1))),
    (AssertionError, "block_size", lambda x: tq.dynamic_block_quant(x, 0)),
    (ValueError, "dimension", lambda x: tq.dynamic_block_quant(x[0, 0], 2)),
    (RuntimeError, "one number", lambda x: tq.dynamic_block_quant(x, 2, torch.ones(3, 1), None, (2, 1), (4, 3))),
    (ValueError, "NaN", lambda x: tq.dynamic_block_quant(torch.tensor([1.0, math.nan]), 2, None, None, 8, None)),
    (ValueError, "infinity", lambda x: tq.dynamic_block_quant(torch.tensor([1.0, math.inf]), 2, None, None, (2, 1), (4, 3))),
    (ValueError, "min_range", lambda x: tq.fake_affine_tensor_quant(x, 1.0, 1.0)),
    (ValueError, "min_range", lambda x: tq.fake_affine_tensor_quant(x, math.nan, 1.0)),
    (ValueError, "divide", lambda x: tq.static_block_quant(x, 5, 1.0)),
    (DTypeError, "int64", lambda x: tq.fake_tensor_quant(x.long(), 1.0)),
    (DTypeError, "complex", lambda x: tq.scaled_e4m3(x.to(torch.complex64), 1.0)),
    (OverlapError, "overlap", lambda x: tq.fake_tensor_quant(x[:, :-1], 1.0, out=x[:, 1:])),
    (GradError, "grad", lambda x: tq.scaled_e4m3(x.clone().requires_grad_(), 1.0, out=torch.empty_like(x))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=lambda i: f"{ERRORS[i][1].split()[0]}-{i}")
def test_errors(number):
    kind, text, call = ERRORS[number]
    with pytest.raises(kind, match=text):
        call(data(3, 4))


def test_what_is_asked_for_is_let_through():
    x = data(2, 8)
    for amax in (math.nan, math.inf):
        assert tq.fake_tensor_quant(x, amax, nonfinite_amax="propagate").isnan().all()
    row = torch.tensor([[1.0, math.nan], [1.0, 2.0]])
    got = tq.dynamic_block_quant(row, 2, None, None, 8, None, nonfinite_amax="propagate")
    assert got[0].isnan().all() and got[1].isfinite().all()
    mx = tq.dynamic_block_quant(torch.tensor([1.0, math.nan, math.inf]), 8)
    assert mx[0] == 1 and mx[1].isnan() and mx[2] == 448
    unsigned = tq.fake_tensor_quant(torch.tensor([-0.0, 0.5, math.nan]), 1.0, 8, True)
    assert unsigned[0] == 0 and unsigned[2].isnan()
    assert tq.fake_tensor_quant(torch.tensor([math.inf, -math.inf]), 2.0).tolist() == [2.0, -2.0]
    assert tq.fake_tensor_quant(torch.tensor([1.0, math.inf]), 0.0)[1].isnan()


def test_empty_inputs_give_empty():
    x = torch.empty(0, 5)
    for result in (
        tq.fake_tensor_quant(x, 1.0, 8, True),
        tq.scaled_e4m3(x, 1.0, 4, 3),
        tq.fake_affine_tensor_quant(x, -1.0, 1.0),
        tq.dynamic_block_quant(x, 4),
        tq.dynamic_block_quant(x, 4, None, None, (2, 1), (4, 3)),
        tq.tensor_quant(x, 1.0)[0],
    ):
        assert result.shape == x.shape


def test_float_blocks_given_and_static():
    x = data(4, 32)
    amax = x.view(-1, 16).abs().amax(1)
    rows = tq.fake_tensor_quant(x.view(-1, 16), amax[:, None]).view_as(x)
    assert torch.equal(tq.static_block_quant(x, 16, amax), rows)
    assert torch.equal(tq.StaticBlockQuantizationFunction.apply(x, 16, amax), rows)
    y = tq.static_blockwise_fp4_fake_quant(x, amax)
    assert_bitwise_equal(y + 0.0, tq.dynamic_block_quant(x, 16, amax.max(), None, (2, 1), (4, 3)) + 0.0)
    plain = tq.static_blockwise_fp4_fake_quant(x, amax, quantize_block_scales=False)
    assert torch.equal(plain, tq.scaled_e4m3(x.view(-1, 16), amax[:, None], 2, 1).view_as(x))


FUNCTIONS = {
    "fake": lambda x, a: tq.fake_tensor_quant(x, a, 8, False, False),
    "integers": lambda x, a: tq.tensor_quant(x, a)[0],
    "e4m3": lambda x, a: tq.scaled_e4m3(x, a, 4, 3),
    "affine": lambda x, a: tq.fake_affine_tensor_quant(x, -a, a),
    "blocks": lambda x, a: tq.dynamic_block_quant(x, 4, None, None, (2, 1), (4, 3)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_exported_and_mapped(name):
    function, x, amax = FUNCTIONS[name], data(3, 8), torch.tensor(1.5)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    leaf = x.clone().requires_grad_()
    compiled(leaf, amax).sum().backward()
    assert torch.equal(compiled(x, amax), function(x, amax))
    assert leaf.grad is not None

    class Wrapped(torch.nn.Module):
        def forward(self, x, a):
            return function(x, a)

    assert torch.equal(torch.export.export(Wrapped(), (x, amax)).module()(x, amax), function(x, amax))
    batch = data(5, 3, 8)
    rows = torch.stack([function(b, amax) for b in batch])
    assert torch.equal(torch.vmap(function, (0, None))(batch, amax), rows)
    amaxes = torch.rand(5) + 1
    rows = torch.stack([function(b, a) for b, a in zip(batch, amaxes, strict=True)])
    assert torch.equal(torch.vmap(function)(batch, amaxes), rows)
    assert torch.equal(torch.vmap(function, (1, 0), 1)(batch.movedim(0, 1), amaxes), rows.movedim(0, 1))


def test_opcheck():
    ops = torch.ops.gemmsim
    tq.fake_tensor_quant(torch.ones(1), 1.0)
    x, amax = data(4, 8), torch.tensor(2.0)
    for op, args in (
        (ops.tq_fake_quantize, (x, amax, "int8")),
        (ops.tq_fake_quantize, (x, torch.ones(4, 1), "e4m3", torch.zeros(8), False)),
        (ops.tq_fake_quantize_into, (x, amax, "int8", None, False, torch.empty_like(x))),
        (ops.tq_integers, (x, amax, "int4/narrow")),
        (ops.tq_affine, (x, torch.tensor(-1.0), torch.tensor(1.0), 8)),
        (ops.tq_blocks, (x, "e2m1", 4, "e8m0")),
        (ops.tq_blocks_into, (x, "int8", 4, "amax", None, False, torch.empty_like(x))),
    ):
        torch.library.opcheck(op.default, args, test_utils=("test_schema", "test_faketensor"))


def test_last_backend_says_what_ran():
    tq.scaled_e4m3(data(4), 1.0, 4, 3)
    assert "e4m3" in str(gs.last_backend()) and "one pass" in str(gs.last_backend())


def test_nf4_takes_the_nearest_value_under_quantised_scales():
    x = data(3, 130)
    x[1, :64] = 0
    plain = tq.nf4_fake_quant(x, 64, None)
    for row, got in zip(x, plain, strict=True):
        for first in (0, 64, 128):
            part, m = row[first : first + 64], row[first : first + 64].abs().max()
            t = (part / m if m else part).tolist()
            want = [min(tq.NF4, key=lambda v, e=e: abs(Fraction(v) - Fraction(e))) for e in t]
            assert torch.equal(got[first : first + 64], torch.tensor(want) * m)
    scales = x.new_tensor([[r[i : i + 64].abs().max() for i in (0, 64, 128)] for r in x])
    left = scales.flatten() - scales.mean()
    kept = tq.fake_tensor_quant(left, left.abs().max(), 8) + scales.mean()
    doubled = tq.nf4_fake_quant(x)
    want = plain[0, :64] / scales[0, 0] * kept[0]  # a number of the table times the scale: two roundings more
    assert bool(((doubled[0, :64] - want).abs() <= 4 * 2.0**-24 * want.abs()).all())
    assert list(tq.NF4) == sorted(tq.NF4) and all(v == torch.tensor(v).item() for v in tq.NF4)
    leaf = x.clone().requires_grad_()
    tq.nf4_fake_quant(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.ones_like(x))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert_bitwise_equal(tq.nf4_fake_quant(x.to(dtype)), tq.nf4_fake_quant(x.to(dtype).float()).to(dtype))
    assert tq.nf4_fake_quant(torch.empty(0, 4)).shape == (0, 4)
    bad = torch.tensor([1.0, math.nan])
    with pytest.raises(ValueError, match="NaN"):
        tq.nf4_fake_quant(bad)
    for call in (
        lambda: tq.nf4_fake_quant(x, 0),
        lambda: tq.nf4_fake_quant(x, 64, 1),
        lambda: tq.nf4_fake_quant(x[0, 0]),
    ):
        with pytest.raises(ValueError):
            call()
