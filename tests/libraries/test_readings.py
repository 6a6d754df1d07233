"""The slow readings themselves, on cases small enough to be computed by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from libraries.readings import ada, cutlass, dot, gemmsn, gemv, linear, nvjet
from libraries.readings.epilogue import epilogue, round_code
from libraries.readings.instructions import INSTRUCTIONS, chain, step, terms
from libraries.readings.values import decode, to_bf16, to_fp16

ONE = np.float32(1)


def singles(*values):
    return [np.float32(value) for value in values]


def at(K, **values):
    """K terms, zero but for those at k0, k1, ...; b is a vector of ones."""
    a = singles(*[0.0] * K)
    for name, value in values.items():
        a[int(name[1:])] = np.float32(value)
    return a, singles(*[1.0] * K)


def test_numbers_of_formats():
    assert decode(1.5, "fp16") == (1536, 0, 10) and decode(-448.0, "e4m3") == (-14, 8, 3)
    assert decode(2.0**-24, "fp16") == (1, -14, 10) and decode(2.0**-9, "e4m3") == (1, -6, 3)
    with pytest.raises(AssertionError, match="no number of e4m3"):
        decode(1.0625, "e4m3")


def test_roundings_to_16_bits():
    tie = np.float32(1 + 2.0**-8)
    assert to_bf16(tie) == 1 and to_bf16(np.nextafter(tie, np.float32(2))) == 1 + 2.0**-7
    assert to_bf16(np.float32(1 + 3 * 2.0**-8)) == 1 + 2.0**-6 and np.signbit(to_bf16(np.float32(-(2.0**-149))))
    assert to_bf16(np.float32(3.4e38)) == np.inf and np.isnan(to_bf16(np.float32(np.nan)))
    assert to_fp16(np.float32(1 + 2.0**-11)) == 1 and to_fp16(np.float32(65520)) == np.inf


@pytest.mark.parametrize(
    ("name", "fmt", "c", "products", "expected"),
    [
        ("hopper wgmma fp8", "e4m3", 1.0, [(-1, 1), (2.0**-6, 2.0**-7)], 2.0**-13),
        ("hopper wgmma fp8", "e4m3", 1.0, [(-1, 1), (2.0**-7, 2.0**-7)], 0.0),
        ("blackwell tcgen05 fp8", "e4m3", 1.0, [(-1, 1), (2.0**-7, 2.0**-7)], 2.0**-14),
        ("hopper wgmma 16", "bf16", 1.0, [(-1, 1), (2.0**-25, 1)], 2.0**-25),
        ("hopper wgmma 16", "bf16", 1.0, [(-1, 1), (2.0**-26, 1)], 0.0),
        ("ampere mma", "bf16", 1.0, [(-1, 1), (2.0**-25, 1)], 0.0),
        ("hopper wgmma 16", "bf16", 1.0, [(2.0**-24, 1), (2.0**-25, 1)], 1.0),
        ("hopper wgmma 16", "bf16", -1.0, [(2.0**-25, 1.5), (1, 1)], 2.0**-25),
        ("hopper wgmma 16", "bf16", 1.0, [(-1, 1), (-1.5 * 2.0**-25, 1)], -(2.0**-25)),
        ("hopper wgmma fp8", "e4m3", 1 + 2.0**-14, [], 1.0),
        ("hopper wgmma 16", "bf16", 0.0, [(1.5, 1.5), (-1.5, 1.5), (2.0**-25, 1)], 2.0**-25),
        ("hopper wgmma 16", "bf16", 2.0**-60, [(0, 2.0**100)], 2.0**-60),
        ("hopper wgmma 16", "bf16", 0.0, [(2.0**-76, 2.0**-76)] * 8, 2.0**-149),
        ("ada mma fp8", "e5m2", 0.0, [(1, 1), (2.0**-7, 2.0**-7)], 1.0),
    ],
)  # fmt: skip
def test_one_step(name, fmt, c, products, expected):
    a, b = [x for x, _ in products], [y for _, y in products]
    found = step(INSTRUCTIONS[name], terms(a, b, fmt, fmt), range(len(a)), c)
    assert found == expected and math.copysign(1, found) == math.copysign(1, expected)


def test_a_chain_carries_the_register():
    eight = INSTRUCTIONS["mma k8"]
    a = [1.0, *[0.0] * 7, *[2.0**-24] * 8]
    products = terms(a, [1.0] * 16, "bf16", "bf16")
    assert chain(eight, products, range(16)) == 1 + 2.0**-21, "eight small ones are added exactly"
    products = terms([1.0, *[2.0**-24] * 15], [1.0] * 16, "bf16", "bf16")
    assert chain(eight, products, range(16)) == 1 + 3 * 2.0**-23 + 2.0**-21, "seven of them lose one half"
    assert chain(INSTRUCTIONS["mma k16"], products, range(16)) == 1 + 7 * 2.0**-23


def test_nvjet_slices_and_the_lost_tail():
    assert [len(part) for part in nvjet.slices(1000, 3, 64)] == [384, 384, 232]
    assert nvjet.lost_terms(8648, 9, 64) == 8 and nvjet.lost_terms(8648, 8, 64) == 0
    assert nvjet.lost_terms(8640, 9, 64) == 0 and nvjet.lost_terms(8704, 9, 64) == 0
    ones = singles(*[1.0] * 584)
    assert nvjet.nvjet(ones, ones, ("fp16", "fp16"), "hopper", 9) == 576
    assert nvjet.nvjet(ones, ones, ("fp16", "fp16"), "hopper", 8) == 584
    with pytest.raises(ValueError, match="3 splits of 60 terms"):
        nvjet.slices(60, 3, 64)


def test_nvjet_promotes_fp8_on_hopper():
    a, b = at(160, k0=1, k128=2.0**-6)
    b[128] = np.float32(2.0**-8)
    formats = ("e4m3", "e4m3")
    assert nvjet.nvjet(a, b, formats, "hopper") == 1 + 2.0**-14
    assert nvjet.nvjet(a, b, formats, "hopper", fast_accumulation=True) == 1
    assert nvjet.nvjet(a, b, formats, "blackwell") == 1 + 2.0**-14


def test_nvjet_adds_partials_in_order():
    a, b = at(192, k0=2.0**12, k64=2.0**-13, k128=-(2.0**12))
    assert nvjet.nvjet(a, b, ("bf16", "bf16"), "hopper", 3) == 0
    a, b = at(192, k0=2.0**12, k64=-(2.0**12), k128=2.0**-13)
    assert nvjet.nvjet(a, b, ("bf16", "bf16"), "hopper", 3) == 2.0**-13


def test_cutlass_takes_the_residue_first():
    """K = 36, blocks of 32 terms, 8 a step: steps of 4, 8, 8, 8, 8 terms."""
    a, b = at(36, k0=1, k4=2.0**-24, k11=2.0**-24, k12=2.0**-24)
    assert cutlass.cutlass(a, b, "bf16", 32, 8) == 1 + 2.0**-23, "k = 4 and 11 meet in one step"
    a, b = at(36, k0=1, k3=2.0**-24, k4=2.0**-24)
    assert cutlass.cutlass(a, b, "bf16", 32, 8) == 1, "k = 3 and 4 do not"
    assert cutlass.cutlass(a, b, "bf16", 64, 8) == 1 + 2.0**-23, "in a block of 64 terms they do"
    a, b = at(44, k0=1, k7=2.0**-24, k8=2.0**-24, k11=2.0**-24, k12=2.0**-24)
    assert cutlass.cutlass(a, b, "bf16", 32, 8) == 1 + 2.0**-23, "steps of 8, 4, 8, 8, 8, 8 terms"


def test_cutlass_slices():
    assert [len(part) for part in cutlass.slices(1000, 3, cutlass.grain(1000))] == [336, 336, 328]
    assert [len(part) for part in cutlass.slices(1024, 3, cutlass.grain(1024))] == [384, 384, 256]
    with pytest.raises(ValueError, match="2 splits of 6 terms"):
        cutlass.cutlass(*at(6), "bf16", 32, 8, 2, 2)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [(2, 1 + 2.0**-8 + 2.0**-23), (4, 1 + 2.0**-8), (0, 1), (1, 1)],
)
def test_cutlass_schemes(scheme, expected):
    """1 + (2**-8 + 2**-24 + 2**-25) in bfloat16: above a tie, on it after binary32's rounding only where that drops all."""
    partials = singles(1, 2.0**-8 + 2.0**-24 + 2.0**-25)
    if scheme in (0, 1):
        partials = singles(1, 2.0**-8 + 2.0**-26)  # a single rounding gives 1 + 2**-7
    assert cutlass.meet(partials, scheme, "bf16") == expected


