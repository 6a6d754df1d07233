"""The CPU library's element-wise casts: exhaustive around every value of every format of at most 16 bits.

For each format the inputs are all its values, all midpoints of neighbours, quarter points, both float neighbours of
each of these, the ends of the range and beyond, subnormals, zeros, infinities and NaN. The reference decides.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.backends import cpu
from gemmsim.formats import Cast, CodebookFormat, FixedFormat, Format, names, parse, parse_cast

MODES = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "sr20", "srb4", "src4"]
EXTRA = [
    "e5m2/ftz",
    "e8m7/ftz",
    "e4m3/ftz",
    "e5m10/ftz",
    "e3m4",
    "e5m7",
    "e2m5",
    "ieee_e4m3",
    "e5m0",
    "e4m3b11fnuz",
    "fixed(8,4)",
]
EXTRA += ["fixed(8,4,symmetric)", "fixed(8,4,unbounded)", "ufixed(6,3)", "fixed(12,14)", "fixed(5,-3)", "binary6p3ue"]


def small_formats() -> list[str]:
    """One name for each format of at most 16 bits that is named or listed above."""
    found = {str(parse(name)) for name in [*names(), *EXTRA]}
    found = {name for name in found if not isinstance(parse(name), CodebookFormat)}  # lists are looked up elsewhere
    return sorted(name for name in found if parse(name).bits <= 16 and parse(name).fits_float64)


def probes(fmt: Format, limit: int = 2500) -> torch.Tensor:
    """Inputs described at the top of the file, in float64."""
    if isinstance(fmt, FixedFormat) and not fmt.clamp:
        values = [k * 2.0**-fmt.frac for k in range(-300, 301)]
    else:
        values = list(fmt.values())
    if len(values) > limit:  # 16-bit formats: both ends, around zero, and a stride through the rest
        step = len(values) // limit + 1
        middle = len(values) // 2
        keep = set(range(0, len(values), step)) | set(range(200)) | set(range(len(values) - 200, len(values)))
        keep |= set(range(middle - 300, middle + 300))
        values = [values[i] for i in sorted(keep) if 0 <= i < len(values)]
    v = torch.tensor(values, dtype=torch.float64)
    gap = v[1:] - v[:-1]
    around = torch.cat([v, v[:-1] + gap / 2, v[:-1] + gap / 4, v[:-1] + gap * 0.75])
    top = float(v.abs().max())
    ends = [top * f for f in (1.0625, 1.25, 1.5, 2.0, 4.0, 2.0**30)] + [
        float(gap.min()) * f for f in (0.5, 0.25, 2**-9)
    ]
    ends += [0.0, math.inf, math.nan, 2.0**-149, 2.0**-126, 3.4e38]
    x = torch.cat([around, torch.tensor(ends, dtype=torch.float64)])
    x = torch.cat([x, -x])
    return x


def float32_probes(fmt: Format) -> torch.Tensor:
    x = probes(fmt).float()
    inf = torch.full_like(x, math.inf)
    return torch.cat([x, torch.nextafter(x, inf), torch.nextafter(x, -inf)])


def expected(x: torch.Tensor, cast: Cast, seed: int = 5) -> torch.Tensor:
    return torch.tensor(reference.quantize(x.double().tolist(), cast, seed=seed), dtype=torch.float64)


@pytest.mark.parametrize("name", small_formats())
def test_every_value_midpoint_and_neighbour_in_every_mode(name):
    fmt = parse(name)
    x = float32_probes(fmt)
    modes = MODES if fmt.bits <= 8 else ["rne", "rtz", "ru", "sr8"]
    for mode in modes:
        for policy in ("", "/sat", "/clamp", "/satprop") if mode in ("rne", "rtz") else ("",):
            cast = parse_cast(f"{name}/{mode}{policy}")
            want = expected(x, cast)
            want32 = want.float()
            for isa in isas():
                cpu.set_isa(isa)
                out = torch.empty_like(x)
                cpu.quantize(x, cast, out, 5)
                assert_bitwise_equal(out, want32, context=f"{cast} on {isa}")


@pytest.mark.parametrize(
    "name", ["e5m10", "e4m3", "bf16", "fp32", "e8m20", "e11m30", "fixed(30,10)", "fixed(8,4)", "tf32"]
)
def test_float64_inputs_are_rounded_once(name):
    """Points that fall on a midpoint only after a first rounding to float32."""
    v = torch.randn(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    fmt = parse(name)
    grid = 2.0 ** -(fmt.frac if isinstance(fmt, FixedFormat) else fmt.p - 1)
    tie = (v / grid).round() * grid + grid / 2
    x = torch.cat([v, tie, tie * (1 + 2.0**-50), tie * (1 - 2.0**-50), tie * (1 + 2.0**-30), v * 2.0**-140, v * 1e300])
    for mode in ("rne", "rtz", "ru", "rna", "sr16", "sr32"):
        cast = parse_cast(f"{name}/{mode}")
        want = expected(x, cast)
        for isa in isas():
            cpu.set_isa(isa)
            out = torch.empty_like(x)
            cpu.quantize(x, cast, out, 5)
            assert_bitwise_equal(out, want, context=f"{cast} on {isa}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "bf16/rtz", "e5m10", "fixed(8,4)", "e3m2/sr8", "binary8p1"])
def test_all_sixteen_bit_inputs(dtype, name):
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    cast = parse_cast(name)
    want = expected(x, cast)
    fits = want.float().to(dtype)
    fits[fits.isnan()] = math.nan
    for isa in isas():
        cpu.set_isa(isa)
        out = torch.empty(65536, dtype=torch.float32)
        cpu.quantize(x, cast, out, 5)
        assert_bitwise_equal(out, want.float(), context=isa)
        same = torch.empty_like(x)
        cpu.quantize(x, cast, same, 5)
        assert_bitwise_equal(same, fits, context=isa)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_are_converted_to_the_output_dtype_once(dtype):
    """Around every midpoint of the dtype, from float32 and from float64, the conversion is torch's from float32."""
    grid = torch.arange(0, 0x7C00 if dtype == torch.float16 else 0x7F80, dtype=torch.int16)
    v = grid.view(dtype).double() if dtype != torch.float32 else torch.rand(30000, dtype=torch.float64)
    tie = (v[1:] + v[:-1]) / 2
    x = torch.cat([v, tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40), -tie, v * 3.0, torch.tensor([65519.9, 65520.0])])
    near = tie.float().double() == tie
    for isa in isas():
        cpu.set_isa(isa)
        out = torch.empty(x.shape, dtype=dtype)
        cpu.quantize(x, parse_cast("fp64"), out)
        low, high = out[len(v) + 2 * len(tie) :][: len(tie)], out[len(v) + len(tie) :][: len(tie)]
        if dtype != torch.float32:
            assert bool((low[near] == v[:-1][near].to(dtype)).all()) and bool(
                (high[near] == v[1:][near].to(dtype)).all()
            )
        exact = x.float().double() == x  # from float32 torch rounds once
        assert_bitwise_equal(out[exact], x[exact].float().to(dtype), context=isa)


