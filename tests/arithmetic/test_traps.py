"""Lines that people write and that mean nothing, or two things: each is refused at once, and told what was meant."""

from __future__ import annotations

import json
import re

import pytest

from gemmsim import acc, formats, hardware
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError, SpecFormatError
from gemmsim.arithmetic.errors import MAX_DEPTH

ALIASES = {
    "h100": "hopper",
    "h200": "hopper",
    "b200": "blackwell",
    "a100": "ampere",
    "v100": "volta",
    "rtx4090": "ada",
    "mi100": "cdna1",
    "mi250": "cdna2",
    "mi300": "cdna3",
}


# Records with a spec and fields


def test_a_record_whose_spec_and_fields_contradict_each_other_is_refused():
    data = GemmSpec.parse("e4m3 * e5m2 : e5m10 -> bf16").to_json()
    for change in ({"a": "e5m2"}, {"out": None}, {"accumulator": "fp32"}, {"arithmetic": "fp32"}, {"spec": ":fp32"}):
        with pytest.raises(SpecError, match=r"(?s)differ\).*Edit both, or remove one"):
            GemmSpec.from_json({**data, **change})
    with pytest.raises(SpecError, match="differ"):
        GemmSpec.from_json(json.dumps({**data, "b": "e4m3"}))


def test_a_record_may_leave_out_its_spec_or_fields_and_may_spell_them_otherwise():
    spec = GemmSpec.parse("e4m3 : mul=e5m10, add=fp32")
    data = spec.to_json()
    assert GemmSpec.from_json({key: value for key, value in data.items() if key != "spec"}) == spec
    assert GemmSpec.from_json({"version": 1, "spec": spec.key}) == spec
    assert GemmSpec.from_json({"spec": spec.key, "a": "E4M3FN"}) == spec
    assert GemmSpec.from_json({**data, "spec": " e4m3*e4m3 : sequential(fp32, mul=fp16)"}) == spec


def test_a_record_whose_spec_is_no_text_is_refused():
    with pytest.raises(SpecError, match="spec 3 of type int"):
        GemmSpec.from_json({"spec": 3})


# Words that are no formats


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("exact", r"exact\(\)"),
        (":Exact", r"exact\(\)"),
        ("exct", r"exact\(\)"),
        ("kahan", r"kahan\(fmt\)"),
        ("chunked(8, exact)", r"exact\(\)"),
        ("int", r"int\(P\)"),
        ("hopper", r"hw\(hopper, "),
        ("h100", r"hw\(h100, "),
        ("RTX 4090", r"hw\(rtx4090, "),
        ("mi300 : fp32", r"hw\(mi300, mfma, "),
        ("e4m3 : fp32 -> blackwell", r"hw\(blackwell, "),
        ("hopper(e4m3)", r"hw\(hopper, "),
        ("promote(h200, 128)", r"hw\(h200, "),
    ],
)
def test_constructors_and_chips_in_place_of_a_format_are_told_apart(text, meant):
    with pytest.raises(SpecError, match=f"(?i)did you mean .*{meant}"):
        GemmSpec.parse(text)


def test_formats_alone_know_them_too():
    with pytest.raises(formats.FormatError, match=r"Did you mean the accumulator kahan\(fmt\)\?"):
        formats.parse("kahan")
    with pytest.raises(formats.FormatError, match="Did you mean 'e4m3'"):
        formats.parse("e4m33x")


def test_what_a_hint_proposes_is_read():
    for name in (*hardware.ARCHITECTURES, *ALIASES):
        with pytest.raises(SpecFormatError) as caught:
            GemmSpec.parse(name)
        call = str(caught.value).split("such as ")[1].split("?")[0]
        assert GemmSpec.parse(call).accumulator.name == "hw"


@pytest.mark.parametrize("text", ["float(p=99,emin=-3,emax=3)", "float(p=3)", "ufixed(4)", "binary8(9)", "bfp(1,0)"])
def test_formats_with_brackets_say_inside_a_spec_what_they_say_outside(text):
    with pytest.raises(formats.FormatError) as outside:
        formats.parse(text)
    for spec in (text, f":{text}", f"{text} : fp32", f"fp32 -> {text}", f"kahan({text})", f"chunked(8, {text})"):
        with pytest.raises(SpecFormatError) as inside:
            GemmSpec.parse(spec)
        assert str(inside.value).endswith(str(outside.value))


