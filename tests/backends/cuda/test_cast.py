"""The cast kernels, run on the host: the bits of the CPU backend for every path through cast.h.

The text of each kernel is the one NVRTC compiles; g++ compiles it here. The CPU backend is itself checked against the
integer reference; a few casts are compared with the reference directly, so that both cannot err alike unnoticed.
"""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda import host_quantize
from support.host import host_library

from gemmsim import reference
from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.backends import cpu, cuda
from gemmsim.backends.cuda.casts.cast import cast_args, cast_blocks, cast_source, merged_dims, needs_exact
from gemmsim.backends.cuda.jit.source import cast_literal
from gemmsim.formats import parse_cast
from gemmsim.lowering.casts import cast_numbers

SPECIALS = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 2.0**-126, 3.4e38, -3.4e38]

#: Every path: the magic number, the bit pattern of float32 and float64, 128-bit integers; all modes, all policies.
CASTS = [
    "e4m3", "e4m3/sat", "e5m2", "e5m2/satprop", "e2m1/clamp", "e3m2/rtz", "e5m10", "e5m10/ftz", "e5m10/rna", "e4m3/ru",
    "e4m3/rd", "e5m2/ro", "bf16", "bf16/rtz", "tf32", "fp32", "e4m3fnuz", "e5m2/ftz", "e5m0", "e8m20", "e1m6",
    "fixed(8,4)", "fixed(8,4,symmetric)", "fixed(8,4,unbounded)", "ufixed(6,3)", "fixed(30,10)", "fixed(12,-3)/rna",
    "e4m3/sr8", "bf16/sr16", "e5m10/sr20/sat", "e5m10/ftz/sr12", "fixed(8,4)/sr32", "e11m30/sr32",
    "binary8p3", "binary8p4ue", "binary8p1", "e8m0", "binary8p3/srb8", "e5m10/src4", "e11m52", "e9m30/clamp",
    "supernormal(4,3)", "supernormal(3,2,2,1,saturate,even_exponent)/sr8", "binary8(4)/ftz", "binary8(3,unsigned)/ru",
    "e4m3/rnd", "fixed(8,4)/rnu", "bfp(8,1)", "bfp(4,1,asymmetric)/sr8",
    "e5m10/ftz/rnd", "e8m20/rnu", "bf16/rnd", "binary8p1/rnu", "e11m30/rnd",
    "e5m10/srb16", "bf16/srb8", "bf16/srb16", "e5m10/ftz/srb12", "e4m3/srb22", "e4m3/srb23", "fixed(8,4)/srb32", "e8m20/srb4",
    "binary8p1/srb8", "binary8p4ue/srb5", "e5m2/srb8/sat", "e4m3fnuz/srb8",
    "e4m3/src8", "e5m10/src16", "bf16/src10", "e5m10/ftz/src6", "e5m2/src20", "fixed(8,4)/src32", "e8m20/src4", "binary8p1/src8",
    "supernormal(4,3)/ro", "supernormal(4,3)/rnd", "supernormal(4,3,saturate)/sr8", "supernormal(4,3)/srb16", "supernormal(4,3)/src5",
    "supernormal(3,2,2,1,even_exponent)", "supernormal(3,2,2,1,even_exponent)/ro", "supernormal(8,3,within_float32)",
    "binary8(4)/ftz/rna", "binary8(4)/ftz/rnu", "binary8(4)/ftz/sr8", "binary8(4)/ftz/srb20", "binary8(4)/ftz/src8",
    "binary8(3,unsigned)", "binary8(3,unsigned)/ftz/sr8", "binary8(1,unsigned)", "binary8p1/ro", "binary8p1ue/sr8",
    "e8m0/sat", "e8m0/ro", "e8m0/ru", "e8m0/sr8", "e8m0/src22", "e8m0/srb22",
    "bfp(8,1)/rd", "bfp(8,1)/sr8", "bfp(8,1)/src20", "bfp(2,1)", "bfp(1,1)", "bfp(4,1,asymmetric)", "bfp(4,1,asymmetric)/srb8", "bfp(24,1)/ro",
    "e4m3fnuz/sr8", "ufixed(6,3)/sr8", "e5m2/sr8/satprop", "e4m3/sr16/sat", "fixed(8,4,symmetric)/sr4", "bf16/sr15",
]  # fmt: skip