@pytest.mark.parametrize("text", ["e9m30/clamp", "e11m52/clamp", "e11m5", "e9m3/rtz/sat"])
def test_formats_wider_than_the_input_keep_their_range_in_a_float64_output(text):
    x = torch.tensor([math.inf, -math.inf, math.nan, 3.4e38, 2.0**-149, -0.0, 1.1])
    out = torch.empty(7, dtype=torch.float64)
    cpu.quantize(x, parse_cast(text), out)
    assert_bitwise_equal(out, expected(x, parse_cast(text)), context=text)


LIBRARIES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "ieee_e4m3": ml_dtypes.float8_e4m3, "e3m4": ml_dtypes.float8_e3m4,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "e2m1": ml_dtypes.float4_e2m1fn, "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "bf16": ml_dtypes.bfloat16, "fp16": np.float16,
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_nearest_even_is_ml_dtypes_own_from_float32(name):
    fmt = parse(name)
    x = float32_probes(fmt)
    if not fmt.has_inf:
        x = x[x.isfinite()]  # what becomes of infinity without one is a policy; theirs is another
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=torch.Generator().manual_seed(2), dtype=torch.int64)
    extra = bits.to(torch.int32).view(torch.float32)
    x = torch.cat([x, extra[extra.isfinite()]])
    with np.errstate(over="ignore"):
        theirs = torch.from_numpy(x.numpy().astype(LIBRARIES[name]).astype(np.float32))
    out = torch.empty_like(x)
    cpu.quantize(x, parse_cast(name), out)
    assert_bitwise_equal(out, theirs, nan_is_nan=True, context=name)