def test_cutlass_keeps_a_first_partial_that_rounds_to_minus_zero():
    tiny = singles(-(2.0**-30), -(2.0**-30))
    assert np.signbit(cutlass.meet(tiny, 4, "fp16")) and np.signbit(cutlass.meet(tiny, 0, "fp16"))
    with pytest.raises(ValueError, match="scheme 3"):
        cutlass.meet(tiny, 3, "fp16")


def test_gemmsn_levels():
    """Two threads share 520 terms: runs of 256 and 4 each."""
    large, small = 2.0**12, 2.0**-13
    assert gemmsn.gemmsn(*at(520, k0=large, k255=small, k256=-large), 11, 0) == 0
    assert gemmsn.gemmsn(*at(520, k0=large, k256=small, k259=-large), 11, 0) == 0
    assert gemmsn.gemmsn(*at(520, k0=large, k255=-large, k256=small), 11, 0) == small
    assert gemmsn.gemmsn(*at(520, k256=large, k257=-large, k260=small), 11, 0) == small
    assert gemmsn.gemmsn(*at(520, k0=small, k260=large, k261=-large), 11, 0) == small, "another thread's"
    assert gemmsn.gemmsn(*at(520, k0=small, k260=large, k261=-large), 16, 0) == 0, "one thread"
    ones = singles(*[1.0] * 7)
    assert [gemmsn.gemmsn(ones, ones, *key) for key in gemmsn.LAYOUTS] == [7, 7, 7]


