"""Presets are words of spec strings, with the arguments of their functions; recipes are no spec of one product."""

from __future__ import annotations

import inspect
import re

import pytest

import gemmsim.acc as acc
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError, constructors, presets
from gemmsim.arithmetic.recipe_words import RECIPES, recipe_call

#: What the presets without a default for an argument are given.
NEEDED = {"mptorch_cuda": "e5m10", "a2q": "16", "adder_tree": "[17, 18], 32"}
#: As objects.
OBJECTS = {"mptorch_cuda": ("e5m10",), "a2q": (16,), "adder_tree": ([17, 18], 32)}
PUBLIC = [name for name in acc.__all__ if getattr(acc, name).__module__ == presets.__name__]


def test_every_preset_of_acc_is_a_word():
    assert sorted(PUBLIC) == sorted(presets.PRESETS) and len(PUBLIC) == 16


@pytest.mark.parametrize("name", PUBLIC)
def test_a_preset_in_text_is_the_accumulator_of_its_function(name):
    argument = NEEDED.get(name)
    made = getattr(acc, name)(*OBJECTS.get(name, ()))
    call = f"{name}({argument or ''})"
    for text in (f":{call}", f" : {call.upper()} ", f": {call} -> bf16", f"chunked(8, {call}, fp32)"):
        spec = GemmSpec.parse(text)
        assert GemmSpec.parse(str(spec)) == GemmSpec.from_json(spec.to_json()) == spec
        assert spec.accumulator == (acc.chunked(8, made, "fp32") if "chunked" in text else made)
    assert Accumulator.parse(call) == made
    if argument is None:
        assert Accumulator.parse(name) == Accumulator.parse(f"{name} ( )") == made
        if name not in RECIPES:
            assert GemmSpec.parse(name) == GemmSpec.parse(call) == GemmSpec(accumulator=made)
    else:
        with pytest.raises(SpecError, match=rf"{name}\(\): missing.*allowed: {name}\("):
            Accumulator.parse(name)


@pytest.mark.parametrize("name", sorted({*acc.__all__} & {*constructors()}))
def test_every_constructor_of_acc_is_a_word(name):
    with pytest.raises(SpecError) as caught:
        GemmSpec.parse(f":{name}(one, two, three, four, five, six, seven, eight, nine)")
    assert "unknown constructor" not in str(caught.value)


@pytest.mark.parametrize("text, made", [
    ("cublas_fp32(h100)", lambda: acc.cublas_fp32("h100")),
    ("cublas_fp32(arch=b200, a=fp16)", lambda: acc.cublas_fp32("b200", "fp16")),
    ("cublas_fp32(a100, fp16, none)", lambda: acc.cublas_fp32("a100", "fp16")),
    ("deepgemm(n=64)", lambda: acc.deepgemm(64)),
    ("hopper_fp8_2xacc(64, e4m3, e5m2)", lambda: acc.hopper_fp8_2xacc(64, "e4m3", "e5m2")),
    ("mptorch_cuda(e5m10, mul=e6m9)", lambda: acc.mptorch_cuda("e5m10", "e6m9")),
    ("srmac_fp12(9)", lambda: acc.srmac_fp12(9)),
    ("lba_m7e4(prod_bias=11)", lambda: acc.lba_m7e4(prod_bias=11)),
    ("a2q(P=12)", lambda: acc.a2q(12)),
    ("adder_tree([9], outer=int(12, saturate))", lambda: acc.adder_tree((9,), 12)),
])  # fmt: skip
def test_arguments_of_presets(text, made):
    assert Accumulator.parse(text) == made()


def test_a_preset_of_certain_operands_is_a_whole_spec():
    spec = GemmSpec.parse("cdna3_fp8()")
    assert str(spec.a) == str(spec.b) == "e4m3fnuz" and spec == GemmSpec(accumulator=acc.cdna3_fp8())


@pytest.mark.parametrize("text, message", [
    ("deepgemm(1, 2)", r"deepgemm\(1, 2\): too many .*allowed: deepgemm\(n=128\)"),
    ("deepgemm(m=1)", r"unexpected keyword argument 'm'.*deepgemm\(n=128\)"),
    ("deepgemm(x)", "n='x'; allowed: an integer"),
    ("a2q()", r"missing a required argument: 'P'; allowed: a2q\(P\)"),
    ("adder_tree([17, 16], 32)", "no level narrower than the previous one"),
    ("adder_tree([], 32)", "a list of 1 to 20 widths"),
    ("adder_tree(17, 32)", "a list of 1 to 20 widths"),
    ("adder_tree([17, x], 32)", "widths='x'; allowed: an integer from 1 to 53"),
    ("adder_tree([17, 18], 32, overflow=drop)", "overflow='drop'; allowed: 'wrap', 'saturate'"),
    ("adder_tree([9, 10, 10], 32, overflow=wrap)", "levels of the first width, then at least one more bit each"),
    ("adder_tree([17, 18], int(32))", "outer=int.32.; allowed: .*outer=fixed.32,0., which saturates"),
    ("cublas_fp32(H1000)", "architecture 'H1000' is not known"),
    ("deepgem()", r"unknown constructor 'deepgem'. Did you mean deepgemm\(...\)"),
    ("Deepgem", r"unknown format 'Deepgem'. Did you mean the accumulator deepgemm\(n=128\)"),
    ("deepgemm() : fp32", "unknown format 'deepgemm"),
])  # fmt: skip
def test_wrong_calls_say_what_is_allowed(text, message):
    with pytest.raises(SpecError, match=f"(?s){message}"):
        GemmSpec.parse(text)


