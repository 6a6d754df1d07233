"""Supernormal floats and the old binary8 rules: value sets from the sheet's formulas, codes, text, refusals."""

from __future__ import annotations

import copy
import json
import math
import pickle
from fractions import Fraction

import pytest

import gemmsim.formats as formats
from gemmsim.formats import (
    Binary8Format,
    Binary8Policy,
    FormatError,
    PowerTie,
    SupernormalFormat,
    format_from_json,
    parse,
    parse_cast,
    parse_scalar,
)

SUPERNORMAL = [
    SupernormalFormat(e, t, low, up, saturate, tie)
    for e, t, low, up in (
        (4, 3, 1, 1),
        (3, 2, 2, 1),
        (1, 2, 1, 1),
        (2, 1, 1, 1),
        (5, 2, 2, 1),
        (5, 5, 1, 2),
        (8, 4, 1, 1),
    )
    for saturate, tie in ((False, PowerTie.AWAY), (True, PowerTie.EVEN_EXPONENT))
]
BINARY8 = [
    Binary8Format(p, signed, subnormals, policy)
    for signed in (True, False)
    for p in range(1, 8 if signed else 9)
    for subnormals in (True, False)
    for policy in Binary8Policy
]


@pytest.mark.parametrize("fmt", SUPERNORMAL, ids=str)
def test_supernormal_values_are_the_formulas(fmt):
    e, t = fmt.exponent_bits, fmt.trailing_bits
    emin = 1 - 2 ** (e - 1) + (fmt.lower - 1)
    emax = 2 ** (e - 1) - 2 - (fmt.upper - 1)
    two = Fraction(2)
    want = {Fraction(0)}
    want |= {(1 + k * two**-t) * two**x for x in range(emin, emax + 1) for k in range(2**t)}
    want |= {two**x for x in range(emin - fmt.lower * 2**t + 1, emin)}
    want |= {two**x for x in range(emax + 1, emax + fmt.upper * 2**t + int(fmt.saturate))}
    want |= {-x for x in want}
    assert [Fraction(x) for x in fmt.values()] == sorted(want)
    assert len(fmt.codes()) == 2**fmt.bits
    assert fmt.max == max(fmt.values()) and fmt.smallest_subnormal == min(x for x in fmt.values() if x > 0)


def test_supernormal_of_the_sheet():
    fmt = parse("supernormal(4,3)")
    assert (fmt.max, fmt.smallest_subnormal, fmt.smallest_normal, fmt.has_inf) == (8192, 2**-14, 2**-7, True)
    assert fmt.is_representable(120.0) and not fmt.is_representable(136.0)


@pytest.mark.parametrize("fmt", BINARY8, ids=str)
def test_binary8_values_are_the_layout(fmt):
    p, two = fmt.p, Fraction(2)
    bias = 2 ** (7 - p) if fmt.signed else 2 ** (8 - p)
    if p == 1:
        bias = 63 if fmt.signed else 127
    last = 0x7F if fmt.signed else 0xFE
    if fmt.policy is not Binary8Policy.SATURATE_MAXFLOAT2:
        assert fmt.decode(last) == math.inf
        last -= 1
    want = {}
    for code in range(last + 1):
        t, e = code % 2 ** (p - 1), code // 2 ** (p - 1)
        if e == 0 and fmt.subnormals:
            want[code] = t * two ** (1 - p) * two ** (1 - bias)
        elif e == 0:
            want[code] = (1 + t * two ** (1 - p)) * two**-bias if t else Fraction(0)
        else:
            want[code] = (1 + t * two ** (1 - p)) * two ** (e - bias)
    assert {code: fmt.decode_exact(code) for code in want} == want
    assert math.isnan(fmt.decode(0x80 if fmt.signed else 0xFF))
    assert fmt.max_fraction == want[last] and len(fmt.codes()) == 256


@pytest.mark.parametrize("p", range(2, 9))
@pytest.mark.parametrize("sign", "su")
def test_binary8_has_the_values_of_p3109_from_two_bits_on(p, sign):
    if p == 8 and sign == "s":
        pytest.skip("no such format")
    for policy, domain in ((Binary8Policy.SATURATE_INFTY, "e"), (Binary8Policy.SATURATE_MAXFLOAT2, "f")):
        old, new = Binary8Format(p, sign == "s", policy=policy), parse_scalar(f"binary8p{p}{sign}{domain}")
        assert [repr(old.decode(code)) for code in old.codes()] == [repr(new.decode(code)) for code in new.codes()]


@pytest.mark.parametrize("fmt", SUPERNORMAL + BINARY8, ids=str)
def test_codes_and_text_round_trip(fmt):
    for code in fmt.codes():
        value = fmt.decode(code)
        assert fmt.encode(value) == code, (code, value)
    copies = (
        parse(str(fmt)),
        eval(repr(fmt), dict(vars(formats))),
        format_from_json(json.loads(json.dumps(fmt.to_json()))),
        pickle.loads(pickle.dumps(fmt)),
        copy.deepcopy(fmt),
    )
    for other in copies:
        assert other == fmt and hash(other) == hash(fmt) and str(other) == str(fmt)
    cast = parse_cast(f"{fmt}/sr8")
    assert parse_cast(str(cast)) == cast and formats.Cast.from_json(cast.to_json()) == cast
    assert str(fmt) in fmt.describe() and repr(fmt.max).split(".")[0][:4] in fmt.describe()


def test_names_have_short_forms():
    assert parse("Supernormal(4, 3, 2)") == SupernormalFormat(4, 3, 2, 2)
    assert parse("binary8(4)/ftz") == Binary8Format(4, subnormals=False)
    assert parse("binary8(3)") != parse("binary8p3")


@pytest.mark.parametrize(
    "text",
    [
        "supernormal(4)",
        "supernormal(0,3)",
        "supernormal(4,3,9)",
        "supernormal(1,2,2,1)",
        "supernormal(8,10)",
        "supernormal(4,3,satur)",
        "supernormal(4,3)/ftz",
        "binary8()",
        "binary8(8)",
        "binary8(9,unsigned)",
        "binary8(3,saturate)",
        "binary8(3,saturate_infty,saturate_maxfloat)",
    ],
)
def test_impossible_names_are_refused(text):
    with pytest.raises(FormatError):
        parse(text)


def test_binary8_has_its_overflow_policy_itself():
    with pytest.raises(FormatError, match="policy that is part of the format"):
        parse_cast("binary8(3)/sat")
    with pytest.raises(FormatError, match="not one of its values"):
        parse("binary8(3)").encode(1.1)
    with pytest.raises(FormatError, match="not one of its values"):
        parse("supernormal(4,3)").encode(math.nan)