def test_gemv_options():
    assert {gpu: len(options) for gpu, options in gemv.OPTIONS.items()} == {"sm_90": 63, "sm_100": 51, "sm_103": 51}
    assert gemv.OPTIONS["sm_90"][0].chunk == 512 and gemv.OPTIONS["sm_100"][0].chunk == 0
    assert gemv.OPTIONS["sm_103"][8].chunk == 256 and gemv.OPTIONS["sm_90"][42] == (-64, 8, 0, True)


def test_gemv_lanes():
    large, small = 2.0**12, 2.0**-13
    a, b = at(8, k0=large, k2=-large, k1=small)
    assert gemv.gemv(a, b, 41, "sm_90") == small, "lane 0 meets lane 2 first"
    a, b = at(8, k0=large, k1=-large, k2=small)
    assert gemv.gemv(a, b, 41, "sm_90") == 0
    assert gemv.gemv(a, b, 49, "sm_90") == 0, "terms 0 and 2 are one lane's"
    assert gemv.gemv(a, b, 0, "sm_90") == small
    a, b = at(200, k0=large, k3=-large, k4=small)
    assert gemv.gemv(a, b, 10, "sm_90") == small, "four adjacent terms of a lane"
    assert gemv.gemv(*at(200, k0=large, k128=-large, k1=small), 10, "sm_90") == 0, "its next tile"


def test_gemv_width_follows_the_slice():
    """100 terms, 3 slices of 34: two lanes of 17 adjacent terms, also in the last slice of 32."""
    large, small = 2.0**12, 2.0**-13
    a, b = at(100, k68=large, k84=-large, k85=small)
    assert gemv.gemv(a, b, 48, "sm_90", 3) == small
    a, b = at(100, k68=large, k84=small, k85=-large)
    assert gemv.gemv(a, b, 48, "sm_90", 3) == 0, "k = 84 is the first lane's"
    ones = singles(*[1.0] * 5)
    assert gemv.gemv(ones, ones, 36, "sm_100", 4) == 5, "slices past K"


def test_gemv_option_5():
    """1024 terms: a lane has 32 of them, in two chunks of 16."""
    large, small = 2.0**12, 2.0**-13
    assert gemv.gemv(*at(1024, k0=large, k15=-large, k16=small), 5, "sm_90") == small
    assert gemv.gemv(*at(1024, k0=large, k16=small, k17=-large), 5, "sm_90") == 0
    assert gemv.gemv(*at(1024, k0=small, k32=large, k33=-large), 5, "sm_90") == small


def test_dot_blocks_and_threads():
    large, small = 2.0**12, 2.0**-13
    a, b = at(1024, k0=large, k512=-large, k1=small)
    assert dot.dot(a, b, 2, 1) == small, "tiles of 256: k = 0 and 512 are one chain's, k = 1 another's"
    assert dot.dot(*at(1024, k0=large, k256=-large, k1=small), 2, 1) == 0, "another block's"
    a, b = at(1024, k0=large, k256=-large, k1=small)
    assert dot.dot(a, b, 2, 100) == small, "tiles of 128: one chain's"
    assert dot.dot(*at(256, k0=large, k64=-large, k128=small), 1, 1) == 0, "threads 0 and 64 first, then 32"


def test_dot_reduces_blocks():
    large, small = 2.0**12, 2.0**-13
    partials = singles(*[0.0] * 200)
    partials[0], partials[128], partials[1] = singles(large, -large, small)
    assert dot.reduce(partials) == small, "one thread's"
    for partner, expected in ((64, small), (32, small), (4, small), (8, small), (1, 0), (2, 0)):
        partials = singles(*[0.0] * 130)
        partials[0], partials[partner] = singles(large, -large)
        partials[129 if partner > 2 else 3 - partner] = np.float32(small)
        if expected:
            assert dot.reduce(partials) == small, partner
    partials = singles(large, small, -large, 0)
    assert dot.reduce(partials) == 0, "four chains from left to right"
    assert dot.reduce(singles(large, -large, small)) == small


