"""GemmSpec fields: coercion, the product rule, arithmetic, stochastic, seeds, errors."""

import dataclasses

import pytest

from gemmsim import acc
from gemmsim.arithmetic import GemmSpec, Sequential, SpecError, SpecFormatError, UnsupportedSpec
from gemmsim.formats import E4M3, FP32, Cast, FormatError, parse_cast


def test_product_and_accumulator_mul_are_one_thing():
    spec = GemmSpec(product="e5m10", accumulator="e6m9")
    assert spec.product == spec.accumulator.mul == parse_cast("e5m10")
    assert spec == GemmSpec(accumulator=acc.sequential("e6m9", "e5m10"))
    assert spec == GemmSpec(product="e5m10", accumulator=acc.sequential("e6m9", "e5m10"))
    assert GemmSpec(accumulator="e6m9").product is None
    with pytest.raises(SpecError, match="one rounding of the product"):
        GemmSpec(product="e5m2", accumulator=acc.sequential("e6m9", "e5m10"))


def test_defaults_are_fp32_fused_sequential():
    assert GemmSpec() == GemmSpec(accumulator=Sequential(Cast(FP32)))
    assert str(GemmSpec()) == ":e8m23"


def test_values_are_frozen_and_replaceable():
    spec = GemmSpec.of("e4m3 : e5m10")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.a = None
    assert dataclasses.replace(spec, out="bf16").key == "e4m3 : e5m10 -> e8m7"
    assert {spec: 1}[GemmSpec(E4M3, E4M3, accumulator="fp16")] == 1


@pytest.mark.parametrize(
    "text, stochastic",
    [
        (":e5m10", False),
        (":e5m10/sr", True),
        ("e4m3/sr4 : e5m10", True),
        (":e5m10 -> e4m3/src2", True),
        (":mul=e5m2/srb1, add=e5m10", True),
    ],
)
def test_stochastic(text, stochastic):
    assert GemmSpec.of(text).is_stochastic is stochastic


def test_seed():
    assert GemmSpec.of(":e5m10/sr").fixed_seed is None
    assert GemmSpec.of(":sequential(e5m10/sr, seed=0)").fixed_seed == 0


@pytest.mark.parametrize("text", ["e8m23", "bf16", "e5m10", "e4m3", "int8", "fixed(25,3)", "ufixed(24,2)", "binary8p3"])
def test_fp32_arithmetic_takes_what_binary32_holds(text):
    assert GemmSpec(accumulator=text, arithmetic="fp32").arithmetic == "fp32"


@pytest.mark.parametrize("text", ["fp64", "e8m24", "e9m10", "fixed(26,0)", "ufixed(25,0)", "fixed(8,150)", "e8m7b200"])
def test_fp32_arithmetic_refuses_wider_formats(text):
    for fields in ({"accumulator": text}, {"a": text}, {"product": text}):
        with pytest.raises(SpecError, match="p <= 24"):
            GemmSpec(**fields, arithmetic="fp32")
    assert GemmSpec(out=text, arithmetic="fp32").out == parse_cast(text)


