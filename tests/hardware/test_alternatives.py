"""Operand formats and ops that a chip does not have: which chip refuses, what it takes, and what has the other."""

from __future__ import annotations

import pytest

import gemmsim as gs
from gemmsim import hardware
from gemmsim.hardware import HardwareError, largest, twin_of


@pytest.mark.parametrize(
    ("arch", "op", "format", "asked", "hint"),
    [
        (
            "mi300x",
            "mfma",
            "e4m3",
            "cdna3 mfma does not take operand format e4m3",
            "e4m3fnuz, whose largest value is 240,",
        ),
        ("mi300x", "mfma", "e5m2", "cdna3 mfma does not take", "e5m2fnuz, whose largest value is 57344,"),
        ("h100", "wgmma", "e4m3fnuz", "hopper wgmma does not take", "e4m3, whose largest value is 448,"),
        ("h100", "wgmma", "fp64", "hopper wgmma does not take", "Of hopper's ops mma takes it."),
        ("b200", "mma", "e3m2", "blackwell mma does not take", "Of blackwell's ops tcgen05, f8f6f4, mxf8f6f4 take it."),
        ("a100", "mma", "e4m3", "ampere mma does not take", "take it: ada, hopper, blackwell, rtx_blackwell."),
        ("v100", "mma", "fp32", "volta mma does not take", "take it: cdna1, cdna2, cdna3."),
        ("h100", "mma", "e4m0", "hopper mma does not take operand format e4m0", "\n  Choose one of these."),
    ],
)
def test_an_operand_format_that_an_op_does_not_take(arch, op, format, asked, hint):
    with pytest.raises(HardwareError) as caught:
        largest(arch, op, format)
    text = str(caught.value)
    assert text.startswith(asked) and hint in text and "; allowed: " in text
    with pytest.raises(gs.SpecError, match=f"hw: {asked}"):
        gs.GemmSpec.parse(f"hw({arch}, {op}, {format})")
    with pytest.raises(HardwareError, match=asked):  # also as a format, and as the second operand
        largest(arch, op, hardware.instructions(arch)[0].a, gs.formats.parse_scalar(format))


@pytest.mark.parametrize(
    ("arch", "op", "hint"),
    [
        ("ada", "wgmma", "hopper has it."),
        ("b200", "wgmma", "hopper has it."),
        ("rtx5090", "tcgen05", "blackwell has it."),
        ("h100", "mfma", "cdna1, cdna2, cdna3 have it."),
        ("h100", "wgma", "Did you mean 'wgmma'"),
    ],
)
def test_an_op_of_other_chips_says_which(arch, op, hint):
    with pytest.raises(HardwareError, match="has no op '.*'; allowed: ") as caught:
        largest(arch, op, "bf16")
    assert hint in str(caught.value) and str(caught.value).endswith("Choose one.")


def test_twins_stand_for_each_other():
    for one, other in (("e4m3", "e4m3fnuz"), ("e5m2", "e5m2fnuz"), ("tf32", "xf32")):
        assert (twin_of(one), twin_of(other)) == (other, one)
    assert twin_of(gs.formats.parse_scalar("e4m3")) == "e4m3fnuz" and twin_of(" E4M3 ") == "e4m3fnuz"
    assert twin_of("e8m10") == "xf32"  # the values of tf32
    assert twin_of("bf16") is None and twin_of("fp16") is None and twin_of("no format") is None


@pytest.mark.parametrize(
    ("spec", "unit"),
    [
        ("hw(hopper, mma, e4m3)", "hw(hopper, wgmma, e4m3)"),
        ("hw(h200, mma, e5m2, e4m3)", "hw(hopper, wgmma, e5m2, e4m3)"),
        ("hw(hopper, mma, e4m3, out=fp16)", "hw(hopper, wgmma, e4m3, out=e5m10)"),
        ("hw(b200, mma, e4m3)", "hw(blackwell, tcgen05, e4m3)"),
        ("hw(ada, mma, e4m3)", None),
        ("hw(hopper, wgmma, e4m3)", None),
        ("hw(hopper, mma, bf16)", None),
        ("hw(rtx5090, mma, e4m3)", None),
    ],
)
def test_fp8_that_goes_round_the_chip_s_unit_says_which_op_uses_it(spec, unit):
    """mma.sync on Hopper and Blackwell computes FP8 in binary16 steps: not what FP8 libraries run."""
    lines = [line for line in gs.explain(spec).splitlines() if line.startswith("unit")]
    assert len(lines) == (unit is not None)
    if unit:
        assert lines[0].endswith(f"libraries use the chip's native instruction: {unit}") and gs.GemmSpec.parse(unit)