#: Those of them, and of a few more, that only 128-bit integers know.
EXACT = [
    "fixed(8,4)/srb32", "supernormal(4,3)/srb32", "binary8(4)/ftz/src8", "bfp(1,1)",
]  # fmt: skip


def float_bits(n: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random bit patterns, random numbers near 1 and the special values."""
    g = torch.Generator().manual_seed(seed)
    words = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    if dtype == torch.float32:
        raw = torch.randint(-(2**31), 2**31, (n,), generator=g, dtype=torch.int64).to(words).view(dtype)
    else:
        high = torch.randint(-(2**31), 2**31, (n,), generator=g, dtype=torch.int64)
        raw = ((high << 32) | torch.randint(0, 2**32, (n,), generator=g, dtype=torch.int64)).view(dtype)
    near = torch.randn(n, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-20, 10, (n,), generator=g))
    ties = (near * 64).round() / 64 + 2.0**-7  # on the midpoints of the coarse formats
    return torch.cat([raw, near.to(dtype), ties.to(dtype), torch.tensor(SPECIALS, dtype=dtype)])


def compare(x: torch.Tensor, text: str, out_dtype: torch.dtype, seed: int = 5) -> None:
    cast = parse_cast(text)
    got, want = (torch.empty(x.shape, dtype=out_dtype) for _ in range(2))
    host_quantize(x, cast, got, seed)
    cpu.quantize(x, cast, want, seed)
    assert_bitwise_equal(got, want, context=f"{text} {x.dtype} to {out_dtype}")


@pytest.mark.parametrize("text", CASTS)
def test_float32_patterns_and_ties(text):
    compare(float_bits(20_000, torch.float32), text, torch.float32)


@pytest.mark.parametrize(
    "text",
    [
        *CASTS[:3],
        *CASTS[7:13],
        "fixed(30,10)",
        "e8m20",
        "e4m3/sr8",
        "e5m10/sr32",
        "e8m0",
        "e11m52",
        "e4m3/rnd",
        "e5m10/srb16",
        "e5m10/srb31",
        "e11m30/src20",
        "e5m10/ftz/src32",
        "supernormal(4,3)",
        "supernormal(4,3)/sr32",
        "binary8(4)/ftz/rnd",
        "binary8(4)/ftz/srb31",
        "binary8(3,unsigned)",
        "bfp(8,1)",
        "bfp(4,1,asymmetric)/srb8",
    ],
)
def test_float64_inputs_are_rounded_once(text):
    compare(float_bits(20_000, torch.float64), text, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "text",
    [
        "e4m3",
        "e5m2/rtz",
        "e5m10",
        "bf16/sat",
        "e3m2/sr8",
        "binary8p1",
        "e5m10/sr8",
        "e4m3/sr16",
        "e5m2/srb11",
        "bf16/srb16",
        "e4m3/src7",
        "e4m3fnuz/sr8",
        "e3m2/rnu",
        "supernormal(4,3)",
        "supernormal(3,2,2,1,even_exponent)/sr8",
        "binary8(4)/ftz",
        "binary8(1,unsigned)",
        "e8m0",
        "bfp(8,1)",
    ],
)
def test_all_sixteen_bit_inputs(dtype, text):
    compare(torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype), text, dtype)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("src", DTYPES, ids=str)
@pytest.mark.parametrize("dst", DTYPES, ids=str)
def test_results_are_converted_to_the_output_dtype_once(src, dst):
    """fp64 as the format: what is left is the conversion, around every midpoint of the 16-bit dtypes."""
    x = float_bits(5_000, torch.float64)
    if dst in (torch.float16, torch.bfloat16):
        top = 0x7C00 if dst == torch.float16 else 0x7F80
        v = torch.arange(top, dtype=torch.int16).view(dst).double()
        tie = (v[1:] + v[:-1]) / 2
        x = torch.cat([x, tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40), torch.tensor([65519.99, 65520.0])])
    compare(x.to(src), "fp64", dst)
    if src != dst:
        compare(x.to(src)[:4001], "e5m10/sr10", dst)


@pytest.mark.parametrize("dst", DTYPES, ids=str)
def test_a_lowest_value_that_float32_lacks(dst):
    """-2^128: a number in float64, an infinity in the other dtypes."""
    top = torch.tensor([2.0**128 - 2.0**104, 1.9 * 2.0**127, 1.76 * 2.0**127, 1.5 * 2.0**127, math.inf])
    for text in ("bfp(4,1,asymmetric)", "bfp(4,1,asymmetric)/sr8", "bfp(8,1,asymmetric)/ru", "bfp(8,1,asymmetric)/rd"):
        compare(torch.cat([top, -top]), text, dst)


@pytest.mark.parametrize(
    "text",
    [
        "e4m3", "e5m10/sr8", "e5m2/rtz/sat", "fixed(8,4)", "binary8p3/srb8", "e5m10/src9", "e4m3/rnd", "e5m2/rnu",
        "supernormal(4,3)", "supernormal(3,2,2,1,even_exponent)/ro", "supernormal(4,3)/sr8", "supernormal(4,3)/rnu",
        "binary8(4)/ftz", "binary8(4)/ftz/sr8", "binary8(3,unsigned)/ru", "binary8p1", "e8m0", "e8m0/sr8",
        "bfp(8,1)", "bfp(8,1)/sr8", "bfp(4,1,asymmetric)",
    ],
)  # fmt: skip
def test_the_reference_agrees(text):
    x, cast = float_bits(150, torch.float32, seed=3), parse_cast(text)
    out = torch.empty_like(x)
    host_quantize(x, cast, out, 11)
    want = torch.tensor(reference.quantize(x.double().tolist(), cast, seed=11), dtype=torch.float64)
    assert_bitwise_equal(out, want.float(), context=text)


@pytest.mark.parametrize("text", ["e4m3", "e5m10/sr8", "e5m10/sr20"])
def test_layouts_and_sizes(text):
    """Any strides, misaligned addresses, ragged ends, in place: the contiguous result, random bits included."""
    cast = parse_cast(text)
    x = torch.randn(7, 5, 43, generator=torch.Generator().manual_seed(3))
    want = torch.empty_like(x)
    cpu.quantize(x, cast, want, 5)
    views = [x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0), x.repeat(2, 2, 2)[:7, :5, :43]]
    for view in views:
        for out in (torch.empty_like(x), torch.empty(43, 5, 7).permute(2, 1, 0), torch.empty(7, 5, 86)[..., ::2]):
            host_quantize(view, cast, out, 5)
            assert_bitwise_equal(out.contiguous(), want, context=str((view.stride(), out.stride())))
    place = x.clone()
    host_quantize(place, cast, place, 5)
    assert_bitwise_equal(place, want, context="in place")
    flat = x.view(-1)
    for n in (1, 7, 8, 9, 255 * 4 + 3, 1500):
        room = torch.full((n + 9,), 7.0)
        for shift in (0, 1, 4):
            room.fill_(7.0)
            host_quantize(flat[:n], cast, room[shift : shift + n], 5)
            assert_bitwise_equal(room[shift : shift + n], want.view(-1)[:n], context=f"{n} from {shift}")
            assert bool((room[shift + n :] == 7.0).all() and (room[:shift] == 7.0).all()), "wrote past the end"


def test_a_repeated_operand_and_a_single_element():
    x, cast = torch.randn(1, 40), parse_cast("e5m10/sr8")
    wide = x.expand(6, 40)
    out, want = torch.empty(6, 40), torch.empty(6, 40)
    host_quantize(wide, cast, out, 5)
    cpu.quantize(wide, cast, want, 5)
    assert_bitwise_equal(out, want)
    one, two = torch.empty(()), torch.empty(())
    host_quantize(x[0, 3].clone(), cast, one, 5)
    cpu.quantize(x[0, 3].clone(), cast, two, 5)
    assert_bitwise_equal(one, two)
    host_quantize(torch.empty(0), cast, torch.empty(0), 5)


@pytest.mark.parametrize("site", [0, 1, 4, 16])
def test_random_bits_belong_to_seed_site_and_index(site):
    x, cast = torch.randn(3000), parse_cast("e4m3/sr8")
    out, want = torch.empty_like(x), torch.empty_like(x)
    for seed in (0, 2**64 - 1, 0x123456789ABCDEF0):
        host_quantize(x, cast, out, seed, site)
        cpu.quantize(x, cast, want, seed, site)
        assert_bitwise_equal(out, want, context=f"seed {seed:#x} site {site}")


def test_dimensions_merge_and_keep_the_logical_index():
    dims = merged_dims((4, 3, 5), (15, 5, 1), (15, 5, 1))
    assert [(d.size, d.src, d.dst, d.index) for d in dims] == [(60, 1, 1, 1)]
    dims = merged_dims((4, 3, 5), (15, 5, 1), (1, 4, 12))  # the destination is transposed: its fastest dimension last
    assert [(d.size, d.dst, d.index) for d in dims] == [(5, 12, 1), (3, 4, 5), (4, 1, 15)]
    assert merged_dims((1, 1), (7, 9), (3, 3)) == []


def test_the_launch_covers_every_element_once():
    cast = parse_cast("e4m3")
    for count in (1, 4095, 4096, 4097, 2**31 + 5, 2**40):
        blocks = cast_blocks(cast, torch.float32, torch.float32, True, count)
        assert (blocks - 1) * 4096 < count <= blocks * 4096


def test_equal_casts_share_a_kernel_and_different_ones_do_not():
    f32 = torch.float32
    assert cast_source(parse_cast("binary8p3"), f32, f32) == cast_source(parse_cast("binary8p3se"), f32, f32)
    texts = {cast_source(parse_cast(t), f32, f32).text for t in CASTS}
    assert len(texts) == len({cast_source(parse_cast(t), f32, f32) for t in CASTS}) >= len(CASTS) - 2
    assert cast_args(1, 2, 3, 2**64 - 1, 16).seed == 2**64 - 1


def test_python_knows_which_casts_need_128_bit_integers():
    """What the kernel decides when it is compiled, by which its threads take one pack or four."""
    rest = "fixed(8,4)/srb32", "binary8(3,unsigned)/src4", "supernormal(4,3)/srb32", "fp64/rnd", "e5m0/rnu"
    casts = [parse_cast(text) for text in (*CASTS, *rest)]
    found = ", ".join(f"gemmsim::element_needs_exact({cast_literal(cast_numbers(cast))})" for cast in casts)
    text = (
        '#include "gemmsim/device/round_grid.h"\n'
        f'extern "C" int needs_exact(int i) {{ constexpr bool all[] = {{{found}}}; return all[i]; }}\n'
    )
    library = host_library(text, "element_needs_exact")
    assert [bool(library.needs_exact(i)) for i in range(len(casts))] == [needs_exact(cast) for cast in casts]
    exact = {str(cast) for cast in casts if needs_exact(cast)}
    assert exact == {str(parse_cast(text)) for text in EXACT}


def test_formats_beyond_float64_and_too_many_dimensions_are_refused():
    with pytest.raises(UnsupportedSpec, match=r"float64.*reference"):
        cast_source(parse_cast("binary16p2"), torch.float32, torch.float32)
    x = torch.empty([2, 1] * 8 + [2]).expand([2] * 17)  # no two neighbours merge
    with pytest.raises(ValueError, match="at most 16"):
        cuda.quantize(x, parse_cast("e4m3"), torch.empty([2] * 17))
