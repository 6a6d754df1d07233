"""``hw`` as a value: texts, JSON, operand casts, explanations, presets, and what it refuses."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from support import run_python
from support.hardware import choices

import gemmsim.arithmetic
from gemmsim import acc, hardware
from gemmsim.arithmetic import Accumulator, GemmSpec, Hardware, SpecError
from gemmsim.formats import BF16, FP32, FormatError, parse, parse_cast

CHOICES = choices()
AROUND = [
    lambda one: acc.chunked(100, one),
    lambda one: acc.promote(one, 128),
    lambda one: acc.pairwise(one, 64),
    lambda one: acc.interleaved(4, one),
    lambda one: acc.splitk(2, one, "fp32"),
    lambda one: acc.shuffled(one, 3),
    lambda one: acc.palette(one, "e5m10"),
    lambda one: acc.palette("e5m10", acc.promote(one, 64)),
]


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_round_trips(accumulator):
    for one in (accumulator, *(around(accumulator) for around in AROUND)):
        spec = GemmSpec.of(one)
        assert Accumulator.parse(str(one)) == one
        assert GemmSpec.parse(str(spec)) == spec and GemmSpec.parse(str(spec)).key == spec.key
        assert Accumulator.from_json(json.loads(json.dumps(one.to_json()))) == one
        assert GemmSpec.from_json(json.dumps(spec.to_json())) == spec
        assert eval(repr(one), dict(vars(gemmsim.arithmetic), **vars(gemmsim.formats))) == one
        assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
        assert (spec.a, spec.b) == one.operand_casts == accumulator.operand_casts
        assert spec.transposed().transposed() == spec
        assert (spec.transposed().a, spec.transposed().b) == (spec.b, spec.a)
        assert not spec.is_stochastic and one.product_cast is None and one.combines


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_the_instruction_is_the_largest_of_the_op(accumulator):
    row = accumulator.instruction
    assert row is hardware.largest(accumulator.arch, accumulator.op, row.a, row.b, out=row.d)
    assert accumulator.add_cast == parse_cast(str(row.operands[3].format))
    assert list(accumulator.casts()) == [accumulator.add_cast]
    assert list(accumulator.grids()) == [accumulator.add_cast.format.quantum_exponent]
    assert (accumulator.b is None) == (row.a == row.b)
    for cast, kind in zip(accumulator.operand_casts, row.operands[:2], strict=True):
        assert cast.format == kind.format and (str(cast.rounding) == "rtz") == (kind.name in ("tf32", "xf32"))


@pytest.mark.parametrize("accumulator", CHOICES, ids=str)
def test_explanations_name_instruction_model_and_source(accumulator):
    row, text = accumulator.instruction, GemmSpec.of(accumulator).explain()
    words = row.model.words.removesuffix(f", {row.model.out}")
    steps = f"{row.steps} step{'' if row.steps == 1 else 's'}"
    for part in (row.arch, row.name, f"k = {row.k} in {steps}", words, f"({row.model.out})", str(row.source)):
        assert part in text, (part, text)
    seen = "compared on a chip (" in text or "silicon recorded (" in text
    assert seen == row.source.silicon
    assert ("1 for operands without a block format" in text) == (row.scale is not None)


def test_whole_text_of_a_common_one():
    assert GemmSpec.of("hw(hopper, wgmma, e4m3)").explain() == (
        "spec        e4m3 : hw(hopper, wgmma, e4m3)\n"
        "operands    a and b rounded to e4m3 (max 448), to nearest, ties to even\n"
        "instruction hopper wgmma.m64n8k32.f32.e4m3.e4m3, k = 32 in 1 step\n"
        "product     exact\n"
        "each step   32 products and the accumulator: truncated F = 13 bits below the largest exponent (at least -133), exact sum\n"
        "rounding    e8m23, 13 fraction bits kept, toward zero (e8m13); larger results become infinity\n"
        "order       instructions for k ascending from +0; K is padded with zeros to a multiple of 32\n"
        f"source      {acc.hw('hopper', 'wgmma', 'e4m3').instruction.source}\n"
        "overflow    e4m3: to NaN (no infinity in the format)\n"
        "            e8m23: to infinity\n"
        "output      the accumulator's value, then to nearest even in the output tensor's dtype\n"
        "arithmetic  exact: every rounding happens once, from the exact value"
    )


@pytest.mark.parametrize("given, text", [
    (acc.hw("hopper", "wgmma", "e4m3"), "hw(hopper, wgmma, e4m3)"),
    (acc.hw("Hopper", "WGMMA", "e4m3fn", "e4m3"), "hw(hopper, wgmma, e4m3)"),
    (acc.hw("hopper", "wgmma", "e4m3", "e5m2", out="fp16"), "hw(hopper, wgmma, e4m3, e5m2, out=e5m10)"),
    (acc.hw("Ada Lovelace", "mma", "f16", out="f16"), "hw(ada, mma, e5m10, out=e5m10)"),
    (acc.hw("RTX Blackwell", "mma", BF16, out=FP32), "hw(rtx_blackwell, mma, e8m7)"),
    (acc.hw("cdna3", "mfma", "xf32"), "hw(cdna3, mfma, e8m10)"),
    (acc.hw("blackwell", "tcgen05", "bf16", "f16"), "hw(blackwell, tcgen05, e8m7, e5m10)"),
    (acc.hw("hopper", "mma", "f64", out="fp64"), "hw(hopper, mma, e11m52, out=e11m52)"),
    (acc.cublas_fp32(), "hw(hopper, wgmma, e8m7)"),
    (acc.cublas_fp32("Ampere", "tf32"), "hw(ampere, mma, e8m10)"),
    (acc.cublas_fp32("blackwell", "bf16", "fp16"), "hw(blackwell, tcgen05, e8m7, e5m10)"),
    (acc.fp16_accumulate(), "hw(hopper, wgmma, e5m10, out=e5m10)"),
    (acc.fp16_accumulate("volta"), "hw(volta, mma, e5m10, out=e5m10)"),
    (acc.hopper_fp8_fast("e4m3", "e5m2"), "hw(hopper, wgmma, e4m3, e5m2)"),
    (acc.hopper_fp8_2xacc(), "promote(hw(hopper, wgmma, e4m3), 128)"),
    (acc.hopper_fp8_2xacc(64, "e5m2"), "promote(hw(hopper, wgmma, e5m2), 64)"),
    (acc.deepgemm(), "promote(hw(hopper, wgmma, e4m3), 128)"),
    (acc.ada_fp8(), "hw(ada, mma, e4m3)"),
    (acc.blackwell_mxfp8("e5m2"), "hw(blackwell, mxf8f6f4, e5m2)"),
    (acc.blackwell_nvfp4(), "hw(blackwell, mxf4nvf4, e2m1)"),
    (acc.cdna3_fp8(b="e5m2fnuz"), "hw(cdna3, mfma, e4m3fnuz, e5m2fnuz)"),
])  # fmt: skip
def test_texts(given, text):
    assert str(given) == text and Accumulator.parse(text) == given


@pytest.mark.parametrize("arch, op, a, name", [
    ("blackwell", "mxf8f6f4", "e5m2", "tcgen05mma_block_scale.m128n8k32.kind::mxf8f6f4.block32.f32.e5m2.e5m2.ue8m0"),
    ("blackwell", "mxf4", "e2m1", "tcgen05mma_block_scale.m128n8k64.kind::mxf4.block32.f32.e2m1.e2m1.ue8m0"),
    ("blackwell", "mxf4nvf4", "e2m1", "tcgen05mma_block_scale.m128n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3"),
    ("rtx_blackwell", "mxf8f6f4", "e4m3", "mma_block_scale.m16n8k32.kind::mxf8f6f4.block32.f32.e4m3.e4m3.f32.ue8m0"),
    ("rtx_blackwell", "mxf4", "e2m1", "mma_block_scale.m16n8k64.kind::mxf4.block32.f32.e2m1.e2m1.f32.ue8m0"),
    ("rtx_blackwell", "mxf4nvf4", "e2m1", "mma_block_scale.m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3"),
])  # fmt: skip
def test_block_scaled_kinds(arch, op, a, name):
    assert acc.hw(arch, op, a).instruction is hardware.instruction(arch, name)


def test_operands_come_from_the_accumulator():
    assert str(GemmSpec.parse("hw(hopper, wgmma, e4m3, e5m2)")) == "e4m3 * e5m2 : hw(hopper, wgmma, e4m3, e5m2)"
    assert str(GemmSpec.parse("hw(hopper, mma, tf32)")) == "e8m10/rtz : hw(hopper, mma, e8m10)"
    assert str(GemmSpec.parse("* e2m1 : promote(hw(hopper, wgmma, e4m3), 128) -> bf16")) == (
        "e4m3 * e2m1 : promote(hw(hopper, wgmma, e4m3), 128) -> e8m7"
    )
    assert GemmSpec.parse("palette(e5m10, hw(hopper, wgmma, e4m3))").b == parse_cast("e4m3")
    swapped = GemmSpec.parse("e2m1 * : chunked(8, hw(hopper, wgmma, e4m3, e5m2))").transposed()
    assert str(swapped) == "e5m2 * e2m1 : chunked(8, hw(hopper, wgmma, e5m2, e4m3))"
    # Nobody else asks for any, nor has another meaning with its operands exchanged.
    assert acc.promote("e5m10", 8).operand_casts is None and GemmSpec.parse(":e5m10").a is None
    assert str(GemmSpec.parse("e4m3 * : kahan(e5m10)").transposed()) == "* e4m3 : kahan(e5m10)"


TAKEN = [
    ("e4m3", "e4m3/rtz/sat"), ("e4m3", "e4m3/sr8"), ("e4m3", "e2m1"), ("e4m3", "e3m2"), ("e4m3", "e2m3"),
    ("e4m3", "int4"), ("e4m3", "int5"), ("e4m3", "fixed(5,6)"), ("e4m3", "uint4"), ("e4m3", "ieee_e3m3/clamp"),
    ("e5m2", "ieee_e4m2"), ("e5m10", "e4m3"), ("e5m10", "int12"), ("e5m10", "e5m2"), ("e8m7", "e5m2"), ("e8m10", "fp16"),
    ("e8m10", "bf16"), ("e8m10", "tf32"), ("e8m7", "int9"), ("e8m7", "e1m4"), ("e4m3", "e4m3/ftz"),
]  # fmt: skip
REFUSED = [
    ("e4m3", "e5m2"), ("e4m3", "e4m4"), ("e4m3", "ieee_e3m3"), ("e4m3", "e4m3fnuz"), ("e4m3", "int6"), ("e4m3", "uint5"),
    ("e4m3", "fixed(4,10)"), ("e4m3", "fixed(8,0,unbounded)"), ("e5m2", "e4m3"), ("e5m10", "bf16"), ("e8m10", "fp32"),
    ("e8m10", "fp64"), ("e8m7", "int10"), ("e8m7", "e8m0b200"), ("e5m10", "e5m10b16"), ("e5m10", "e5m10b14"), ("e4m3", "fp16"),
]  # fmt: skip


@pytest.mark.parametrize("operand, given", TAKEN)
def test_casts_whose_every_value_the_operand_holds(operand, given):
    fmt, target = parse_cast(given).format, parse(operand)
    if fmt.bits <= 12:
        assert all(target.is_representable(x) for x in fmt.values())
    spec = GemmSpec(a=given, accumulator=acc.hw("hopper", "mma" if operand == "e8m10" else "wgmma", operand))
    assert spec.a == parse_cast(given) and spec.b == spec.accumulator.operand_casts[1]
    assert GemmSpec.parse(str(spec)) == spec == GemmSpec.from_json(spec.to_json())


@pytest.mark.parametrize("operand, given", REFUSED)
@pytest.mark.parametrize("side", ["a", "b"])
def test_casts_with_values_that_the_operand_does_not_hold(operand, given, side):
    accumulator = acc.hw("hopper", "mma" if operand == "e8m10" else "wgmma", operand)
    with pytest.raises(SpecError, match=f"operand {side}=.*takes {operand}; allowed: {operand}, or a format whose"):
        GemmSpec(**{side: given}, accumulator=accumulator)


@pytest.mark.parametrize("text, message", [
    ("hw(hoper, wgmma, e4m3)", "Did you mean 'hopper'.*allowed: volta, turing, .*cdna3, or a chip"),
    ("hw(hopper, wgma, e4m3)", "hopper has no op 'wgma'; allowed: mma, wgmma.\n  Did you mean 'wgmma'"),
    ("hw(hopper, tcgen05, bf16)", "allowed: mma, wgmma"),
    ("hw(blackwell, mxf8f6f4, bf16)", "mxf8f6f4 does not take operand format e8m7; allowed: e4m3, e5m2"),
    ("hw(blackwell, mxf4nvf4, e4m3)", "allowed: e2m1"),
    ("hw(ampere, mma, e4m3)", "allowed: f16, bf16, tf32, f64"),
    ("hw(hopper, wgmma, bf16, f16)", r"does not take bf16 \* f16 -> f32; allowed: tf32 \* tf32 \+ f32 -> f32; "),
    ("hw(hopper, wgmma, bf16, out=f16)", r"does not take bf16 \* bf16 -> f16; allowed: .*bf16 \* bf16 \+ f32 -> f32"),
    ("hw(hopper, wgmma, e4m3, out=bf16)", "operand format e8m7; allowed: f32, f16"),
    ("hw(hopper, wgmma, e4n3)", "unknown format 'e4n3'. Did you mean 'e4m3'"),
    ("hw(hopper, wgmma, int8)", "no floating-point format"),
    ("hw(hopper, wgmma)", r"allowed: hw\(arch, op, a, b=none, \*, out=e8m23, first=none\)"),
    ("hw(hopper, wgmma, e4m3, e4m3, fp32)", "allowed: hw"),
    ("chunked(0, hw(hopper, wgmma, e4m3))", "n='0'"),
    ("palette(hw(hopper, wgmma, e4m3), hw(hopper, wgmma, e5m2))", "the same pair of operand formats"),
    ("hw(hopper, wgmma, e4m3), arithmetic=fp32", "Use arithmetic='exact'"),
    ("chunked(64, hw(hopper, wgmma, e4m3)), arithmetic=fp32", "Use arithmetic='exact'"),
])  # fmt: skip
def test_what_has_no_meaning_says_what_is_allowed(text, message):
    with pytest.raises((SpecError, FormatError), match=message) as caught:
        GemmSpec.parse(text)
    assert isinstance(caught.value, SpecError) and "allowed" in str(caught.value)


@pytest.mark.parametrize("make", [
    lambda: acc.hw(1, "wgmma", "e4m3"),
    lambda: acc.hw("hopper", None, "e4m3"),
    lambda: acc.hw("hopper", "wgmma", 8),
    lambda: acc.hw("hopper", "wgmma", "e4m3", out=parse_cast("fp32/rtz")),
    lambda: acc.cublas_fp32(90),
    lambda: acc.cublas_fp32("cdna3"),
    lambda: acc.fp16_accumulate("cdna1"),
    lambda: acc.cdna3_fp8("e4m3"),
    lambda: GemmSpec(product="fp32", accumulator=acc.hopper_fp8_fast()),
    lambda: GemmSpec(product="fp32", accumulator=acc.deepgemm()),
    lambda: Accumulator.from_json({"name": "hw", "arch": "hopper", "op": "wgmma", "a": "e4m3", "b": None, "out": "fp64"}),
])  # fmt: skip
def test_bad_arguments_are_spec_errors(make):
    with pytest.raises(SpecError, match="allowed"):
        make()


def test_a_palette_takes_members_of_other_chips_with_the_same_operands():
    pair = acc.palette(acc.hw("hopper", "wgmma", "e4m3"), acc.hw("ada", "mma", "e4m3"), "fp32")
    assert GemmSpec.of(pair).a == parse_cast("e4m3")


def test_importing_the_accumulators_loads_no_torch():
    code = "import sys, gemmsim.acc as acc; acc.deepgemm(); print('torch' in sys.modules)"
    assert run_python(code).stdout.strip() == "False"


def test_equal_ones_are_equal_whatever_they_were_called():
    assert Hardware("Hopper", "wgmma", "f16") == Hardware("hopper", "wgmma", "half", "fp16", out="f32")
    assert len({acc.hw("hopper", "wgmma", "f16"), acc.hw("hopper", "wgmma", "fp16")}) == 1
