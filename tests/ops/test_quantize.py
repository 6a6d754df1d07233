"""``gs.quantize`` rounds as the reference does, for every dtype and layout, into every allowed ``out``."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
CASTS = ["e4m3", "e5m2/rtz", "e5m10/sat", "e3m2/ru", "bf16/rna", "fixed(8,4)", "e8m0", "binary8p3", "e4m3/sr8", "fp64"]


def samples(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(5, 41, dtype=torch.float64) * torch.logspace(-12, 6, 41, base=2.0, dtype=torch.float64)
    x[0, :8] = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 448.0, 1e30, -1e30])
    return x.to(dtype)


def by_reference(x: torch.Tensor, cast: str, seed: int = 0) -> torch.Tensor:
    return torch.tensor(reference.quantize(x.tolist(), gs.formats.parse_cast(cast), seed), dtype=torch.float64).to(
        x.dtype
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cast", CASTS)
def test_the_reference_agrees(cast, dtype):
    x = samples(dtype)
    assert_bitwise_equal(gs.quantize(x, cast, seed=7), by_reference(x, cast, 7), nan_is_nan=True)


LAYOUTS = {
    "transposed": lambda t: t.mT.contiguous().mT,
    "every second element": lambda t: torch.stack([t, -t], -1).flatten(-2)[..., ::2],
    "expanded": lambda t: t[:1].expand(t.shape),
    "lazily negated": lambda t: torch._neg_view(-t),
    "many dimensions": lambda t: t.mT.reshape((1,) * 18 + tuple(t.mT.shape)),
    "empty": lambda t: t[:0],
    "a number": lambda t: t[2, 3],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cast", ["e4m3", "e4m3/sr8"])
def test_strides_do_not_matter(cast, layout):
    x = LAYOUTS[layout](samples(torch.float32))
    want = gs.quantize(x.resolve_neg().clone(memory_format=torch.contiguous_format), cast, seed=7)
    assert_bitwise_equal(gs.quantize(x, cast, seed=7), want, nan_is_nan=True)
    out = torch.empty(x.shape)
    assert gs.quantize(x, cast, out=out, seed=7) is out
    assert_bitwise_equal(out, want, nan_is_nan=True)


def test_rounding_and_overflow_replace_those_of_the_cast():
    x = samples(torch.float32)
    want = gs.quantize(x, "e4m3/rtz/sat")
    assert_bitwise_equal(gs.quantize(x, "e4m3", rounding="truncate", overflow="sat"), want, nan_is_nan=True)
    assert_bitwise_equal(gs.quantize(x, gs.formats.E4M3, rounding="rtz", overflow="sat"), want, nan_is_nan=True)
    cast = gs.formats.parse_cast("e4m3/ru/sat")
    assert_bitwise_equal(gs.quantize(x, cast, rounding=gs.formats.Rounding.RTZ), want, nan_is_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_out_may_have_another_dtype(dtype):
    x = samples(torch.float32)
    out = torch.empty(x.shape, dtype=dtype)
    assert gs.quantize(x, "e4m3/sat", out=out) is out
    assert_bitwise_equal(out, gs.quantize(x, "e4m3/sat").to(dtype), nan_is_nan=True)


def test_in_place_and_views_of_the_same_elements():
    x = samples(torch.float32)
    want = gs.quantize(x, "e4m3")
    for out_of in (lambda t: t, lambda t: t.view_as(t), lambda t: t.detach()):
        y = x.clone()
        out = out_of(y)
        assert gs.quantize(y, "e4m3", out=out) is out
        assert_bitwise_equal(y, want, nan_is_nan=True)
    y = x.mT.contiguous().mT
    gs.quantize(y, "e4m3", out=y)
    assert_bitwise_equal(y.contiguous(), want, nan_is_nan=True)


def line(n: int = 24) -> torch.Tensor:
    return torch.linspace(-3, 3, n)


#: (name, x and out as views of one buffer): together in memory, no element in common.
DISJOINT = {
    "halves": lambda b: (b[:12], b[12:]),
    "columns": lambda b: (b.view(12, 2)[:, 0], b.view(12, 2)[:, 1]),
    "blocks of columns": lambda b: (b.view(4, 6)[:, :3], b.view(4, 6)[:, 3:]),
    "rows of a batch": lambda b: (b.view(2, 4, 3)[:, ::2], b.view(2, 4, 3)[:, 1::2]),
}
OVERLAPPING = {
    "shifted": lambda b: (b[:12], b[1:13]),
    "shifted by a row": lambda b: (b.view(6, 4)[:5], b.view(6, 4)[1:]),
    "shifted columns": lambda b: (b.view(4, 6)[:, :4], b.view(4, 6)[:, 2:]),
    "transposed": lambda b: (b[:16].view(4, 4), b[:16].view(4, 4).mT),
    "reversed use of one column": lambda b: (b.view(12, 2)[:11, 1], b.view(12, 2)[1:, 1]),
    "other dtype": lambda b: (b[:12], b.view(torch.float64)),
    "expanded out": lambda b: (b[:4].clone(), b[:1].expand(4)),
    "unfolded out": lambda b: (torch.zeros(5, 3), b.as_strided((5, 3), (2, 1))),
}


@pytest.mark.parametrize("name", DISJOINT)
def test_out_may_interleave_with_x(name):
    buffer = line()
    x, out = DISJOINT[name](buffer)
    x0, want = x.clone(), gs.quantize(x, "e4m3")
    gs.quantize(x, "e4m3", out=out)
    assert_bitwise_equal(out.contiguous(), want.contiguous())
    assert_bitwise_equal(x.contiguous(), x0.contiguous())


@pytest.mark.parametrize("name", OVERLAPPING)
def test_an_overlapping_out_is_refused_and_nothing_is_written(name):
    buffer = line()
    x, out = OVERLAPPING[name](buffer)
    with pytest.raises(gs.OverlapError, match="out"):
        gs.quantize(x, "e4m3", out=out)
    assert_bitwise_equal(buffer, line())


def test_the_overlap_rule_agrees_with_a_search_over_all_addresses():
    from itertools import product

    from gemmsim.ops.overlap import _overlap

    buffer = torch.zeros(64)
    for rows, columns, pad, shift in product((1, 2, 3), (1, 2, 3), (0, 1, 2, 3), range(12)):
        strides = ((columns + pad) * 2, 2)
        x, out = buffer.as_strided((rows, columns), strides), buffer.as_strided((rows, columns), strides, shift)
        places = [{o + i * strides[0] + j * 2 for i in range(rows) for j in range(columns)} for o in (0, shift)]
        assert _overlap(x, out) == (shift != 0 and bool(places[0] & places[1])), (rows, columns, pad, shift)


def test_parameters_and_no_grad():
    weight = torch.nn.Parameter(samples(torch.float32))
    with torch.no_grad():
        got = gs.quantize(weight, "e4m3")
        assert not got.requires_grad
        gs.quantize(weight, "e4m3", out=weight)
    assert_bitwise_equal(weight.detach(), got, nan_is_nan=True)
    with torch.inference_mode():
        assert_bitwise_equal(gs.quantize(samples(torch.float32), "e4m3"), got, nan_is_nan=True)


@pytest.mark.parametrize("watched", [False, True], ids=["direct", "through the dispatcher"])
def test_autograd_notices_that_out_changed(watched):
    out = torch.ones(3)
    y = torch.ones(3, requires_grad=True) * out
    with torch.profiler.profile() if watched else torch.no_grad():
        gs.quantize(torch.randn(3), "e4m3", out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_meta_tensors_give_the_shape():
    got = gs.quantize(torch.empty(3, 4, device="meta", dtype=torch.bfloat16), "e4m3")
    assert (got.shape, got.dtype, got.device.type) == ((3, 4), torch.bfloat16, "meta")
