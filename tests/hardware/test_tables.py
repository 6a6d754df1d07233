"""The tables: lookups, what they say about themselves, and the page that prints them."""

from __future__ import annotations

import pytest
from support import ROOT, run_python

from gemmsim import hardware
from gemmsim.formats import FormatError


def test_rows_are_frozen_values_with_a_source():
    for family in hardware.families():
        assert "2511.10909" in str(family.source) and not family.source.silicon
        assert hash(family) == hash(family) and list(family.instructions())
    for row in hardware.instructions():
        assert row.k % row.model.products == 0 and row.steps in (1, 2, 4, row.k)
        assert row.model.conversion.operand == row.d
        assert hardware.instruction(row.arch, row.name) is row


def test_architectures_are_found_as_people_write_them():
    name = "mma.m16n8k16.f32.f16.f16.f32"
    assert hardware.instruction("Ada Lovelace", name) is hardware.instruction("ada", name)
    assert hardware.instruction("RTX Blackwell", name).arch == "rtx_blackwell"


def test_m_and_n_of_wide_units_are_free():
    want = hardware.instruction("hopper", "wgmma.m64n8k16.f32.bf16.bf16")
    assert hardware.instruction("hopper", "wgmma.m64n256k16.f32.bf16.bf16") is want
    scaled = "tcgen05mma_block_scale.m128n{}k64.block16.f32.e2m1.e2m1.ue4m3"
    assert hardware.instruction("blackwell", scaled.format(64)) is hardware.instruction("blackwell", scaled.format(8))


@pytest.mark.parametrize("arch, op, a, b, out, name", [
    ("hopper", "wgmma", "bf16", None, "fp32", "wgmma.m64n8k16.f32.bf16.bf16"),
    ("hopper", "wgmma", "e4m3", "e5m2", "f32", "wgmma.m64n8k32.f32.e4m3.e5m2"),
    ("hopper", "mma", "tf32", None, "fp32", "mma.m16n8k8.f32.tf32.tf32.f32"),
    ("ampere", "mma", "e5m10", None, "fp16", "mma.m16n8k16.f16.f16.f16.f16"),
    ("blackwell", "tcgen05", "bf16", "f16", "fp32", "tcgen05mma.m64n8k16.f32.bf16.f16"),
    ("cdna1", "mfma", "bf16", None, "fp32", "mfma.f32_16x16x8bf16"),
    ("cdna2", "mfma", "bf16", None, "fp32", "mfma.f32_16x16x16bf16_1k"),
    ("cdna3", "mfma", "tf32", None, "fp32", "mfma.f32_16x16x8_xf32"),
    ("cdna3", "mfma", "e4m3fnuz", "e5m2fnuz", "fp32", "mfma.f32_16x16x32_fp8_bf8"),
    ("volta", "mma", "fp16", None, "fp32", "mma.m8n8k4.f32.f16.f16.f32"),
])  # fmt: skip
def test_the_largest_instruction_of_an_op(arch, op, a, b, out, name):
    assert hardware.largest(arch, op, a, b, out=out).name == name


@pytest.mark.parametrize("arguments, words", [
    (("hopper", "tcgen05", "bf16"), "mma, wgmma"),
    (("hopper", "wgmma", "e2m1"), "e4m3, e5m2"),
    (("hopper", "wgmma", "bf16", "f16"), r"bf16 \* bf16 \+ f32 -> f32"),
    (("hoper", "wgmma", "bf16"), "'hopper'"),
])  # fmt: skip
def test_what_an_op_does_not_take(arguments, words):
    with pytest.raises(hardware.HardwareError, match=words):
        hardware.largest(*arguments)


def test_a_format_that_does_not_exist():
    with pytest.raises(FormatError, match="unknown format"):
        hardware.largest("hopper", "wgmma", "f00")


def test_the_tables_load_neither_torch_nor_the_model():
    code = "import sys, gemmsim.hardware as h; h.largest('hopper', 'wgmma', 'bf16'); print('gemmsim.hardware.product' in sys.modules)"
    assert run_python(code).stdout.strip() == "False"


def test_the_page_shows_every_row_of_the_tables():
    page = (ROOT / "docs" / "reference" / "hardware.md").read_text(encoding="utf-8")
    assert hardware.table() in page, "docs/reference/hardware.md differs from the text of gemmsim.hardware.table()"
