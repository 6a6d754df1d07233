"""How transposed convolutions and gradients of convolutions sum: products over the channels, then the overlap-add."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support import conv as definition
from torch import nn

import gemmsim as gs
from gemmsim.ops.conv import transposed as conv_transposed
from gemmsim.reference import gemm as exact_gemm

INF = float("inf")


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("accumulator", ["chunked(16, e5m4)", "chunked(4, e5m4)", "chunked(64, e5m4)", "e5m4"])
@pytest.mark.parametrize(("kernel", "size"), [(2, 6), (16, 32)])
def test_a_gradient_without_overlap_is_one_product_over_the_channels(accumulator, kernel, size):
    w, g = numbers(64, 3, kernel, kernel), numbers(2, 64, size // kernel, size // kernel, seed=1)
    x = numbers(2, 3, size, size, seed=2).requires_grad_()
    formats = gs.QAffineFormats(dgrad=f":{accumulator}")
    gs.qconv2d(x, w, stride=kernel, spec=formats).backward(g)
    rows = g.flatten(2).mT
    want = exact_gemm(rows[0, :2].tolist(), w.flatten(1)[:, :5].tolist(), gs.GemmSpec.of(f":{accumulator}"))
    columns = gs.qmatmul(rows, w.flatten(1), f":{accumulator}").mT
    assert_bitwise_equal(columns[0, :5, :2].T.contiguous(), torch.tensor(want))
    folded = nn.functional.fold(columns, (size, size), kernel, stride=kernel)
    assert_bitwise_equal(x.grad, folded)


def test_results_for_one_place_are_added_in_float32_by_ascending_kernel_position():
    # One position of the result gets 2**24 from kernel position 0 of x[2], then 1 and 1 from the ones after it.
    x, w = torch.tensor([[[1.0, 1.0, 2.0**24]]]), torch.ones(1, 1, 3)
    assert gs.qconv_transpose1d(x, w, spec=":e5m2/sat")[0, 0, 2] == torch.tensor(57344.0 + 1.0 + 1.0)
    got = gs.qconv_transpose1d(x, w, spec=":fp32")[0, 0]
    assert got[2] == 2.0**24  # (2**24 + 1) + 1 in float32; the other way round it would be 2**24 + 2
    assert gs.qconv_transpose1d(x.flip(2), w, spec=":fp32")[0, 0, 2] == 2.0**24 + 2
    assert gs.qconv_transpose1d(x, w, spec=":fp64", out_dtype=torch.float64)[0, 0, 2] == 2.0**24 + 2
    assert gs.qconv_transpose1d(x, w, spec=":fp64")[0, 0, 2] == 2.0**24 + 2  # float32 does not hold fp64's numbers


def test_infinities_of_both_signs_add_up_to_the_nan_of_every_processor():
    got = gs.qconv_transpose1d(torch.tensor([[[-INF, INF]]]), torch.ones(1, 1, 2), spec=":fp32")
    assert got[0, 0, [0, 2]].tolist() == [-INF, INF]
    assert got.view(torch.int32)[0, 0, 1] == 0x7FC00000


def test_the_output_cast_rounds_results_and_their_sum():
    x, w = torch.tensor([[[1.0, 1.125]]]), torch.tensor([[[1.0, 1.0]]])
    got = gs.qconv_transpose1d(x, w, spec=":fp32 -> ieee_e5m2")[0, 0]
    assert got.tolist() == [1.0, 2.0, 1.0]  # 1.125 to 1 (even), 1 + 1, and each alone
    sums = gs.qconv_transpose1d(torch.ones(1, 1, 3), torch.full((1, 1, 3), 1.75), spec=":fp32 -> ieee_e5m2")[0, 0]
    assert sums.tolist() == [1.75, 3.5, 5.0, 3.5, 1.75]  # 5.25 to 5


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_the_overlap_add_is_the_definition(data):
    draw, small = data.draw, st.integers(1, 3)
    n, groups = draw(st.integers(1, 2)), draw(small)
    sides = [[draw(small) for _ in range(n)] for _ in range(3)]
    kernel, stride, dilation = sides
    size = [draw(st.integers(1, 4)) for _ in range(n)]
    x = numbers(draw(st.integers(1, 2)), groups * draw(small), *size, seed=draw(st.integers(0, 9)))
    w = numbers(x.shape[1], draw(small), *kernel, seed=1)
    reach = [(m - 1) * s + d * (k - 1) + 1 for m, s, d, k in zip(size, stride, dilation, kernel, strict=True)]
    padding = [draw(st.integers(0, min(2, (r - 1) // 2))) for r in reach]
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    x.view(-1)[0], w.view(-1)[-1] = (
        draw(st.sampled_from([1.0, INF, -0.0, float("nan")])),
        draw(st.sampled_from([1.0, INF])),
    )
    spec = draw(st.sampled_from([":fp32", "e4m3 : chunked(2, e5m4)", ":e5m7/sr8", ":fp64", ":kahan(e5m4) -> e4m3"]))
    function = definition.TRANSPOSES[n - 1]
    got = function(x, w, None, stride, padding, extra, groups, dilation, spec, seed=3)
    want = definition.transposed(x, w, spec, got.shape[2:], stride, padding, dilation, groups, seed=3)
    assert_bitwise_equal(got, want, context=spec)
    zeros = gs.QAffineFormats(fprop=spec, transposed_sum="zeros")
    got = function(x, w, None, stride, padding, extra, groups, dilation, zeros, seed=3)
    want = definition.transposed_with_zeros(x, w, spec, got.shape[2:], stride, padding, dilation, groups, seed=3)
    assert_bitwise_equal(got, want, context=f"{spec}, zeros")
    if "sr" not in spec:
        taps = gs.QAffineFormats(fprop=spec, transposed_sum="taps")
        got = function(x, w, None, stride, padding, extra, groups, dilation, taps)
        want = definition.transposed_by_taps(x, w, spec, got.shape[2:], stride, padding, dilation, groups)
        assert_bitwise_equal(got, want, context=f"{spec}, taps")


def test_with_stride_one_all_kernel_positions_contribute():
    x, w = numbers(2, 4, 5, 6), numbers(4, 3, 3, 2, seed=1)
    for spec in ("e4m3 : chunked(5, e5m4)", "mxfp8_e4m3 : scaled(fp32)", "e4m3 : fp32 -> e5m2"):
        taps, zeros = (gs.QAffineFormats(fprop=spec, transposed_sum=order) for order in ("taps", "zeros"))
        where = {"padding": (1, 0), "dilation": (2, 1), "seed": 1}
        got, want = (gs.qconv_transpose2d(x, w, spec=one, **where) for one in (taps, zeros))
        assert_bitwise_equal(got, want)


def test_random_bits_of_one_sum_over_contributing_positions():
    """Equal seeds give equal bits, other seeds others; places of different remainders draw from seeds of their own."""
    formats = gs.QAffineFormats(fprop=":e5m3/sr8", transposed_sum="taps")
    x, w = torch.full((1, 64, 8), 0.3), torch.full((64, 1, 2), 0.3)  # the sums of even and odd places are the same
    first, again, other = (gs.qconv_transpose1d(x, w, stride=2, spec=formats, seed=s) for s in (1, 1, 2))
    assert_bitwise_equal(first, again)
    assert not torch.equal(first, other)
    even, odd = first[0, 0, ::2], first[0, 0, 1::2]
    assert not torch.equal(even, odd)


@pytest.mark.parametrize("spec", [":e5m4", "e4m3 : chunked(2, e5m4)", "mxfp8_e4m3 : scaled(fp32)", ":exact(fp32)"])
def test_images_computed_apart_have_the_same_bits(spec, monkeypatch):
    x, w, bias = numbers(5, 4, 6), numbers(4, 3, 3, seed=1), numbers(3, seed=2)
    whole = gs.qconv_transpose1d(x, w, bias, 2, spec=spec)
    monkeypatch.setattr(conv_transposed, "_COLUMNS", 1)
    assert_bitwise_equal(gs.qconv_transpose1d(x, w, bias, 2, spec=spec), whole)


def test_zeros_between_elements_are_no_terms():
    x, w = torch.ones(1, 1, 8).requires_grad_(), torch.tensor([[[INF, 1.0]]])
    gs.qconv1d(x, w, stride=2, spec=":fp32").sum().backward()
    assert x.grad[0, 0].tolist() == [INF, 1.0] * 4
    zeros = gs.QAffineFormats(fprop=":fp32", dgrad=":fp32", wgrad=":fp32", transposed_sum="zeros")
    x.grad = None
    gs.qconv1d(x, w, stride=2, spec=zeros).sum().backward()
    assert x.grad.isnan().sum() == 4  # infinity times zero


def test_places_that_nothing_reaches_are_zero_and_a_negative_zero_stays():
    got = gs.qconv_transpose1d(-torch.full((1, 1, 2), 1e-9), torch.ones(1, 1, 1), stride=3, spec=":fp32 -> e4m3")
    assert got[0, 0].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert torch.signbit(got[0, 0]).tolist() == [True, False, False, True]


def test_an_audit_has_a_record_for_each_number_of_contributing_positions():
    up = nn.ConvTranspose1d(4, 3, 3, stride=2, bias=False)  # two kernel positions contribute, or one, in turn
    with gs.emulate(gs.QAffineFormats(fprop=":fp32", transposed_sum="taps")):
        shapes = [one.shape for one in gs.audit(up, torch.randn(5, 4, 6)) if one.role == "fprop"]
    assert shapes == [(1, 5 * 7, 8, 3), (1, 5 * 6, 4, 3)]


@pytest.mark.parametrize("init", ["c_first", "c_last"])
def test_a_bias_in_the_accumulator_is_part_of_the_overlap_add(init):
    x, w = torch.ones(1, 1, 2), torch.full((1, 1, 2), 2.0**24)
    bias = torch.tensor([1.0])
    formats = gs.QAffineFormats(fprop=f":sequential(fp32, init={init})", bias_in_accumulator=True)
    got = gs.qconv_transpose1d(x, w, bias, spec=formats)[0, 0]
    assert got.tolist() == [2.0**24, 2.0**25, 2.0**24]
    negative = gs.qconv_transpose1d(torch.tensor([[[-1.0, 1.0]]]), w, bias, spec=formats)[0, 0, 1]
    assert negative == (0.0 if init == "c_first" else 1.0)


def test_an_audit_reports_the_terms_of_each_sum():
    layer = nn.Conv2d(3, 64, 2, stride=2, bias=False)
    up = nn.ConvTranspose2d(64, 3, 2, stride=2, bias=False)
    x = torch.randn(2, 3, 8, 8).requires_grad_()
    for order, terms, rows in (("col2im", 64, 2 * 16), ("taps", 64, 2 * 64), ("zeros", 64 * 4, 2 * 64)):
        formats = gs.QAffineFormats(fprop=":fp32", dgrad=":fp32", wgrad=":fp32", transposed_sum=order)
        with gs.emulate(formats):
            found = gs.audit(nn.Sequential(layer, up), x)
        by_role = {(one.module, one.role): one.shape for one in found}
        assert by_role["1", "fprop"][1:3] == (rows, terms)
        assert by_role["0", "dgrad"][1:3] == (rows, terms)


def test_an_unknown_order_is_refused():
    with pytest.raises(gs.FormatError, match="allowed: 'col2im' or 'taps' or 'zeros'"):
        gs.QAffineFormats(fprop=":fp32", transposed_sum="im2col")
    formats = gs.QAffineFormats(fprop=":fp32", transposed_sum="zeros")
    assert gs.QAffineFormats.from_dict(formats.to_dict()) == formats and "zeros" in repr(formats)
