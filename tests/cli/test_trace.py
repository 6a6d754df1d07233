"""``gemmsim trace`` and ``gemmsim compare``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gemmsim.cli.app import app


def run(*args: str):
    return CliRunner().invoke(app, list(args))


def test_a_sum_is_shown_step_by_step():
    result = run("trace", "e4m3 : chunked(2, e5m10)", "--a", "1,2^-3,3,0x1p2", "--b", "0.3,1,1,1")
    assert result.exit_code == 0, result.output
    assert "a = 1.0, b = 0.3125, from 1.0 and 0.3" in result.stdout
    assert "0.4375 + 7.0 = 7.4375" in result.stdout and "k = 2 .. 3:" in result.stdout
    data = json.loads(run("trace", ":bf16", "--a", "1,inf", "--b", "1,1", "--json").stdout)
    assert data["value"] == "inf" and data["spec"] == ":e8m7"


def test_two_specs_are_compared():
    result = run("compare", ":fp16", ":bf16", "--shape", "4", "16", "5", "--seed", "3")
    assert (
        result.exit_code == 0
        and "of 20 elements equal" in result.stdout
        and "the sums first differ at step" in result.stdout
    )
    data = json.loads(run("compare", "fp32", "hw(h100, wgmma, e4m3)", "--unit", "e8m13", "--json").stdout)
    assert data["elements"] == 32 * 32 and data["unit"] == "e8m13"


def test_chips_stand_for_architectures():
    args = ("--op", "wgmma", "--in", "e4m3", "--a", "1", "--b", "1")
    assert run("bits", "--arch", "h100", *args).stdout == run("bits", "--arch", "hopper", *args).stdout != ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("trace", "kahn", "--a", "1", "--b", "1"), "kahan(fmt)"),
        (("trace", ":fp32", "--a", "1,2", "--b", "1"), "2 numbers in --a, 1 in --b"),
        (("trace", ":fp32", "--a", "", "--b", ""), "numbers separated by commas"),
        (("compare", ":fp32", ":bf16", "--shape", "0", "1", "1"), "--shape 0 1 1"),
        (("compare", ":fp32", ":bf17"), "bf16"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(args, words):
    result = run(*args)
    assert result.exit_code == 2 and words in result.stderr and "Traceback" not in result.stderr
