"""gemmsim trace --codes: operands as raw codes, and each step's value as the code that a waveform shows."""

from __future__ import annotations

import json
import re

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app


def trace(*words):
    return CliRunner().invoke(app, ["trace", *words])


def coded(spec, a, b):
    result = trace(spec, "--a", a, "--b", b, "--codes", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_codes_are_those_of_the_operands_formats_and_of_the_register():
    found = coded("int8 * uint8 : int(12)", "7f,80,ff", "7f,ff,01")
    assert found["value"] == float(
        gs.qmatmul(torch.tensor([127.0, -128, -1]), torch.tensor([127.0, 255, 1]), ":int(12)")
    )
    adds = [
        (step["k"], step["value"], step["code"], step["code_format"])
        for step in found["steps"]
        if step["kind"] == "add"
    ]
    assert [k for k, *_ in adds] == [0, 1, 2]
    for _, value, code, fmt in adds:
        assert fmt == "fixed(12,0)" and len(code) == 3 and int(code, 16) == int(value) & 0xFFF
    assert all(step["code"] is None for step in found["steps"] if step["kind"] == "product")
    assert (found["steps"][-1]["code_format"], len(found["steps"][-1]["code"])) == ("e8m23", 8)


@pytest.mark.parametrize(
    ("spec", "a", "b", "last", "codes"),
    [
        ("e4m3 * e5m2 : e5m10 -> bf16", "38,b8", "3c,01", ("3f80", "e8m7"), ["3c00 of e5m10"]),
        (":chunked(1, int(8), fixed(16,0))", "3f800000", "c0400000", ("fffd", "fixed(16,0)"), ["fd of fixed(8,0)"]),
        (":int(4, signed=false)", "40e00000", "40000000", ("e", "ufixed(4,0)"), []),
        ("posit(8,1) : fp32", "40", "40", ("3f800000", "e8m23"), []),
    ],
)  # fmt: skip
def test_text_has_the_code_behind_each_value(spec, a, b, last, codes):
    text = trace(spec, "--a", a, "--b", b, "--codes").stdout
    plain = re.sub(r"  \[[0-9a-f]+ of [^\]]+\]", "", text)
    assert plain != text and all(f"[{code}]" in text for code in codes)
    assert f"[{last[0]} of {last[1]}]" in text
    assert plain.splitlines()[0] == text.splitlines()[0]


def test_numbers_of_the_same_codes_are_the_same_sum():
    coded_text = trace("e4m3 : chunked(2, e5m10)", "--a", "38,7e,b8", "--b", "38,38,01", "--codes").stdout
    given = trace("e4m3 : chunked(2, e5m10)", "--a", "1,448,-1", "--b", "1,1,2^-9").stdout
    assert re.sub(r"  \[[0-9a-f]+ of [^\]]+\]", "", coded_text) == given


@pytest.mark.parametrize(
    ("spec", "a", "message"),
    [
        ("e4m3 : fp32", "138", "--a: code '138' of e4m3; allowed: 8 bits"),
        ("e4m3 : fp32", "zz", "--a 'zz' is not a code; allowed: hexadecimal"),
        ("e4m3 : fp32", "-1", "--a: code '-1' of e4m3; allowed: 8 bits"),
        ("mxfp8 : fp32", "38", "--codes with operands in mxfp8_e4m3; allowed: formats that have a code"),
    ],
)
def test_what_is_no_code_is_refused(spec, a, message):
    result = trace(spec, f"--a={a}", "--b", "38", "--codes")
    assert result.exit_code == 2 and message in result.output
