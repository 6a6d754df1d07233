"""Every value prints, reads back and travels: str, repr, JSON, pickle, copy; and unknown text is refused helpfully."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmsim.formats as formats
from gemmsim.formats import (
    NAMED,
    Cast,
    FixedFormat,
    FloatFormat,
    FormatError,
    Overflow,
    Rounding,
    RoundingMode,
    Specials,
    aliases,
    format_from_json,
    names,
    parse,
    parse_cast,
    parse_overflow,
    parse_rounding,
    register,
)

NAMESPACE = vars(formats)
WIDTHS = [f"e{x}m{y}" for x in range(1, 12) for y in (0, 1, 2, 3, 4, 7, 10, 23, 52) if (x, y) != (1, 0)]


def round_trips(value, parser, from_json):
    """``value`` after every way of writing it down."""
    yield parser(str(value))
    yield eval(repr(value), dict(NAMESPACE))
    yield from_json(json.loads(json.dumps(value.to_json())))
    yield pickle.loads(pickle.dumps(value))
    yield copy.deepcopy(value)


def check_format(fmt):
    for other in round_trips(fmt, parse, format_from_json):
        assert other == fmt and hash(other) == hash(fmt) and str(other) == str(fmt)
    assert type(fmt).from_json(fmt.to_json()) == fmt


@pytest.mark.parametrize("fmt", [entry.format for entry in NAMED], ids=str)
def test_named_formats_round_trip(fmt):
    check_format(fmt)


def test_widths_round_trip_with_every_prefix_and_suffix():
    for widths in WIDTHS:
        for name in (widths, f"ieee_{widths}", f"{widths}fnuz"):
            if name == "e11m52fnuz":  # one binade below float64
                continue
            fmt = parse(name)
            check_format(fmt)
            assert (fmt.bits, fmt.p) == (fmt.exponent_bits + fmt.p - 1 + fmt.signed, int(widths.split("m")[1]) + 1)
            if fmt.bits < 20:
                suffix = "fnuz" if name.endswith("fnuz") else ""
                shifted = parse(f"{name.removesuffix('fnuz')}b{fmt.bias + 1}{suffix}")
                assert (shifted.bias, shifted.specials, shifted.max) == (fmt.bias + 1, fmt.specials, fmt.max / 2)
                check_format(shifted)
            if fmt.specials is not Specials.SCALE and fmt.has_normals:
                flushed = parse(f"{name}/ftz")
                assert flushed != fmt and not flushed.has_subnormals
                check_format(flushed)


def float_formats():
    """Floats with independent p, emin and emax, and every choice of specials that allows them."""
    others = [s for s in Specials if not s.is_p3109]
    fields = st.tuples(
        st.integers(1, 53),
        st.integers(-900, 900),
        st.integers(0, 1200),
        st.sampled_from(others),
        st.booleans(),
        st.booleans(),
    )

    def build(values):
        p, emin, span, specials, signed, subnormals = values
        if specials is Specials.SCALE:
            p, signed, subnormals = 1, False, True
        signed = signed or specials is Specials.FNUZ
        return FloatFormat(p, emin, min(emin + span, 1023), specials, signed, subnormals)

    return fields.map(build)


def fixed_formats():
    flags = st.sampled_from([(True, False, True), (True, True, True), (False, False, True), (True, False, False)])
    return st.tuples(st.integers(1, 53), st.integers(-900, 1000), flags).map(lambda v: FixedFormat(v[0], v[1], *v[2]))


def binary_formats():
    def build(values):
        k, p, signed, extended, bias = values
        return formats.binary_format(k, min(p, k - signed), signed=signed, extended=extended, bias=bias)

    bias = st.none() | st.integers(-300, 300)
    return st.tuples(st.integers(3, 16), st.integers(1, 16), st.booleans(), st.booleans(), bias).map(build)


roundings = st.builds(Rounding, st.sampled_from([m for m in RoundingMode if not m.is_stochastic])) | st.builds(
    Rounding, st.sampled_from([m for m in RoundingMode if m.is_stochastic]), st.integers(1, 32)
)


@settings(max_examples=300, deadline=None)
@given(float_formats() | fixed_formats() | binary_formats())
def test_any_format_round_trips(fmt):
    check_format(fmt)


@settings(max_examples=300, deadline=None)
@given(float_formats() | fixed_formats() | binary_formats(), roundings, st.sampled_from(Overflow))
def test_any_cast_round_trips(fmt, rounding, overflow):
    cast = Cast(fmt, rounding, overflow)
    for other in round_trips(cast, parse_cast, Cast.from_json):
        assert other == cast and hash(other) == hash(cast)
    assert parse_cast(str(cast).replace(",", " , ").upper()) == cast


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="em0123456789b/fntuzixed(),=-pas_r ", max_size=16))
def test_any_text_is_a_format_that_prints_back_or_a_format_error(text):
    try:
        fmt = parse(text)
    except FormatError as error:
        assert "allowed: " in str(error)
    else:
        assert parse(str(fmt)) == fmt


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("E4M3", "e4m3"),
        (" fixed( 8 , 4 ) ", "fixed(8,4)"),
        ("fp16", "e5m10"),
        ("half", "e5m10"),
        ("bfloat16", "e8m7"),
        ("tf32", "e8m10"),
        ("float", "e8m23"),
        ("double", "e11m52"),
        ("torch.float8_e4m3fn", "e4m3"),
        ("float8_e4m3", "ieee_e4m3"),
        ("e4m3fn", "e4m3"),
        ("ieee_e5m2", "e5m2"),
        ("ieee_e4m3", "ieee_e4m3"),
        ("e4m3b7", "e4m3"),
        ("e4m3b8", "e4m3b8"),
        ("e5m10b-3", "e5m10b-3"),
        ("e4m3b8fnuz", "e4m3fnuz"),
        ("float8_e4m3b11fnuz", "e4m3b11fnuz"),
        ("binary8p3", "binary8p3se"),
        ("int8", "fixed(8,0)"),
        ("uint4", "ufixed(4,0)"),
        ("int5", "fixed(5,0)"),
        ("float(p=11,emin=-14,emax=15)", "e5m10"),
        ("float(p=4,emin=-6,emax=8,specials=nan_only)", "e4m3"),
        ("float(p=3, emin=-9, emax=2)/ftz", "float(p=3,emin=-9,emax=2)/ftz"),
        ("float(unsigned,emax=4,emin=0,p=2,specials=none)", "float(p=2,emin=0,emax=4,specials=none,unsigned)"),
    ],
)
def test_canonical_names(text, canonical):
    assert str(parse(text)) == canonical


def test_plain_names_are_ieee_like_except_the_ocp_ones():
    ocp = {"e4m3": Specials.NAN_ONLY, "e8m0": Specials.SCALE, "e3m2": Specials.NONE, "e2m3": Specials.NONE}
    ocp["e2m1"] = Specials.NONE
    for name in [f"e{x}m{y}" for x in range(1, 12) for y in range(53) if (x, y) != (1, 0)]:
        fmt = parse(name)
        assert str(fmt) == name and fmt.specials is ocp.get(name, Specials.IEEE)
        assert fmt.exponent_bits == int(name[1:].split("m")[0])
    assert (parse("e1m4").emin, parse("e1m4").emax, parse("e1m4").max) == (1, 0, 1.875)


@pytest.mark.parametrize(
    "text, message",
    [
        ("e4m3fnz", "unknown format 'e4m3fnz'.*Did you mean 'e4m3fnuz'"),
        ("bfloat6", "Did you mean 'bfloat16'"),
        ("flaot16", "Did you mean 'float16'"),
        ("nonsense!", "unknown format 'nonsense!'; allowed: names such as e4m3.*gemmsim formats"),
        ("", "unknown format ''"),
        ("e12m3", "format 'e12m3'; allowed: eXmY with X from 1 to 11 and Y from 0 to 52"),
        ("e5m53", "Y from 0 to 52"),
        ("e0m3", "X from 1 to 11"),
        ("e1m0", "no value but zero"),
        ("e11m52fnuz", "emin-p.1 >= -1074"),
        ("e5m10b5000", "float64 holds every value"),
        ("ieee_e4m3fnuz", "either the prefix ieee_ or the suffix fnuz"),
        ("binary8p8", "p=8; allowed: an integer from 1 to 7"),
        ("binary2p1", "k=2; allowed: an integer from 3 to 16"),
        ("fixed(8)", r"allowed: fixed\(bits,frac\[,symmetric\|,unbounded\]\)"),
        ("fixed(8,x)", "'x' is not an integer"),
        ("fixed(8,4,symetric)", "Did you mean 'symmetric'"),
        ("fixed(8,4,symmetric,unbounded)", "symmetric=True with signed=True, clamp=False"),
        ("int0", "bits=0; allowed: an integer from 1 to 53"),
        ("float(p=3,emin=0)", "missing emax"),
        ("float(p=3,emin=0,emax=1,p=4)", "Give each field once"),
        ("float(p=3,emim=0,emax=1)", "Did you mean 'emin'"),
        ("float(p=3,emin=0,emax=1,specials=nun)", "unknown specials 'nun'"),
        ("float(p=3,emin=0,emax=1,unsigned=1)", "field 'unsigned=1'"),
        ("e4m3/rtz", "'rtz'.*(.|\n)*parse_cast"),
        ("e4m3/sat", "parse_cast"),
        ("e4m3/fzt", "allowed: /ftz"),
        ("e4m3/ftz/ftz", "allowed: /ftz, once"),
        ("int8/ftz", "floating-point formats"),
        ("e8m0/ftz", "p=1, signed=False, subnormals=True"),
    ],
)
def test_unknown_formats_are_refused_with_help(text, message):
    with pytest.raises(FormatError, match=f"(?s){message}"):
        parse(text)


def test_other_types_are_refused():
    for call in (parse, parse_cast, parse_rounding, parse_overflow, format_from_json):
        with pytest.raises(FormatError, match="allowed: "):
            call(8)
    with pytest.raises(FormatError, match="allowed: p, emin, emax"):
        FloatFormat.from_json({"p": 3})
    with pytest.raises(FormatError, match="unknown width; allowed: bits, frac"):
        FixedFormat.from_json({"bits": 3, "frac": 1, "width": 3})
    with pytest.raises(FormatError, match="kind='fixed'; allowed: 'float'"):
        FloatFormat.from_json(FixedFormat(8, 4).to_json())


# Roundings and casts


@pytest.mark.parametrize(
    "name, rounding",
    [
        *((alias, Rounding.RNE) for alias in ("rne", "nearest", "nearest_even", "RNE", "nearest-even")),
        *((alias, Rounding.RNA) for alias in ("rna", "nearest_away", "half_away")),
        *((alias, Rounding.RTZ) for alias in ("rtz", "rz", "toward_zero", "truncate")),
        *((alias, Rounding.RU) for alias in ("ru", "up")),
        *((alias, Rounding.RD) for alias in ("rd", "down")),
        *((alias, Rounding.RO) for alias in ("ro", "odd")),
        *((alias, Rounding(RoundingMode.SR, 16)) for alias in ("sr", "stochastic", "sr16", "sr(16)", "stochastic_a")),
        *((alias, Rounding(RoundingMode.SR, 8)) for alias in ("sr8", "sr(8)", "stochastic(8)")),
        *((alias, Rounding(RoundingMode.SRB, 4)) for alias in ("srb4", "stochastic_b(4)")),
        *((alias, Rounding(RoundingMode.SRC, 16)) for alias in ("src", "stochastic_c")),
    ],
)
def test_rounding_names(name, rounding):
    assert parse_rounding(name) == rounding
    for other in round_trips(rounding, parse_rounding, Rounding.from_json):
        assert other == rounding and hash(other) == hash(rounding)
    assert rounding.is_stochastic == rounding.mode.is_stochastic == (rounding.bits > 0)


def test_default_random_bits_are_16():
    assert Rounding(RoundingMode.SR) == Rounding.SR and str(Rounding.SR) == "sr16" and str(Rounding.RNE) == "rne"
    assert [str(r) for r in (Rounding.SRB, Rounding.SRC)] == ["srb16", "src16"]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: parse_rounding("neerest"), "unknown rounding 'neerest'. Did you mean 'nearest'.*allowed: rne "),
        (lambda: parse_rounding("sr0"), "0 random bits; allowed: 1 to 32"),
        (lambda: parse_rounding("sr33"), "33 random bits; allowed: 1 to 32"),
        (lambda: parse_rounding("rne8"), "unknown rounding"),
        (lambda: Rounding(RoundingMode.RNE, 8), "random bits only for sr"),
        (lambda: Rounding(RoundingMode.SR, 33), "bits=33; allowed: an integer from 0 to 32"),
        (lambda: Rounding("rne"), "mode='rne'; allowed: a RoundingMode"),
        (lambda: parse_overflow("saturat"), "unknown overflow policy 'saturat'.*Did you mean 'saturate'"),
    ],
)
def test_unknown_roundings_are_refused_with_help(call, message):
    with pytest.raises(FormatError, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize(
    "name, policy",
    [
        *((name, Overflow.INFINITY) for name in ("infinity", "inf", "satnone", "overflow_infinity")),
        *((name, Overflow.SATURATE) for name in ("sat", "saturate", "SAT")),
        *((name, Overflow.PROPAGATE) for name in ("satprop", "propagate", "saturate_propagate")),
        *((name, Overflow.CLAMP) for name in ("clamp", "satfinite", "saturate_finite")),
    ],
)
def test_overflow_names(name, policy):
    assert parse_overflow(name) is policy
    assert all(other is policy for other in round_trips(policy, parse_overflow, Overflow.from_json))


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("e4m3", "e4m3"),
        ("fp16/rtz", "e5m10/rtz"),
        ("e5m10/rne", "e5m10"),
        ("e5m10/infinity", "e5m10"),
        ("e5m10/sr", "e5m10/sr16"),
        ("e5m10/sr8/sat", "e5m10/sr8/sat"),
        ("e5m10/sat/sr(8)/ftz", "e5m10/ftz/sr8/sat"),
        ("e5m10/ftz", "e5m10/ftz"),
        ("binary8p3/satprop", "binary8p3se/satprop"),
        ("fixed(8,4,symmetric)/rna", "fixed(8,4,symmetric)/rna"),
        ("float(p=3,emin=-9,emax=2)/srb4/clamp", "float(p=3,emin=-9,emax=2)/srb4/clamp"),
    ],
)
def test_casts(text, canonical):
    cast = parse_cast(text)
    assert str(cast) == canonical and parse_cast(cast) is cast
    assert cast.is_stochastic == ("sr" in text)
    assert cast.describe().startswith(str(cast.format))


def test_a_format_becomes_a_cast_with_defaults():
    assert parse_cast(parse("e4m3")) == Cast(parse("e4m3"), Rounding.RNE, Overflow.INFINITY) == Cast.from_json("e4m3")


@pytest.mark.parametrize(
    "text, message",
    [
        ("e4m3/neerest", "unknown option 'neerest'.*Did you mean 'nearest'"),
        ("e4m3/rne/rtz", "'rne' and 'rtz'; allowed: one rounding"),
        ("e4m3/sat/clamp", "'sat' and 'clamp'; allowed: one overflow policy"),
        ("e4m3/ftz/ftz", "allowed: one ftz"),
        ("e4m9z/rne", "unknown format"),
        ("int8/ftz", "floating-point formats"),
        ("e4m3/", "unknown option ''"),
    ],
)
def test_unknown_casts_are_refused_with_help(text, message):
    with pytest.raises(FormatError, match=f"(?s){message}"):
        parse_cast(text)


def test_cast_fields_are_checked():
    for fields in (("e4m3",), (parse("e4m3"), "rne"), (parse("e4m3"), Rounding.RNE, "sat")):
        with pytest.raises(FormatError, match=r"(?s)allowed: .*parse_cast"):
            Cast(*fields)


# Registry


def test_every_known_name_parses_and_aliases_are_the_others():
    assert names() == sorted(set(names()))
    for name in names():
        fmt = parse(name)
        assert name == str(fmt) or name in aliases(fmt)
    assert aliases(parse("fp16")) == ["binary16", "float16", "fp16", "h", "half"]


@pytest.fixture
def no_registered_names(monkeypatch):
    from gemmsim.formats import parsing as text

    monkeypatch.setattr(text, "_REGISTERED", {})
    text._parse.cache_clear()
    yield
    text._parse.cache_clear()


def test_registered_names_parse_and_leave_the_canonical_name(no_registered_names):
    fmt = FloatFormat(6, -30, 31)
    with pytest.raises(FormatError, match="unknown format 'mine'"):
        parse("mine")
    register("Mine", fmt)
    register("mine", fmt)
    assert parse("mine/ftz") == FloatFormat(6, -30, 31, subnormals=False)
    assert "mine" in names() and aliases(fmt) == ["mine"] and str(fmt) == "e6m5"


@pytest.mark.parametrize(
    "name", ["e4m3", "fp16", "e7m7", "int3", "sr8", "rne", "sat", "ftz", "a-b", "2x", "", None, "x y"]
)
def test_names_that_mean_something_else_cannot_be_registered(name, no_registered_names):
    with pytest.raises(FormatError, match="allowed: "):
        register(name, FloatFormat(6, -30, 30))


def test_only_formats_can_be_registered(no_registered_names):
    with pytest.raises(FormatError, match="a format of single numbers"):
        register("mine", "e4m3")
