"""Codes and values agree with each other and with two independent libraries, for every code of every small format."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import gfloat
import gfloat.formats as gf
import ml_dtypes
import numpy as np
import pytest

from gemmsim.formats import NAMED, FixedFormat, FloatFormat, FormatError, Specials, parse

NAMED_UP_TO_16_BITS = sorted({entry.format for entry in NAMED if entry.format.bits <= 16}, key=str)
#: Formats whose layout no name describes, and layouts with unused codes.
ODD = [
    FloatFormat(4, -6, 7, Specials.NAN_ONLY),
    FloatFormat(1, -3, 4, Specials.NAN_ONLY),
    FloatFormat(2, -3, 4, Specials.NAN_ONLY),
    FloatFormat(3, 0, 2, signed=False),
    FloatFormat(5, -9, 6),
    FloatFormat(4, 2, 2),
    FloatFormat(3, -7, -3, Specials.NONE),
    FloatFormat(6, -20, 11, Specials.FNUZ),
    FloatFormat(1, -5, 5, Specials.SCALE, signed=False),
    *map(
        parse, "e1m1 e1m6 e2m0 e5m0 e3m3b-4 e2m1b7 e4m3b3 e5m4/ftz e4m3/ftz binary8p3/ftz ieee_e2m1 ieee_e8m0".split()
    ),
    *map(
        parse,
        "fixed(8,4) fixed(8,4,symmetric) fixed(1,0) fixed(1,0,symmetric) fixed(5,9) fixed(5,-3) ufixed(7,2)".split(),
    ),
]

ML_DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ieee_e4m3": ml_dtypes.float8_e4m3,
    "e3m4": ml_dtypes.float8_e3m4,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m7": ml_dtypes.bfloat16,
    "e5m10": np.float16,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
}

GFLOAT = {
    "e4m3": gf.format_info_ocp_e4m3,
    "e5m2": gf.format_info_ocp_e5m2,
    "e3m2": gf.format_info_ocp_e3m2,
    "e2m3": gf.format_info_ocp_e2m3,
    "e2m1": gf.format_info_ocp_e2m1,
    "e8m0": gf.format_info_ocp_e8m0,
    "e5m10": gf.format_info_binary16,
    "e8m7": gf.format_info_bfloat16,
}


def same(x: float, y: float) -> bool:
    """Equal as numbers and in the sign of zero; NaN equals NaN."""
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return x == y and math.copysign(1.0, x) == math.copysign(1.0, y)


@pytest.mark.parametrize("fmt", NAMED_UP_TO_16_BITS + ODD, ids=str)
def test_every_code_decodes_and_encodes_back(fmt):
    codes = fmt.codes()
    assert codes == sorted(set(codes))
    nans = [code for code in codes if math.isnan(fmt.decode(code))]
    assert bool(nans) == fmt.has_nan
    for code in codes:
        value = fmt.decode(code)
        assert fmt.is_representable(value)
        if math.isnan(value):
            assert fmt.encode(value) in nans
        else:
            assert fmt.encode(value) == code
        exact = fmt.decode_exact(code)
        assert exact is None if not math.isfinite(value) else exact == Fraction(value)


@pytest.mark.parametrize("fmt", NAMED_UP_TO_16_BITS + ODD, ids=str)
def test_codes_that_are_not_listed_are_refused(fmt):
    unused = set(range(1 << fmt.bits)) - set(fmt.codes())
    for code in [*unused, -1, 1 << fmt.bits]:
        with pytest.raises(FormatError, match="code"):
            fmt.decode(code)
        with pytest.raises(FormatError, match="code"):
            fmt.decode_exact(code)


@pytest.mark.parametrize("fmt", NAMED_UP_TO_16_BITS + ODD, ids=str)
def test_values_ascend_and_are_the_finite_decoded_codes(fmt):
    values = fmt.values()
    assert all(x < y for x, y in zip(values, values[1:], strict=False))
    decoded = {fmt.decode(code) for code in fmt.codes()}
    assert set(values) == {x for x in decoded if math.isfinite(x)}
    assert values[-1] == fmt.max == fmt.max_fraction
    assert values[0] == fmt.min == fmt.min_fraction
    assert (0.0 in values) == fmt.has_zero
    assert (math.inf in decoded) == fmt.has_inf
    positive = [x for x in values if x > 0]
    if positive:
        assert positive[0] == fmt.smallest_subnormal


@pytest.mark.parametrize("fmt", [f for f in NAMED_UP_TO_16_BITS + ODD if f.bits <= 12], ids=str)
def test_what_lies_between_values_is_not_representable(fmt):
    values = [Fraction(value) for value in fmt.values()]
    for low, high in zip(values, values[1:], strict=False):
        midpoint = (low + high) / 2
        assert not fmt.is_representable(midpoint)
        assert not fmt.is_representable(low + (high - low) / 3)
    assert not fmt.is_representable(values[-1] * 2 + 1)
    assert not fmt.is_representable(values[0] * 2 - 1)


@pytest.mark.parametrize("name", ML_DTYPES)
def test_decoding_is_that_of_ml_dtypes_and_numpy(name):
    fmt, dtype = parse(name), np.dtype(ML_DTYPES[name])
    codes = np.arange(1 << fmt.bits, dtype=np.uint8 if dtype.itemsize == 1 else np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN codes
        expected = codes.view(dtype).astype(np.float64)
    assert fmt.codes() == codes.tolist()
    for code, value in zip(codes.tolist(), expected.tolist(), strict=True):
        assert same(fmt.decode(code), value), code


@pytest.mark.parametrize("name", [name for name in ML_DTYPES if "int" not in name])
def test_ranges_are_those_of_ml_dtypes_finfo(name):
    fmt, info = parse(name), ml_dtypes.finfo(ML_DTYPES[name])
    assert fmt.bits == info.bits
    assert fmt.max == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.eps == float(info.eps)
    if name != "e8m0":  # ml_dtypes gives -max and a smallest subnormal for this unsigned format without subnormals
        assert fmt.min == float(info.min)
        assert fmt.smallest_subnormal == float(info.smallest_subnormal)


@pytest.mark.parametrize("name", GFLOAT)
def test_decoding_is_that_of_gfloat(name):
    fmt, info = parse(name), GFLOAT[name]
    step = 1 if fmt.bits <= 8 else 37
    for code in range(0, 1 << fmt.bits, step):
        assert same(fmt.decode(code), gfloat.decode_float(info, code).fval), code


@pytest.mark.parametrize("name, layout", [("fp16", "<e"), ("fp32", "<f"), ("fp64", "<d")])
def test_ieee_formats_are_those_of_struct(name, layout):
    fmt, size = parse(name), struct.calcsize(layout)
    rng = np.random.default_rng(0)
    for code in [int.from_bytes(rng.bytes(size), "little") for _ in range(2000)] + [1, 1 << (8 * size - 1)]:
        (value,) = struct.unpack(layout, code.to_bytes(size, "little"))
        assert same(fmt.decode(code), value)
        if not math.isnan(value):
            assert fmt.encode(value) == code


def test_minus_zero_is_encoded_as_zero_where_there_is_none():
    assert parse("e5m2").encode(-0.0) == 0x80
    for name in ("e4m3fnuz", "binary8p3", "binary8p3u", "int8", "uint8", "ue4m3"):
        assert parse(name).encode(-0.0) == 0
    assert not parse("e8m0").is_representable(0.0)


@pytest.mark.parametrize(
    "name, code",
    [
        ("fp32", 0x7FC00000),
        ("fp16", 0x7E00),
        ("e4m3", 0x7F),
        ("e4m3fnuz", 0x80),
        ("e8m0", 0xFF),
        ("binary8p3", 0x80),
        ("binary8p3u", 0xFF),
    ],
)
def test_canonical_nan(name, code):
    assert parse(name).encode(math.nan) == code


def test_int_and_fraction_encode_like_float():
    fmt = parse("e5m2")
    assert fmt.encode(3) == fmt.encode(3.0) == fmt.encode(Fraction(3))
    assert not fmt.is_representable(Fraction(1, 3))
    assert FixedFormat(8, 4).encode(Fraction(-1, 16)) == 0xFF


def test_listing_a_wide_format_is_refused_and_says_what_to_do():
    for name in ("fp32", "int32"):
        for method in ("codes", "values"):
            with pytest.raises(FormatError, match=r"32-bit format; allowed: formats of up to 24 bits(.|\n)*decode"):
                getattr(parse(name), method)()
