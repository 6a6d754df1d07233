"""P3109 formats against the standard's formula (IEEE P3109 v4.0), the range tables and gfloat.

The formula, for the non-negative codes c below the special ones:
    T = c mod 2^(P-1), E = c div 2^(P-1), B = 2^(K-P-1) signed, 2^(K-P) unsigned
    value = T * 2^(1-P) * 2^(1-B) if E = 0, else (1 + T * 2^(1-P)) * 2^(E-B)
signed: NaN = 2^(K-1), extended: +inf = 2^(K-1)-1, -inf = 2^K-1; unsigned: NaN = 2^K-1, extended +inf = 2^K-2.
"""

from __future__ import annotations

import math
from fractions import Fraction

import gfloat
import gfloat.formats as gf
import pytest

from gemmsim.formats import FloatFormat, FormatError, Specials, binary_format, parse

ALL = [
    (k, p, signed, extended)
    for k in range(3, 17)
    for signed in (True, False)
    for p in range(1, k + (0 if signed else 1))
    for extended in (True, False)
]
UP_TO_8_BITS = [case for case in ALL if case[0] <= 8]
WIDER = [case for case in ALL if case[0] > 8]


def build(k, p, signed, extended):
    return binary_format(k, p, signed=signed, extended=extended)


def standard_decode(k, p, signed, extended, code):
    """The standard's Decode: a Fraction, "nan", "inf" or "-inf"."""
    if code == (1 << (k - 1) if signed else (1 << k) - 1):
        return "nan"
    if extended and code == ((1 << (k - 1)) - 1 if signed else (1 << k) - 2):
        return "inf"
    if signed and code > 1 << (k - 1):
        positive = standard_decode(k, p, signed, extended, code - (1 << (k - 1)))
        return "-inf" if positive == "inf" else -positive
    bias = 2 ** (k - p - 1) if signed else 2 ** (k - p)
    t, e = code % 2 ** (p - 1), code // 2 ** (p - 1)
    if e == 0:
        return t * Fraction(2) ** (1 - p) * Fraction(2) ** (1 - bias)
    return (1 + t * Fraction(2) ** (1 - p)) * Fraction(2) ** (e - bias)


def agrees(fmt, code, expected):
    exact = fmt.decode_exact(code)
    if exact is not None:
        return exact == expected and fmt.encode(exact) == code
    value = fmt.decode(code)
    return fmt.encode(value) == code and (math.isnan(value) if expected == "nan" else value == float(expected))


@pytest.mark.parametrize("case", UP_TO_8_BITS, ids=str)
def test_every_code_is_the_standards(case):
    fmt = build(*case)
    assert fmt.codes() == list(range(1 << case[0]))
    for code in fmt.codes():
        assert agrees(fmt, code, standard_decode(*case, code)), code