@pytest.mark.parametrize(
    "text", ["e5m10", "e4m3/sat", "e5m10/ftz", "bf16", "e5m2/rtz", "fixed(16,8)", "e4m3/sr8", "binary8p1"]
)
def test_layouts_threads_and_sizes(text):
    """Any strides, any alignment, in place, streaming sizes and thread counts give the contiguous result."""
    cast = parse_cast(text)
    x = torch.randn(37, 5, 41, generator=torch.Generator().manual_seed(3))
    want = torch.empty_like(x)
    cpu.quantize(x, cast, want, 5)
    views = {"transposed": x.permute(2, 0, 1).contiguous().permute(1, 2, 0), "strided": x.repeat(2, 2, 2)[:37, :5, :41]}
    for name, view in views.items():
        for out in (torch.empty_like(x), torch.empty_like(x.permute(2, 1, 0).contiguous()).permute(2, 1, 0)):
            cpu.quantize(view, cast, out, 5)
            assert_bitwise_equal(out, want, context=f"{text} {name}")
    place = x.clone()
    cpu.quantize(place, cast, place, 5)
    assert_bitwise_equal(place, want, context="in place")
    expanded = x[:1].expand(37, 5, 41)
    out = torch.empty(37, 5, 41)
    cpu.quantize(expanded, cast, out, 5)
    if "sr" not in text:
        assert_bitwise_equal(out, want[:1].expand(37, 5, 41), context="expanded")
    threads = torch.get_num_threads()
    big = torch.randn(1_300_001, generator=torch.Generator().manual_seed(4))
    first = torch.empty_like(big)
    torch.set_num_threads(1)
    cpu.quantize(big, cast, first, 5)
    for shift, count in ((0, 2), (1, 2), (3, 1)):
        torch.set_num_threads(count)
        room = torch.empty(big.numel() + shift)
        cpu.quantize(big, cast, room[shift:], 5)
        assert_bitwise_equal(room[shift:], first, context=f"{text} shift {shift}")
    torch.set_num_threads(threads)
    piece = torch.empty(5000)
    cpu.quantize(big[:5000], cast, piece, 5)
    assert_bitwise_equal(piece, first[:5000], context="a prefix is rounded alike")


def test_offsets_beyond_two_to_the_31():
    """As of the columns of a large matrix; memory that is not touched is not there."""
    x = torch.empty(65537, 32768, dtype=torch.float16)[:, :2]
    x[:] = torch.tensor([1.3, 2.6])
    cpu.quantize(x, parse_cast("e4m3"), x)
    assert bool((x == torch.tensor([1.25, 2.5])).all())


@pytest.mark.long
def test_more_than_two_to_the_31_elements():
    """Element offsets beyond 32 bits, in an fp16 tensor that is contiguous."""
    n = 2**31 + 17
    x = torch.zeros(n, dtype=torch.float16)
    x[-1], x[2**31] = 1.3, 2.6
    cpu.quantize(x, parse_cast("e4m3"), x)
    assert float(x[-1]) == 1.25 and float(x[2**31]) == 2.5 and float(x[0]) == 0.0