BAD = [
    ("e4m3 : squential(e5m10)", SpecError, ["unknown constructor 'squential'", "Did you mean sequential(...)"]),
    (":fixd(8,4)", SpecError, ["Did you mean fixed(...)"]),
    ("e4m3 : e5m1O", SpecFormatError, ["e5m1O"]),
    ("e4m3q : e5m10", SpecFormatError, ["GemmSpec, a:", "'e4m3q'", "Did you mean 'e4m3'"]),
    (":e5m10/nearst", SpecFormatError, ["nearst", "nearest"]),
    (":e5m10 -> bf61", SpecFormatError, ["GemmSpec, out:", "bf16"]),
    ("a:b:c", SpecError, ["2 times ':'", "at most one"]),
    ("a*b*c : e5m10", SpecError, ["2 times '*'"]),
    (":e5m10 -> e4m3 -> e5m2 -> e5m2", SpecError, ["3 '->' signs"]),
    (":e5m10 -> fp32/rtz -> e5m2", SpecError, ["two roundings in a row", "to nearest even"]),
    ("", SpecError, ["no accumulator", "e4m3 : e5m10"]),
    ("e4m3 :", SpecError, ["no accumulator"]),
    (":e5m10 ->", SpecError, ["nothing after '->'"]),
    (":e5m10 -> e4m3, mul=e5m2", SpecError, ["after '->'", "one output format"]),
    (":sequential(e5m10", SpecError, ["brackets do not match"]),
    (":e5m10)", SpecError, ["brackets do not match"]),
    (":sequential(e5m10, foo=3)", SpecError, ["'foo'", "sequential(add, mul=none, *, seed=none, init=zero)"]),
    (":sequential()", SpecError, ["'add'"]),
    (":sequential(e5m10, e4m3, 7)", SpecError, ["too many positional"]),
    (":sequential(add=e5m10, e4m3)", SpecError, ["after add=", "Move it before the named arguments"]),
    (":chunked(2, mul=fp32, add=bf16, bf16)", SpecError, ["after add=", "sequential(bf16, fp32)"]),
    (":adder_tree([17, 18], int(18, wrap))", SpecError, ["adder_tree: outer=int(18, wrap)", "fixed(18,0)"]),
    (":sequential(e5m10, seed=1, seed=2)", SpecError, ["seed= twice"]),
    (":sequential(e5m10, seed=-1)", SpecError, ["seed", "from 0 to"]),
    (":sequential(e5m10, init=c_frist)", SpecError, ["'c_first'"]),
    ("mul=e5m10", SpecError, ["'add'"]),
    ("e5m10, mul=e4m3", SpecError, ["sequential(e5m10, ...)"]),
    (":e5m10, arithmatic=fp32", SpecError, ["Did you mean arithmetic=fp32"]),
    (":e5m10, arithmetic=fp16", SpecError, ["'exact'", "'fp32'"]),
    (":fp64, arithmetic=fp32", SpecError, ["p <= 24"]),
    (":chunkd(64, e6m9)", SpecError, ["unknown constructor 'chunkd'", "chunked"]),
]


@pytest.mark.parametrize("text, error, fragments", BAD, ids=[text for text, *_ in BAD])
def test_bad_texts_say_asked_allowed_do(text, error, fragments):
    with pytest.raises(error) as caught:
        GemmSpec.of(text)
    message = str(caught.value)
    for fragment in [*fragments, "allowed", "\n  "]:
        assert fragment in message, message


@pytest.mark.parametrize("thing", [3, None, 1.5, ["e5m10"], b":e5m10", object])
def test_other_types(thing):
    with pytest.raises(SpecError, match="allowed: a spec string"):
        GemmSpec.of(thing)
    with pytest.raises(SpecError):
        GemmSpec.parse(thing)
    with pytest.raises(ValueError):
        GemmSpec(accumulator=thing)


def test_errors_have_the_types_one_catches():
    assert issubclass(SpecError, ValueError) and issubclass(UnsupportedSpec, ValueError)
    assert issubclass(SpecFormatError, SpecError) and issubclass(SpecFormatError, FormatError)


@pytest.mark.parametrize(
    "data, fragment",
    [
        ("{", "JSON"),
        ([1], "object"),
        ({"version": 2}, "version 2"),
        ({"version": 1, "acumulator": "e5m10"}, "acumulator"),
        ({"accumulator": {"add": "e5m10"}}, "'name'"),
        ({"accumulator": {"name": "forest", "add": "e5m10"}}, "'forest'"),
        ({"accumulator": {"name": "sequential", "add": "e5m10", "sub": "e5m2"}}, "'sub'"),
        ({"a": 7}, "GemmSpec, a"),
    ],
)
def test_bad_json(data, fragment):
    with pytest.raises(SpecError, match=fragment):
        GemmSpec.from_json(data)


def test_json_is_plain_and_short():
    assert GemmSpec.of("e4m3 : mul=e5m10, add=e6m9 -> bf16").to_json() == {
        "version": 1,
        "spec": "e4m3 : mul=e5m10, add=e6m9 -> e8m7",
        "a": "e4m3",
        "b": "e4m3",
        "accumulator": {"name": "sequential", "add": "e6m9", "mul": "e5m10", "seed": None, "init": "zero"},
        "out": "e8m7",
        "arithmetic": "exact",
    }
    assert GemmSpec.from_json({"accumulator": "e5m10"}) == GemmSpec.of(":e5m10")