# Nesting and length


def nested(depth, call="shuffled({}, 1)"):
    text = "fp32"
    for _ in range(depth):
        text = call.format(text)
    return text


def test_what_is_nested_no_deeper_than_the_limit_is_read():
    spec = GemmSpec.parse(nested(MAX_DEPTH - 1))
    assert spec.accumulator.depth == MAX_DEPTH and GemmSpec.parse(spec.key) == spec
    assert GemmSpec.from_json(json.dumps(spec.to_json())) == spec


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000, 30000])
@pytest.mark.parametrize(
    "call", ["shuffled({}, 1)", "chunked(4, {})", "palette({}, fp32)", "({})", "mx({})", "nosuch({})"]
)
def test_deeper_nesting_is_an_error_at_once(call, depth):
    before, _, after = call.partition("{}")
    text = before * depth + "fp32" + after * depth
    for parse in (GemmSpec.parse, GemmSpec.of, Accumulator.parse):
        with pytest.raises(SpecError, match="nested deeper than 64|brackets do not match") as caught:
            parse(text)
        assert len(str(caught.value)) < 600
    with pytest.raises(formats.FormatError) as caught:
        formats.parse(text)
    assert len(str(caught.value)) < 1200


def test_objects_and_records_have_the_same_limit():
    inner = acc.sequential("fp32")
    with pytest.raises(SpecError, match="65 accumulators inside one another"):
        for _ in range(1000):
            inner = acc.shuffled(inner, 1)
    data = {"name": "sequential", "add": "fp32"}
    for _ in range(3000):
        data = {"name": "shuffled", "inner": data, "seed": 1}
    for read in (Accumulator.from_json, lambda one: GemmSpec.from_json({"accumulator": one})):
        with pytest.raises(SpecError, match="nested deeper"):
            read(data)
    with pytest.raises(SpecError, match="nested"):
        GemmSpec.from_json('{"accumulator":' * 100000 + "1" + "}" * 100000)


LONG = "x" * 5000
TEXTS = {
    "spec": lambda: GemmSpec.parse(LONG),
    "operand": lambda: GemmSpec.parse(f"{LONG} : fp32"),
    "output": lambda: GemmSpec.parse(f":fp32 -> {LONG}"),
    "constructor": lambda: GemmSpec.parse(f"{LONG}(fp32)"),
    "argument": lambda: GemmSpec.parse(f"chunked({LONG}, fp32)"),
    "superfluous": lambda: GemmSpec.parse(f"exact({LONG}, {LONG}, {LONG})"),
    "keyword": lambda: GemmSpec.parse(f"exact({LONG}=3)"),
    "choice": lambda: GemmSpec.parse(f"interleaved(4, fp32, combine={LONG})"),
    "arithmetic": lambda: GemmSpec.parse(f":fp32, arithmetic={LONG}"),
    "brackets": lambda: GemmSpec.parse(LONG + "("),
    "colons": lambda: GemmSpec.parse(f"{LONG}:{LONG}:{LONG}"),
    "chip": lambda: GemmSpec.parse(f"hw({LONG}, mma, f16)"),
    "op": lambda: GemmSpec.parse(f"hw(hopper, {LONG}, f16)"),
    "operand of a chip": lambda: GemmSpec.parse(f"hw(hopper, mma, {LONG})"),
    "format": lambda: formats.parse(LONG),
    "cast": lambda: formats.parse_cast(f"e4m3/{LONG}"),
    "rounding": lambda: formats.parse_rounding(LONG),
    "float": lambda: formats.parse(f"float(p={LONG},emin=1,emax=2)"),
    "fixed": lambda: formats.parse(f"fixed(8,{LONG})"),
    "block": lambda: formats.parse(f"mx{LONG}"),
    "block option": lambda: formats.parse(f"mxfp4/{LONG}"),
    "bfp": lambda: formats.parse(f"bfp(8,{LONG})"),
    "shorthand": lambda: formats.parse(f"XP[8,+4]({LONG})"),
    "JSON": lambda: GemmSpec.from_json(LONG),
    "JSON object": lambda: GemmSpec.from_json([LONG]),
    "JSON field": lambda: GemmSpec.from_json({LONG: 1}),
    "instruction": lambda: hardware.instruction("hopper", LONG),
}