def test_ada_deals_tiles():
    assert [len(tile) for tile in ada.own_tiles(200, 0, 2)] == [64, 64]
    assert [list(tile)[0::63] for tile in ada.own_tiles(200, 1, 2)] == [[64, 127], [192]]
    assert ada.own_tiles(200, 4, 5) == []


def test_ada_pairs():
    p = singles(*[2.0**12, 2.0**-13, -(2.0**12)])
    assert ada.pairwise(p) == 2.0**-13, "(p2 + p0) + p1"
    assert ada.pairwise(singles(2.0**12, 2.0**-13, -(2.0**12), 0)) == 2.0**-13, "(p3 + (p0 + p2)) + p1"
    assert ada.pairwise(singles(2.0**12, 2.0**-13, 0, -(2.0**12))) == 2.0**-13
    assert ada.pairwise(singles(2.0**12, -(2.0**12), 2.0**-13, 0)) == 0
    assert ada.pairwise(singles(5)) == 5 and ada.serial(singles(1, 2, 3)) == 6


def test_ada_promotes_every_two_tiles_of_its_own():
    formats, tail = ("e4m3", "e4m3"), np.float32(2.0**-8)
    a, b = at(512, k0=1, k128=2.0**-6)
    b[128] = tail
    assert ada.ada(a, b, formats, 2) == 1, "tiles 0 and 2 of the first split are one chain"
    assert ada.ada(a, b, formats, 1) == 1 + 2.0**-14 and ada.ada(a, b, formats, 1, fast_accumulation=True) == 1
    a, b = at(512, k0=1, k256=2.0**-6)
    b[256] = tail
    assert ada.ada(a, b, formats, 2) == 1 + 2.0**-14, "tile 4 begins the next"
    assert ada.ada(a, b, formats, 2, fast_accumulation=True) == 1


def test_linear_layers():
    a, b = at(128, k0=2.0**12, k32=2.0**-13, k64=-(2.0**12))
    assert linear.linear(a, b, "ampere", "single") == 0
    assert linear.linear(a, b, "ampere", "sliced") == 2.0**-13, "two warps: k = 32 is the other's"
    a, b = at(128, k0=1, k64=2.0**-8, k65=2.0**-24)
    assert linear.linear(a, b, "hopper", "serial", 2) == 1, "on a tie after binary32's rounding"
    assert linear.linear(a, b, "hopper", "workspace", 2) == np.float32(1 + 2.0**-8)


def test_codes_by_search():
    assert round_code(Fraction(0), "fp16", True) == 0x8000 and round_code(Fraction(0), "e4m3", False) == 0
    for name, dtype in (("fp16", np.float16), ("fp32", np.float32)):
        rng = np.random.default_rng(3)
        values = rng.standard_normal(500) * np.exp2(rng.integers(-30, 18, 500))
        with np.errstate(over="ignore"):
            wanted = values.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")
        found = [round_code(Fraction(float(value)), name, False) for value in values]
        assert found == wanted.tolist()


def test_epilogue():
    third = np.float32(1 / 3)
    assert epilogue(ONE, ONE, ONE, "fp32") == 0x3F800000 and epilogue(ONE, ONE, ONE, "e4m3") == 0x38
    assert epilogue(np.float32(0), -ONE, ONE, "fp32") == 0 and epilogue(np.float32(-0.0), ONE, ONE, "bf16") == 0
    tiny = np.float32(2.0**-140)
    assert epilogue(-tiny, np.float32(2.0**-20), ONE, "fp32") == 0x80000000, "underflow keeps its sign"
    assert epilogue(tiny, np.float32(2.0**-100), -np.float32(2.0**-100), "fp32") == 0, "a scale of zero does not"
    alpha = np.float32(third * third)
    assert epilogue(third, third, third, "fp32") == int(np.float32(third * alpha).view(np.uint32))
    assert (
        epilogue(np.float32(1e6), ONE, ONE, "e4m3") == 0x7E and epilogue(np.float32(-np.inf), ONE, ONE, "e5m2") == 0xFB
    )
    assert epilogue(np.float32(np.inf), ONE, ONE, "fp16") == 0x7C00 and epilogue(-ONE, ONE, ONE, "bf16") == 0xBF80
    nan = np.float32(np.nan)
    codes = {"fp32": 0x7FFFFFFF, "bf16": 0x7FFF, "fp16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}
    assert {out: epilogue(nan, ONE, ONE, out) for out in codes} == codes
    assert (
        epilogue(ONE, ONE, ONE, "e4m3", np.float32(2)) == 0x40
        and epilogue(ONE, ONE, ONE, "bf16", np.float32(2)) == 0x3F80
    )
    tie = np.float32(1 + 2.0**-8)
    assert epilogue(tie, ONE, np.float32(1 + 2.0**-23), "bf16") == 0x3F81, "above the tie"
    assert epilogue(np.float32(1 + 2.0**-8), ONE, ONE, "bf16") == 0x3F80
