"""Block formats as text and as values."""

from __future__ import annotations

import pytest

from gemmsim import formats
from gemmsim.formats import (
    BLOCK_NAMES,
    E2M1,
    E4M3,
    BlockFormat,
    BlockMode,
    FormatError,
    Rounding,
    ScaleRule,
    parse,
    parse_block,
)

TEXTS = [
    *BLOCK_NAMES, "mxfp8_e4m3/b16/rceil/rtz", "mxfp4/torchao-0.18/ceil", "mxint8/torchmx", "mxfp6_e3m2/microxcaling/flush/rna",
    "nvfp4/tensor", "nvfp4/b32", "mx(e3m4)", "mx(e2m1,e5m2)/b8", "mx(fixed(5,3,symmetric))/even",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_names_repr_and_json_lead_back(text):
    fmt = parse(text)
    assert isinstance(fmt, BlockFormat)
    assert parse(str(fmt)) == parse_block(str(fmt)) == fmt == parse(fmt)
    assert eval(repr(fmt), vars(formats)) == fmt
    assert BlockFormat.from_json(fmt.to_json()) == fmt
    assert hash(parse(str(fmt))) == hash(fmt)
    assert fmt.describe().startswith(f"{fmt}: blocks of {fmt.block_size} ")


def test_what_the_short_names_are():
    assert parse("mxfp8_e4m3") == BlockFormat(E4M3) == parse(" MXFP8 ")
    assert parse("nvfp4") == BlockFormat(E2M1, 16, E4M3, ScaleRule.NEAREST)
    assert str(parse("mxfp8_e4m3/floor/rne/b32/torchao")) == "mxfp8_e4m3"
    fmt = parse("mxfp6_e2m3/b64/even/rtz")
    assert (fmt.block_size, fmt.rule, fmt.rounding) == (64, ScaleRule.EVEN, Rounding.RTZ)
    assert [(parse(name).emax, parse(name).element.max) for name in ("mxfp8_e4m3", "mxfp4", "mxint8", "mxint2")] == [
        (8, 448.0), (2, 6.0), (0, 127 / 64), (0, 1.0),
    ]  # fmt: skip
    assert parse("mxfp4").bits_per_value == 4.25


@pytest.mark.parametrize(
    "text, words",
    [
        ("mxfp8_e4m4", "Did you mean 'mxfp8_e4m3'"),
        ("mxfp4/rciel", "Did you mean 'rceil'"),
        ("mxfp4/b16/b32", "one block_size"),
        ("mxfp4/b0", "from 1 to"),
        ("mxfp4/sr8", "rne"),
        ("mxfp4/tensor", "other scale formats"),
        ("nvfp4/floor", "nearest for scales with significand bits"),
        ("nvfp4/torchmx", "e8m0 in this mode"),
        ("mxfp4/torchmx/ceil", "floor in this mode"),
        ("mxfp8_e5m2/torchmx", "torchmx"),
        ("mxfp4/flush", "microxcaling"),
        ("mx(e5m10)", "up to 8 bits"),
        ("mx(int8)", "mxint8"),
        ("mx(e4m3,e2m1)", "with NaN"),
        ("mx(nonsense)", "unknown format"),
    ],
)
def test_errors_name_the_way_out(text, words):
    with pytest.raises(FormatError, match=words):
        parse(text)


def test_places_for_single_numbers_refuse_blocks():
    for read in (formats.parse_cast, formats.parse_scalar, formats.format_from_json):
        with pytest.raises(FormatError, match="single numbers"):
            read("mxfp4")


def test_constructor_takes_names_of_rules_and_modes():
    assert BlockFormat(E4M3, rule="rceil", mode="torchao").mode is BlockMode.OCP
    with pytest.raises(FormatError, match="Did you mean 'torchmx'"):
        BlockFormat(E4M3, mode="torchmix")
