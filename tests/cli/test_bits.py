"""``gemmsim bits``: one dot step by step."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gemmsim.cli.app import app


def bits(*args: str):
    return CliRunner().invoke(app, ["bits", *args])


WGMMA = ("--arch", "hopper", "--op", "wgmma")


def words(*args: str) -> str:
    result = bits(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_shows_exponents_shifts_cut_bits_and_the_register():
    text = words(*WGMMA, "--in", "e4m3", "--a", "-1,2^-6,2^-7", "--b", "1,2^-7,2^-7", "--c", "1")
    lines = [line.split() for line in text.splitlines()]
    assert "wgmma.m64n8k32.f32.e4m3.e4m3" in text and "silicon recorded" in text
    assert "E = 0:" in text and "below 2^-13" in text
    assert ["p0", "-1.0", "0", "0", "-8192", "-"] in lines
    assert ["p1", "2^-13", "-12", "12", "1", "-"] in lines
    assert ["p2", "2^-14", "-12", "12", "0", "2^-14"] in lines
    assert ["c", "1.0", "0", "0", "8192", "-"] in lines
    assert ["sum", "1", "*", "2^-13", "=", "2^-13"] in lines
    assert ["result", "0x39000000", "=", "0.0001220703125"] in lines


def test_a_zero_has_no_exponent():
    text = words(*WGMMA, "--in", "bf16", "--a", "0", "--b", "2^100", "--c", "2^-60")
    assert "E = -60" in text and "p0" not in text and "result      0x21800000 = 8.673617379884035e-19" in text
    text = words(*WGMMA, "--in", "bf16", "--a", "2^-76", "--b", "2^-76", "--c", "0")
    assert (
        "E = -133: the largest exponent" in text and "result      0x00000000" in text and "exact       2^-152" in text
    )


def test_every_step_is_shown():
    text = words("--arch", "ampere", "--op", "mma", "--in", "f16", "--a", "1,2", "--b", "3,-0x1p-3")
    assert "step 1 of 2" in text and "step 2 of 2" in text and "2.75" in text


def test_scales_and_codes():
    name = "tcgen05mma_block_scale.m128n8k64.block16.f32.e2m1.e2m1.ue4m3"
    common = ("--arch", "blackwell", "--instruction", name)
    text = words(*common, "--a", "1,2", "--b", "1,6", "--c", "1", "--scale-a", "2", "--scale-b", "1")
    assert "g0" in text and "result      0x41d80000 = 27.0" in text
    assert "27.0" in words(*common, "--codes", "--a", "2,4", "--b", "2,7", "--c", "3f800000", "--scale-a", "40")


def test_specials_and_models_without_a_common_exponent_show_the_register():
    assert "0x7fffffff = nan" in words(*WGMMA, "--in", "f16", "--a", "nan", "--b", "1")
    assert "0x40e00000 = 7.0" in words(
        "--arch", "cdna3", "--op", "mfma", "--in", "f16", "--a", "2", "--b", "3", "--c", "1"
    )


@pytest.mark.parametrize("args, text", [
    ((*WGMMA, "--in", "e2m1", "--a", "1", "--b", "1"), "e4m3, e5m2"),
    ((*WGMMA, "--in", "e4m3", "--a", "1.03", "--b", "1"), "neighbours"),
    ((*WGMMA, "--in", "e4m3", "--a", "one", "--b", "1"), "not a number"),
    ((*WGMMA, "--in", "e4m3", "--a", "1,2", "--b", "1"), "equally many"),
    ((*WGMMA, "--in", "e4m3", "--a", "1", "--b", "1", "--c", "1,2"), "allowed: one"),
    ((*WGMMA, "--in", "e4m3", "--a", "1", "--b", "1", "--scale-a", "1"), "no scales"),
    ((*WGMMA, "--in", "e4m3", "--codes", "--a", "100", "--b", "1"), "8 bits"),
    ((*WGMMA, "--in", "e4m3", "--codes", "--a", "xy", "--b", "1"), "hexadecimal"),
    ((*WGMMA, "--a", "1", "--b", "1"), "--op and --in"),
    (("--arch", "hopper", "--op", "wgma", "--in", "e4m3", "--a", "1", "--b", "1"), "'wgmma'"),
    (("--arch", "hoper", "--op", "wgmma", "--in", "e4m3", "--a", "1", "--b", "1"), "'hopper'"),
])  # fmt: skip
def test_a_mistake_is_one_message_and_exit_code_2(args, text):
    result = bits(*args)
    assert result.exit_code == 2 and text in result.stderr and "Traceback" not in result.output
