"""The tables: lookups, what they say about themselves, and the page that prints them."""

from __future__ import annotations

import pytest
from support import ROOT, run_python

from gemmsim import hardware
from gemmsim.formats import FormatError


def test_rows_are_frozen_values_with_a_source():
    for family in hardware.families():
        assert hash(family) == hash(family) and list(family.instructions())
    for row in hardware.instructions():
        assert row.k % row.model.products == 0 and row.steps in (1, 2, 4, row.k)
        assert row.model.conversion.operand == row.d
        assert hardware.instruction(row.arch, row.name) is row


def test_nobody_reads_silicon_where_there_was_none():
    degrees = {row.source.evidence for row in hardware.instructions()}
    chips = {"compared on a chip", "silicon recorded"}
    assert degrees == {*chips, "equal to a model that replays silicon", "model only", "no vectors"}
    for row in hardware.instructions():
        words, source = str(row.source), row.source
        assert source.silicon == words.startswith(tuple(chips)) == (source.outputs > 0)
        assert bool(source.chips) == (source.evidence in (*chips, "equal to a model that replays silicon"))
        if source.evidence == "compared on a chip":
            assert row.arch == "hopper" and source.chips == ("H200",) and source.outputs > 24_000
        if not source.chips:
            assert "not compared with silicon" in words
        if source.evidence == "silicon recorded":
            assert row.a == row.b and row.c == row.d and all(chip in words for chip in source.chips)
            assert source.outputs in (5_000, 10_000) and row.arch in ("volta", "ampere", "ada", "hopper", "blackwell")
    one = hardware.instruction("turing", "mma.m8n8k4.f32.f16.f16.f32")
    assert one.model.kept == 23 and str(one.source).endswith("one source") and "one source" in hardware.table()
    mixed = hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e5m2").source
    assert "mmaemu" in str(mixed) and mixed.evidence == "compared on a chip"
    replayed = hardware.instruction("ada", "mma.m16n8k32.f32.e4m3.e5m2.f32").source
    assert "mmaemu" in str(replayed) and replayed.chips == ("RTX 4060",)


def test_kinds_have_nvidias_names_and_may_be_left_out():
    full = "tcgen05mma_block_scale.m128n8k64.kind::mxf4nvf4.block32.f32.e2m1.e2m1.ue8m0"
    row = hardware.instruction("blackwell", full)
    assert row.name == full and row is hardware.instruction("blackwell", full.replace(".kind::mxf4nvf4", ""))
    other = hardware.instruction("blackwell", full.replace("mxf4nvf4", "mxf4"))
    assert other is not row and (other.model, other.kind) == (row.model, "mxf4")
    plain = hardware.instruction("rtx_blackwell", "mma.m16n8k32.f32.e4m3.e4m3.f32")
    assert (
        plain.kind is None and hardware.instruction("rtx_blackwell", "mma.m16n8k32.f32.e3m2.e2m1.f32").kind == "f8f6f4"
    )
    assert hardware.largest("blackwell", "f8f6f4", "e3m2", "e2m1").a == "e3m2"


def test_narrow_operands_lie_in_bytes_or_packed():
    name = "mma.m16n8k32.kind::f8f6f4.f32.{}.{}.f32"
    a, b, _, _ = hardware.instruction("rtx_blackwell", name.format("e3m2", "e2m1")).operands
    assert (a.container, a.padded, b.container, b.padded) == (8, 0, 8, 2)
    packed = hardware.instruction(
        "rtx_blackwell", "mma_block_scale.m16n8k64.kind::mxf4.block32.f32.e2m1.e2m1.f32.ue8m0"
    )
    assert (packed.operands[0].container, packed.operands[0].packed) == (8, 2)


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
    ("blackwell", "tcgen05", "bf16", "f16", "fp32", "tcgen05mma.m64n8k16.kind::f16.f32.bf16.f16"),
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
    code = "import sys, gemmsim.hardware as h; h.largest('hopper', 'wgmma', 'bf16'); print('gemmsim.hardware.matrix_instruction' in sys.modules)"
    assert run_python(code).stdout.strip() == "False"


def test_the_page_shows_every_row_of_the_tables():
    page = (ROOT / "docs" / "reference" / "hardware.md").read_text(encoding="utf-8")
    assert hardware.table() in page, "docs/reference/hardware.md differs from the text of gemmsim.hardware.table()"
