"""Block floating point of single numbers, the format of registers: its names, facts and refusals."""

from __future__ import annotations

import copy
import json
import math
import pickle
from fractions import Fraction

import pytest

import gemmsim as gs
from gemmsim.arithmetic import SpecError
from gemmsim.formats import (
    BlockFloatFormat,
    Cast,
    FormatError,
    Overflow,
    OwnExponentFormat,
    Rounding,
    RoundingMode,
    Sharing,
    format_from_json,
    parse,
    parse_cast,
    parse_scalar,
)

FORMATS = [OwnExponentFormat(b, s, i) for b in (1, 2, 4, 8, 25, 32) for s in (True, False) for i in (False, True)]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_text_json_and_copies(fmt):
    text = str(fmt)
    assert parse_scalar(text) == fmt and parse_scalar(f" {text.upper()} ") == fmt and parse_scalar(fmt) is fmt
    assert parse(text) == fmt.as_blocks() and parse_scalar(fmt.as_blocks()) == fmt
    assert format_from_json(json.loads(json.dumps(fmt.to_json()))) == fmt
    assert pickle.loads(pickle.dumps(fmt)) == fmt == copy.deepcopy(fmt) and eval(repr(fmt)) == fmt
    assert text in fmt.describe() and str(fmt.max_code) in fmt.describe()
    for rounding in ("", "/rtz", "/sr8", "/srb5"):
        cast = parse_cast(text + rounding)
        assert str(cast) == text + rounding and cast == parse_cast(fmt.as_blocks(cast.rounding))
        assert cast.format == fmt and pickle.loads(pickle.dumps(cast)) == cast
        assert Cast.from_json(json.loads(json.dumps(cast.to_json()))) == cast
        assert cast.describe().endswith(cast.rounding.describe())


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_values_are_integers_times_their_step(fmt):
    top = (1 << (fmt.bits - 1)) - 1
    bottom = -top - (not fmt.symmetric)
    for exponent in (-149, -148, -140, -1, 0, 17, 126, 127):
        step = Fraction(2) ** max(exponent + 2 - fmt.bits, -149)
        for code in {0, 1, 2, top // 2, top - 1, top, -1, -top, bottom, top + 1, bottom - 1}:
            value = code * step
            if code == 0 or not Fraction(2) ** exponent <= abs(value) <= Fraction(2) ** (exponent + 1):
                continue
            # the exponent of the value itself, or of smaller ones that the lowest integer stands for
            own = Fraction(2) ** exponent <= abs(value) < Fraction(2) ** (exponent + 1) and bottom <= code <= top
            lowest = code == bottom < -top
            if own or lowest:
                assert fmt.is_representable(value), value
            elif abs(value) < Fraction(2) ** (exponent + 1):
                assert not fmt.is_representable(value), value
    assert fmt.max_fraction == top * Fraction(2) ** (129 - fmt.bits) and fmt.max == float(fmt.max_fraction)
    assert fmt.min_fraction == bottom * Fraction(2) ** (129 - fmt.bits)
    assert fmt.is_representable(0) and fmt.is_representable(math.nan) and not fmt.is_representable(-0.0)
    assert fmt.is_representable(math.inf) is fmt.is_representable(-math.inf) is fmt.keep_infinity is fmt.has_inf
    assert not fmt.is_representable(Fraction(1, 3)) and not fmt.is_representable(2.0**128)
    assert fmt.is_representable(-(2.0**128)) is not fmt.symmetric
    assert not fmt.is_representable(2.0**-150) and fmt.is_representable(2.0**-149) is (fmt.bits > 1)


def test_there_are_no_codes():
    fmt = OwnExponentFormat(8)
    for call in (
        fmt.codes,
        fmt.values,
        lambda: fmt.decode(0),
        lambda: fmt.encode(1.0),
        lambda: gs.mx.format_table("bfp(8,1)"),
    ):
        with pytest.raises(FormatError, match="code"):
            call()


def test_the_dimension_of_a_single_number_means_nothing():
    assert parse_scalar("bfp(8,1,dim=0)") == OwnExponentFormat(8)
    assert str(parse_cast(BlockFloatFormat(6, 1, dim=2, rounding=Rounding.RTZ))) == "bfp(6,1)/rtz"


SHARED = [
    BlockFloatFormat(8, 16),
    BlockFloatFormat(8, sharing=Sharing.TENSOR),
    BlockFloatFormat(8, dim=0, sharing=Sharing.INDEX),
]


@pytest.mark.parametrize("fmt", SHARED, ids=str)
@pytest.mark.parametrize("place", [":{}", ":mul={}, add=fp32", ":chunked(4, {}, fp32)", ":kahan({})", ": fp32 -> {}"])
def test_registers_share_no_exponent(fmt, place):
    with pytest.raises(FormatError, match=r"(?s)share an exponent.*depend on its neighbours.*'bfp\(8,1\)'"):
        gs.GemmSpec.parse(place.format(fmt))
    for read in (parse_cast, parse_scalar, gs.acc.sequential):
        with pytest.raises(FormatError, match="neighbours"):
            read(fmt)


@pytest.mark.parametrize(
    "text", ["bfp(8,1)/sat", "bfp(8,1)/ftz", "bfp(8,1)/rne/rtz", "bfp(33,1)", "bfp(8,1,none)", "bfp(8)"]
)
def test_impossible_casts(text):
    with pytest.raises(FormatError):
        parse_cast(text)
    with pytest.raises(SpecError):
        gs.GemmSpec.parse(f":{text}")


def test_a_format_has_no_rounding_and_its_own_overflow():
    for text in ("bfp(8,1)/sr8", BlockFloatFormat(8, 1, rounding=Rounding.RU)):
        with pytest.raises(FormatError, match="parse_cast"):
            parse_scalar(text)
    with pytest.raises(FormatError, match="part of the format"):
        Cast(OwnExponentFormat(8), Rounding.RNE, Overflow.SATURATE)
    with pytest.raises(FormatError, match="an integer from 1 to 32"):
        OwnExponentFormat(0)


def test_specs_take_blocks_of_one_as_objects_and_text():
    stochastic = BlockFloatFormat(8, 1, rounding=Rounding(RoundingMode.SR, 8))
    spec = gs.GemmSpec.parse(": mul=bfp(8,1)/sr8, add=bfp(4,1,asymmetric) -> bfp(6,1,inf)")
    built = gs.acc.sequential(BlockFloatFormat(4, 1, symmetric=False), stochastic)
    assert gs.GemmSpec(accumulator=built, out=OwnExponentFormat(6, True, True)) == spec
    assert (
        gs.GemmSpec.parse(spec.key) == spec == gs.GemmSpec.from_json(spec.to_json()) == pickle.loads(pickle.dumps(spec))
    )
    assert "no carry" in spec.explain() and spec.is_stochastic
    assert (
        gs.GemmSpec(accumulator=BlockFloatFormat(8, 1))
        == gs.GemmSpec.of(OwnExponentFormat(8))
        == gs.GemmSpec.of(":bfp(8,1)")
    )


def test_tensors_keep_the_block_format():
    cast = parse_cast("bfp(8,1)/rtz")
    spec = gs.GemmSpec(a=cast, b=OwnExponentFormat(4))
    assert spec.a == BlockFloatFormat(8, 1, rounding=Rounding.RTZ) and spec.b == BlockFloatFormat(4, 1)
    assert gs.GemmSpec.parse(spec.key) == spec
