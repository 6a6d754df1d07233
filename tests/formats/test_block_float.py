"""Block floating point as values: names, fields, JSON, refusals."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import gemmsim.formats as formats
from gemmsim.formats import BlockFloatFormat, FormatError, Rounding, Sharing, parse, parse_cast, parse_rounding

FORMATS = [
    BlockFloatFormat(8, 16),
    BlockFloatFormat(1, 1, dim=2, symmetric=False),
    BlockFloatFormat(32, 64, keep_infinity=True, rounding=parse_rounding("src5")),
    BlockFloatFormat(4, sharing=Sharing.TENSOR, rounding=Rounding.RTZ),
    BlockFloatFormat(4, sharing=Sharing.INDEX, dim=-2, symmetric=False, keep_infinity=True),
]
NAMES = [
    "bfp(8,16)",
    "bfp(1,1,dim=2,asymmetric)",
    "bfp(32,64,inf)/src5",
    "bfp(4,tensor)/rtz",
    "bfp(4,index=-2,asymmetric,inf)",
]


@pytest.mark.parametrize("fmt, name", list(zip(FORMATS, NAMES, strict=True)), ids=NAMES)
def test_text_round_trips(fmt, name):
    assert str(fmt) == name
    copies = (
        parse(name.upper()),
        eval(repr(fmt), dict(vars(formats))),
        BlockFloatFormat.from_json(json.loads(json.dumps(fmt.to_json()))),
        BlockFloatFormat.from_json(name),
        pickle.loads(pickle.dumps(fmt)),
        copy.deepcopy(fmt),
    )
    for other in copies:
        assert other == fmt and hash(other) == hash(fmt)
    assert fmt.describe().startswith(name)


def test_numbers():
    assert (FORMATS[0].max_code, FORMATS[0].min_code, FORMATS[0].bits_per_value) == (127, -127, 8.5)
    assert (FORMATS[1].max_code, FORMATS[1].min_code) == (0, -1)
    assert FORMATS[2].is_stochastic and not FORMATS[3].is_stochastic


@pytest.mark.parametrize(
    "text",
    [
        "bfp",
        "bfp(8)",
        "bfp()",
        "bfp(0,16)",
        "bfp(33,16)",
        "bfp(8,0)",
        "bfp(8,tensor,dim=1)",
        "bfp(8,16,tensor)",
        "bfp(8,16,index=1)",
        "bfp(8,16,channel=1)",
        "bfp(8,16)/sat",
        "bfp(8,16)/rne/rtz",
        "bfp(8,16)/ftz",
    ],
)
def test_impossible_names_are_refused(text):
    with pytest.raises(FormatError):
        parse(text)


def test_it_is_no_format_of_single_numbers():
    with pytest.raises(FormatError, match="share an exponent"):
        parse_cast("bfp(8,16)")