def test_signatures_of_presets_are_those_of_their_functions():
    assert presets.preset_signature("cublas_fp32") == "cublas_fp32(arch=hopper, a=bf16, b=none)"
    for name, function in presets.PRESETS.items():
        for parameter in inspect.signature(function).parameters:
            assert parameter in presets.preset_signature(name)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("call", ["{}", "{}()", " {} ( margin = 1 ) "])
def test_a_recipe_is_no_spec_of_one_product(name, call):
    text = call.format(name)
    with pytest.raises(SpecError, match=rf"three products .fprop.*\n.*gemmsim.recipes.{name}\(\).fprop"):
        GemmSpec.parse(text)
    with pytest.raises(SpecError, match="fprop"):
        GemmSpec.of(text)


def test_a_recipe_and_what_else_has_its_name():
    assert GemmSpec.parse(":fp16_accumulate()").accumulator == acc.fp16_accumulate()
    assert GemmSpec.parse("nvfp4 : fp32").has_blocks
    for name, other in (
        ("fp16_accumulate", "':fp16_accumulate()'"),
        ("nvfp4", "'nvfp4 : fp32'"),
        ("mxfp8", "'mxfp8 : "),
    ):
        with pytest.raises(SpecError, match=f"or write {re.escape(other)}"):
            GemmSpec.parse(name)


def test_recipe_calls_are_read():
    assert recipe_call("Hopper_FP8") == ("hopper_fp8", (), {})
    assert recipe_call("mxfp8( e5m2 )") == ("mxfp8", ("e5m2",), {})
    assert recipe_call("hopper_fp8(margin=-2)") == ("hopper_fp8", (), {"margin": -2})
    assert recipe_call("hopper_fp8 : fp32") is recipe_call("deepgemm()") is recipe_call("") is None
    for text in ("hopper_fp8(margin=1, 2)", "hopper_fp8(margin=1, margin=2)"):
        with pytest.raises(SpecError, match="each argument once, those by name last"):
            recipe_call(text)


def test_names_of_presets_and_recipes_are_taken():
    class Mine(acc.Custom):
        def step(self, s, a, b, k):
            return s + a * b

    for name, what in (("deepgemm", "a preset"), ("hopper_fp8", "a recipe")):
        with pytest.raises(SpecError, match=f"names other than '{name}', which is {what}"):
            acc.define(name)(Mine)


@pytest.mark.parametrize("template, name", [
    ("chunked(16, int(18), {})", "outer"),
    ("promote(e5m10, 16, {})", "outer"),
    ("splitk(4, e5m10, {})", "reduce"),
])  # fmt: skip
def test_where_totals_are_added_an_accumulator_that_is_one_rounding_stands_too(template, name):
    for text, fmt in (
        ("int(24, sat)", "int24"),
        ("int(24, saturate, signed=false)", "uint24"),
        ("sequential(fp32/rtz)", "fp32/rtz"),
        ("batch_invariant()", "fp32"),
        ("fixed(24,2)", "fixed(24,2)"),
    ):
        assert Accumulator.parse(template.format(text)) == Accumulator.parse(template.format(fmt))
    for text, instead in (
        ("int(24)", "fixed(24,0), which saturates"),
        ("int(24, sat, when=end)", "fixed(24,0), which saturates"),
        ("int(24, sat, shift=1)", "fixed(24,0), which saturates"),
        ("fixed(24, 2, rounding=rtz)", "fixed(24,2)/rtz, which saturates"),
        ("kahan(fp16/sr8)", "e5m10/sr8"),
        ("Kahan( FP16, mul=bf16 )", "e5m10"),
        ("shuffled(fp16, 3)", "e5m10"),
        ("exact(bf16)", "e8m7"),
        ("sequential(fp16, mul=fp16)", "e5m10"),
        ("sequential(fp16/sr8, seed=1)", "e5m10/sr8"),
        ("sequential(fp16, init=c_last)", "e5m10"),
        ("deepgemm()", "e8m23"),
    ):
        with pytest.raises(SpecError) as caught:
            Accumulator.parse(template.format(text))
        message = str(caught.value)
        assert f"{name}={text}; allowed: a format with its rounding" in message and "Did you mean" not in message
        assert message.endswith(f"Give a format, such as {name}={instead}.")
    with pytest.raises(SpecError, match="kahan, fmt: unknown format 'fp17'"):
        Accumulator.parse(template.format("kahan(fp17)"))


def test_totals_of_scaled_and_of_objects():
    assert acc.scaled("fp16", acc.sequential("bf16")) == acc.scaled("fp16", "bf16")
    assert acc.chunked(8, "fp16", acc.int(24, "saturate")) == acc.chunked(8, "fp16", "int24")
    with pytest.raises(SpecError, match=r"outer=kahan\(e5m10\)"):
        acc.scaled("fp16", acc.kahan("fp16"))
    with pytest.raises(SpecError, match=r"outer=kahan\(e5m10/sr8\)"):
        acc.chunked(8, "fp16", acc.kahan("fp16/sr8"))