@pytest.mark.parametrize("case", WIDER, ids=str)
def test_codes_of_wider_formats_are_the_standards(case):
    """A stride through the codes, and both ends of each half."""
    fmt, k = build(*case), case[0]
    half = 1 << (k - 1)
    ends = [base + offset for base in (0, half, 1 << k) for offset in range(-4, 5)]
    for code in [*range(0, 1 << k, (1 << k) // 61), *(code for code in ends if 0 <= code < 1 << k)]:
        assert agrees(fmt, code, standard_decode(*case, code)), code


@pytest.mark.parametrize("case", ALL, ids=str)
def test_structure(case):
    k, p, signed, extended = case
    fmt = build(*case)
    assert (fmt.bits, fmt.p, fmt.signed, fmt.has_inf, fmt.has_nan) == (k, p, signed, extended, True)
    assert not fmt.has_negative_zero and fmt.has_zero and fmt.ties_by_code
    assert fmt.bias == (2 ** (k - p - 1) if signed else 2 ** (k - p))
    assert fmt.emin == 1 - fmt.bias
    # 1.0 is the middle of the non-negative codes.
    assert fmt.encode(1) == 1 << (k - 2 if signed else k - 1)
    assert fmt.decode_exact(fmt.max_code) == fmt.max_fraction
    assert Fraction(2) ** fmt.emax <= fmt.max_fraction < Fraction(2) ** (fmt.emax + 1)
    name = f"binary{k}p{p}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    assert str(fmt) == name and parse(name) == fmt


@pytest.mark.parametrize("case", UP_TO_8_BITS, ids=str)
def test_decoding_is_that_of_gfloat(case):
    """gfloat 0.5 has the bias of v4.0 (2^(K-P-1) signed, 2^(K-P) unsigned), except signed P=K which v4.0 excludes."""
    k, p, signed, extended = case
    info = gf.format_info_p3109(
        k,
        p,
        gfloat.types.Signedness.Signed if signed else gfloat.types.Signedness.Unsigned,
        gfloat.types.Domain.Extended if extended else gfloat.types.Domain.Finite,
    )
    fmt = build(*case)
    for code in range(1 << k):
        ours, theirs = fmt.decode(code), gfloat.decode_float(info, code).fval
        assert ours == theirs or (math.isnan(ours) and math.isnan(theirs)), code


# (P, B, max extended, max finite, smallest normal, smallest subnormal)
SIGNED_8 = [
    (1, 64, 2.0**62, 2.0**63, 2.0**-63, None),
    (2, 32, 2.0**31, 1.5 * 2**31, 2.0**-31, 2.0**-32),
    (3, 16, 49152, 57344, 2.0**-15, 2.0**-17),
    (4, 8, 224, 240, 2.0**-7, 2.0**-10),
    (5, 4, 15, 15.5, 2.0**-3, 2.0**-7),
    (6, 2, 3.875, 3.9375, 0.5, 2.0**-6),
    (7, 1, 1.96875, 1.984375, 1, 2.0**-6),
]
UNSIGNED_8 = [
    (1, 128, 2.0**125, 2.0**126, 2.0**-127, None),
    (2, 64, 1.5 * 2**62, 2.0**63, 2.0**-63, 2.0**-64),
    (3, 32, 1.25 * 2**31, 1.5 * 2**31, 2.0**-31, 2.0**-33),
    (4, 16, 53248, 57344, 2.0**-15, 2.0**-18),
    (5, 8, 232, 240, 2.0**-7, 2.0**-11),
    (6, 4, 15.25, 15.5, 2.0**-3, 2.0**-8),
    (7, 2, 3.90625, 3.9375, 0.5, 2.0**-7),
    (8, 1, 1.9765625, 1.984375, 1, 2.0**-7),
]


@pytest.mark.parametrize("row, signed", [(r, True) for r in SIGNED_8] + [(r, False) for r in UNSIGNED_8])
def test_ranges_of_the_8_bit_formats(row, signed):
    p, bias, max_extended, max_finite, normal, subnormal = row
    for extended, largest in ((True, max_extended), (False, max_finite)):
        fmt = binary_format(8, p, signed=signed, extended=extended)
        assert (fmt.bias, fmt.max, fmt.smallest_normal) == (bias, largest, normal)
        assert fmt.min == (-largest if signed else 0.0)
        assert fmt.has_subnormals is (subnormal is not None)
        if subnormal is not None:
            assert fmt.smallest_subnormal == subnormal


def test_formats_wider_than_float64_say_so():
    fmt = binary_format(16, 1)
    assert not fmt.fits_float64
    assert fmt.max_fraction == Fraction(2) ** 16382
    assert fmt.decode(fmt.encode(2.0**100)) == 2.0**100
    for compute in (lambda: fmt.max, lambda: fmt.min, lambda: fmt.decode(1), fmt.values):
        with pytest.raises(FormatError, match=r"outside the range of float64(.|\n)*decode_exact"):
            compute()
    assert binary_format(16, 5).fits_float64 and not binary_format(16, 4).fits_float64


def test_suffixes_have_defaults():
    assert (
        parse("binary8p3") == parse("binary8p3s") == parse("binary8p3e") == parse("Binary8p3se") == binary_format(8, 3)
    )
    assert parse("binary8p3f") == binary_format(8, 3, extended=False)
    assert parse("binary8p3u") == binary_format(8, 3, signed=False)


def test_a_bias_shifts_every_value():
    fmt, shifted = binary_format(6, 3), binary_format(6, 3, bias=7)
    assert [x * 2.0 ** (fmt.bias - 7) for x in fmt.values()] == shifted.values()
    assert parse(str(shifted)) == shifted


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((2, 1), "k=2; allowed: an integer from 3 to 16"),
        ((17, 3), "k=17; allowed: an integer from 3 to 16"),
        ((8, 8), "p=8; allowed: an integer from 1 to 7"),
        ((8, 0), "p=0; allowed: an integer from 1 to 7"),
        ((8, 9, False), "p=9; allowed: an integer from 1 to 8"),
    ],
)
def test_impossible_formats(arguments, message):
    k, p, *rest = arguments
    with pytest.raises(FormatError, match=message):
        binary_format(k, p, signed=not rest)


def test_emax_must_be_that_of_a_whole_code_space():
    with pytest.raises(FormatError, match=r"emax=14 .*allowed: emax in \[.*15.*\](.|\n)*binary_format"):
        FloatFormat(3, -15, 14, Specials.P3109_EXTENDED)