@pytest.mark.parametrize("name", TEXTS)
def test_messages_show_no_more_than_200_characters_of_a_text(name):
    with pytest.raises((ValueError, TypeError)) as caught:
        TEXTS[name]()
    assert type(caught.value).__module__.startswith("gemmsim")
    assert "x" * 201 not in str(caught.value) and str(caught.value).count("x") < 1000


# Chips


@pytest.mark.parametrize(("chip", "arch"), ALIASES.items())
def test_a_chip_stands_for_its_architecture(chip, arch):
    op = "mfma" if arch.startswith("cdna") else "mma"
    spec = GemmSpec.parse(f"hw({chip}, {op}, f16)")
    assert spec == GemmSpec.parse(f"hw({arch}, {op}, f16)") and arch in spec.key and chip not in spec.key
    assert acc.hw(chip.upper(), op, "f16") == spec.accumulator
    assert hardware.instructions(chip) == hardware.instructions(arch)
    assert hardware.families(chip) == hardware.families(arch)
    assert hardware.largest(chip, op, "f16") == hardware.largest(arch, op, "f16")
    name = hardware.instructions(arch)[0].name
    assert hardware.instruction(chip, name) is hardware.instruction(arch, name)


def test_hopper_under_its_chips_name():
    assert GemmSpec.parse("hw(h100, wgmma, e4m3)").key == "e4m3 : hw(hopper, wgmma, e4m3)"
    assert GemmSpec.parse("hw(RTX 4090, mma, e4m3)") == GemmSpec.parse("hw(Ada Lovelace, mma, e4m3)")


def test_an_unknown_chip_is_told_the_known_ones():
    with pytest.raises(hardware.HardwareError, match="(?s)Did you mean 'h100'.*allowed: volta, .*h100.*fused"):
        hardware.instructions("h1000")


@pytest.mark.parametrize("text, said", [
    ("bf16 * bf16", "Add ': fp32' for that of float32: 'bf16 * bf16 : fp32'."),
    ("e4m3*e5m2 -> bf16", "Add ': fp32' for that of float32: 'e4m3*e5m2 : fp32 -> bf16'."),
    ("bf16 * bf16, fp16", "Add ': fp32' for that of float32: 'bf16 * bf16 : fp32'."),
    (": fma(fp16)", "A fused multiply-add is the format alone, 'fp16': products are exact"),
    ("bf16 : FMA()", "A fused multiply-add is the format alone, 'fp16': products are exact"),
    (": fma(bf16/sr)", "A fused multiply-add is the format alone, 'bf16/sr': products are exact"),
    ("fp16 : fp32(h100)", "'h100' is a chip: did you mean its instruction, such as hw(h100, "),
    ("fp16 : fp32(Hopper, wgmma)", "'Hopper' is a chip: did you mean its instruction, such as hw(hopper, "),
    ("fp16 : bf16(mi300)", "'mi300' is a chip: did you mean its instruction, such as hw(mi300, "),
    ("fp16 : FP32(4)", "'FP32' is a format, which takes no brackets: write 'FP32'."),
    ("fp16 : chunked(4, fp16,)", "'chunked(4, fp16,)': a comma at the end"),
    ("fp16 : chunked(4,, fp16)", "'chunked(4,, fp16)': a comma with nothing before it"),
    ("fp16 : hw(hopper, wgmma, fp16, )", "a comma at the end"),
    ("fp16 : fp32,", "'fp32,': a comma at the end"),
    ("fp16 : mul=fp16, add=fp32,", "a comma at the end"),
])  # fmt: skip
def test_what_people_write_in_place_of_an_accumulator(text, said):
    with pytest.raises(SpecError) as caught:
        GemmSpec.parse(text)
    assert said in str(caught.value)
    for advised in re.findall(r"'([^']+ : fp32[^']*)'\.$", str(caught.value)):
        assert str(GemmSpec.parse(advised))
