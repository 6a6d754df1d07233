"""Spec strings: what parses to what, the canonical print, and parse(str(s)) == s for anything one can build."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim import acc
from gemmsim.arithmetic import Accumulator, GemmSpec, Sequential, parse_accumulator
from gemmsim.formats import E4M3, FP16, Cast, Overflow, Rounding, RoundingMode, parse, parse_cast

EQUAL = [
    (":e5m10", GemmSpec(accumulator="e5m10")),
    ("e5m10", GemmSpec(accumulator="e5m10")),
    (" e5m10 ", GemmSpec(accumulator=parse("e5m10"))),
    ("mul=e5m10,add=e6m9", GemmSpec(product="e5m10", accumulator="e6m9")),
    ("add=e6m9, mul=e5m10", GemmSpec(accumulator=acc.sequential("e6m9", "e5m10"))),
    ("e4m3*e5m2 : e5m10/sat", GemmSpec("e4m3", "e5m2", accumulator=Cast(FP16, Rounding.RNE, Overflow.SATURATE))),
    ("e4m3 : e5m10", GemmSpec("e4m3", "e4m3", None, "e5m10")),
    ("e4m3 * e4m3 : fp16", GemmSpec(E4M3, E4M3, accumulator=FP16)),
    ("e4m3 * : fp16", GemmSpec(a=E4M3, accumulator=FP16)),
    ("* e4m3 : fp16", GemmSpec(b=E4M3, accumulator=FP16)),
    ("bf16 : mul=e5m10/rtz, add=e6m9", GemmSpec("bf16", "bf16", "e5m10/rtz", "e6m9")),
    ("int8 : fixed(24,0)", GemmSpec("int8", "int8", accumulator="fixed(24,0)")),
    ("fp16 : fp32/sr16", GemmSpec("fp16", "fp16", accumulator="fp32/sr")),
    (":e5m10, arithmetic=fp32", GemmSpec(accumulator="e5m10", arithmetic="fp32")),
    ("mul=e5m10, add=e6m9, arithmetic=fp32", GemmSpec(None, None, "e5m10", "e6m9", arithmetic="fp32")),
    (":e5m10, arithmetic=exact", GemmSpec(accumulator="e5m10")),
    ("e4m3 : e5m10 -> bf16", GemmSpec("e4m3", "e4m3", accumulator="e5m10", out="bf16")),
    (":e5m10->bf16,arithmetic=fp32", GemmSpec(accumulator="e5m10", out="bf16", arithmetic="fp32")),
    (":sequential(e5m2/sr8, seed=3)", GemmSpec(accumulator=acc.sequential("e5m2/sr8", seed=3))),
    (":sequential(e5m2, e4m3, init=c_last)", GemmSpec(accumulator=acc.sequential("e5m2", "e4m3", init="c_last"))),
    (":SEQUENTIAL( add=e5m2 , mul=none )", GemmSpec(accumulator="e5m2")),
    ("fixed(8,4) * float(p=4,emin=-6,emax=8) : float(p=8,emin=-9,emax=9)/rtz", GemmSpec(
        "fixed(8,4)", "float(p=4,emin=-6,emax=8)", accumulator="float(p=8,emin=-9,emax=9)/rtz")),
]  # fmt: skip


@pytest.mark.parametrize("text, spec", EQUAL)
def test_texts_and_the_specs_they_mean(text, spec):
    assert GemmSpec.parse(text) == GemmSpec.of(text) == spec
    assert hash(GemmSpec.parse(text)) == hash(spec)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("e5m10", ":e5m10"),
        ("mul=e5m10,add=e6m9", ":mul=e5m10, add=e6m9"),
        ("e4m3*e4m3:bf16->fp32", "e4m3 : e8m7 -> e8m23"),
        ("e4m3 *:e5m10/nearest", "e4m3 * : e5m10"),
        ("*e4m3:e5m10/sr", "* e4m3 : e5m10/sr16"),
        ("add=e5m10, seed=3, mul=none", ":sequential(e5m10, seed=3)"),
        ("add=e5m10, seed=0x10, mul=e4m3", ":sequential(e5m10, mul=e4m3, seed=16)"),
        ("e5m10 , arithmetic = FP32", ":e5m10, arithmetic=fp32"),
    ],
)
def test_canonical_text(text, canonical):
    spec = GemmSpec.parse(text)
    assert str(spec) == spec.key == canonical
    assert repr(spec) == f"GemmSpec.parse({canonical!r})"


names = st.sampled_from(
    "e4m3 e5m2 fp16 bf16 fp32 fp64 e6m9 e5m10/ftz e3m2 e8m0 ieee_e4m3 e4m3b11 e5m2fnuz binary8p3 binary6p2uf "
    "int8 ufixed(5,9) fixed(8,4,symmetric) fixed(8,-3,unbounded) float(p=4,emin=-3,emax=9,specials=none)".split()
)
modes = st.builds(
    lambda mode, bits: Rounding(mode, bits if mode.is_stochastic else 0),
    st.sampled_from(RoundingMode),
    st.integers(1, 32),
)
casts = st.builds(Cast, st.builds(parse, names), modes, st.sampled_from(Overflow))
maybe_casts = st.none() | casts
accumulators = st.builds(
    Sequential,
    casts,
    maybe_casts,
    seed=st.none() | st.integers(0, 2**64 - 1),
    init=st.sampled_from(["zero", "c_first", "c_last"]),
)
specs = st.builds(GemmSpec, maybe_casts, maybe_casts, accumulator=accumulators, out=maybe_casts)


@settings(deadline=None)
@given(specs)
def test_round_trips(spec):
    assert GemmSpec.parse(str(spec)) == spec
    assert GemmSpec.parse(str(spec)).key == spec.key
    assert GemmSpec.from_json(spec.to_json()) == spec
    assert GemmSpec.from_json(json.dumps(spec.to_json())) == spec
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec and hash(copy) == hash(spec) and copy.key == spec.key
    assert eval(repr(spec)) == spec


@settings(deadline=None)
@given(accumulators)
def test_accumulators_round_trip(accumulator):
    assert Accumulator.parse(str(accumulator)) == accumulator
    assert Accumulator.from_json(accumulator.to_json()) == accumulator
    assert parse_accumulator(accumulator.text(nested=True)) == accumulator
    assert GemmSpec.of(accumulator) == GemmSpec.of(str(accumulator)) == GemmSpec(accumulator=accumulator)
    assert hash(pickle.loads(pickle.dumps(accumulator))) == hash(accumulator)


@settings(deadline=None)
@given(st.text(alphabet="e5m10 43:*->,()=/sqmuladr", max_size=24))
def test_any_text_gives_a_spec_or_a_spec_error(text):
    from gemmsim.arithmetic import SpecError

    try:
        spec = GemmSpec.parse(text)
    except SpecError:
        return
    assert GemmSpec.parse(str(spec)) == spec


def test_of_takes_everything_that_stands_for_a_spec():
    spec = GemmSpec(accumulator="e5m10")
    cast = parse_cast("e5m10")
    for thing in (":e5m10", "e5m10", spec, cast, cast.format, spec.accumulator):
        assert GemmSpec.of(thing) == spec
    assert GemmSpec.of(spec) is spec
    assert GemmSpec.of(":e5m10") is GemmSpec.of(":e5m10")


def test_cache_of_parsed_strings_is_bounded():
    from gemmsim.arithmetic import spec as module

    for seed in range(module._PARSED_LIMIT + 10):
        GemmSpec.of(f":sequential(e5m10, seed={seed})")
    assert len(module._PARSED) <= module._PARSED_LIMIT


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("binary16 : binary32", "e5m10 : e8m23"),
        ("q43 * q52 : h", "ieee_e4m3 * e5m2 : e5m10"),
        ("b : s", "e8m7 : e8m23"),
        (":d/rn", ":e11m52"),
        (":binary64/roundTowardZero", ":e11m52/rtz"),
        (":s/rtn", ":e8m23/rd"),
        (":s/rtp", ":e8m23/ru"),
        (":s/RNDN", ":e8m23"),
        (":s/roundTiesToAway", ":e8m23/rna"),
        (":int(16, sat)", ":int(16, overflow=saturate)"),
        (":int(16, overflow=sat)", ":int(16, overflow=saturate)"),
    ],
)
def test_the_names_of_ieee_754_of_chop_and_of_other_libraries(text, canonical):
    assert str(GemmSpec.of(text)) == canonical


def test_specs_accumulators_and_casts_format_as_text_and_print_short():
    spec, accumulator, cast = (
        GemmSpec.of("e4m3 : chunked(64, kahan(bf16), fp32)"),
        acc.kahan("bf16"),
        parse_cast("bf16/sr"),
    )
    assert f"{spec:45}|" == f"{str(spec):45}|" and f"{accumulator:>20}" == f"{str(accumulator):>20}"
    assert f"{cast:^12}" == f"{str(cast):^12}" and f"{spec}" == str(spec)
    assert repr(accumulator) == "Accumulator.parse('kahan(e8m7)')" and repr(cast) == "parse_cast('e8m7/sr16')"
    assert len(repr(spec.accumulator)) < 60
