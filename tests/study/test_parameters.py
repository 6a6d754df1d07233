"""Lists of numbers, accumulators and distributions as people write them; parameters as options."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gemmsim as gs
from gemmsim import study
from gemmsim.study import curves, distributions, operands, parameters
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.growth import GrowthParameters
from gemmsim.study.registry import with_parameters

LISTS = {
    "64": [64],
    "64,256": [64, 256],
    "2^6": [64],
    "2^6:2^9:x2": [64, 128, 256, 512],
    "10:100:x3": [10, 30, 90],
    "0:10:+5": [0, 5, 10],
    "1, 2^3 : 2^5 : x2 ,7": [1, 8, 16, 32, 7],
    "3,3,1": [3, 1],
    "5:4:+1,2": [2],
}
NO_LISTS = ["", "a", "1,,2", "1:2", "1:8:2", "1:8:*2", "-1", "1.5", "1e3", "2^^3", "2^99", "1:8:x1", "1:8:+0", "0:8:x2"]


@pytest.mark.parametrize("text", LISTS)
def test_numbers(text):
    assert list(parameters.numbers(text, "K")) == LISTS[text]


@pytest.mark.parametrize("text", [*NO_LISTS, "0:2000000:+1", "5:4:+1"])
def test_what_lists_no_numbers_says_what_is_allowed(text):
    with pytest.raises(StudyError, match="K"):
        parameters.numbers(text, "K")


def test_numbers_in_python_and_their_limits():
    assert parameters.numbers([4, 2, 4], "K") == (4, 2) and parameters.numbers(3, "K") == (3,)
    with pytest.raises(StudyError, match="K = 0; allowed: 1 to"):
        parameters.numbers([1, 0], "K", least=1)
    with pytest.raises(StudyError, match="True"):
        parameters.numbers([True], "K")


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 9))
def test_a_range_is_all_multiples_up_to_its_end(low, high, step):
    found = [] if low > high else list(parameters.numbers(f"{low}:{high}:x{step}", "K"))
    assert found == [low * step**i for i in range(40) if low * step**i <= high]


def test_curves_have_labels_and_canonical_specs(tmp_path):
    given = ["e5m10", "mine = e4m3 : chunked(64, bf16)", "x=kahan(e5m10, mul=e5m10)", ": fp32"]
    found = curves.curves(given)
    assert [(c.label, c.spec) for c in found] == [
        ("e5m10", ":e5m10"),
        ("mine", "e4m3 : chunked(64, e8m7)"),
        ("x", ":kahan(e5m10, mul=e5m10)"),
        ("fp32", str(gs.GemmSpec.of("fp32"))),
    ]
    path = tmp_path / "specs.txt"
    path.write_text("# comment\n\n" + "\n".join(given) + "  # the last\n")
    assert curves.curves(f"@{path}") == found
    assert curves.curves([*found, "e5m10"]) == found


def test_curves_that_cannot_be_read(tmp_path):
    with pytest.raises(StudyError, match="no accumulator"):
        curves.curves([])
    with pytest.raises(StudyError, match="cannot read accumulators from .*No such file"):
        curves.curves([f"@{tmp_path}/none"])
    with pytest.raises(StudyError, match="two accumulators are labelled 'a'"):
        curves.curves(["a = e5m10", "a = e5m2"])
    path = tmp_path / "specs.txt"
    path.write_text("e5m10\nchunkd(4, e5m10)\n")
    with pytest.raises(StudyError, match="line 2: .*chunked"):
        curves.curves([f"@{path}"])
    with pytest.raises(gs.FormatError):
        curves.curves(["e99m99"])


@pytest.mark.parametrize(
    ("spec", "unit"),
    [
        ("e5m10", 2**-11),
        ("chunked(64, e6m9, fp32)", 2**-10),
        ("exact(fp64)", 2**-53),
        ("int(20)", None),
        ("bf16/rtz", 2**-8),
    ],
)
def test_unit_roundoff_is_that_of_the_narrowest_register(spec, unit):
    assert curves.unit_roundoff(gs.GemmSpec.of(spec)) == unit


@pytest.mark.parametrize("name", distributions._FAMILIES)
def test_each_distribution_is_the_same_every_time_and_of_its_shape(name):
    numbers = {"integers": "(-5,9)", "outliers": "(0.01,64)", "normal": "(1,2)", "uniform": "(1,1)"}
    family = distributions._FAMILIES[name]
    text = name + (numbers.get(name, "(2)") if family.numbers else "")
    a, b = distributions.draw(text, 50, 200, 3, seed=1)
    again, _ = distributions.draw(text, 50, 200, 3, seed=1)
    other, _ = distributions.draw(text, 50, 200, 3, seed=2)
    assert a.shape == (50, 200) and b.shape == (200, 3) and a.dtype == torch.float32
    assert torch.equal(a, again) and (name == "ones" or not torch.equal(a, other))
    assert bool(torch.isfinite(a).all())


def test_distributions_have_their_moments():
    def moments(text):
        a, _ = distributions.draw(text, 1000, 1000, 1, seed=0)
        return float(a.double().mean()), float(a.double().std())

    # Four standard errors of a million draws: 4 sigma / 1000.
    assert moments("randn") == pytest.approx((0, 1), abs=4e-3)
    assert moments("uniform(1,1)") == pytest.approx((1, 1), abs=4e-3)
    assert moments("rand01") == pytest.approx((0.5, 12**-0.5), abs=2e-3)
    assert moments("normal(3,2)") == pytest.approx((3, 2), abs=8e-3)
    a, _ = distributions.draw("integers(-2,2)", 1000, 100, 1, seed=0)
    assert set(a.unique().tolist()) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    _, b = distributions.draw("fan_in", 1, 400, 1000, seed=0)
    assert float(b.std()) == pytest.approx(1 / 20, rel=4 / (2 * 400_000) ** 0.5)


def test_distributions_as_text():
    assert distributions.distributions("randn, uniform(1,1)*ones,randn", "dist") == ("randn", "uniform(1,1)*ones")
    assert distributions.distributions(["randn*randn"], "dist") == ("randn",)
    for text, says in {
        "rand": "unknown distribution 'rand'.*Did you mean",
        "randn(1)": "allowed: randn",
        "lognormal": r"lognormal\(deviation\)",
        "uniform(1,x)": r"uniform\(mean, deviation\)",
        "randn*": "unknown distribution",
        "": "lists no distribution",
    }.items():
        with pytest.raises(StudyError, match=says):
            distributions.distributions(text, "dist")
    with pytest.raises(StudyError, match="lowest <= highest"):
        distributions.draw("integers(3,2)", 1, 1, 1, 0)


def test_operands_come_into_a_format():
    place = operands.placement("e4m3/row", "in")
    x = torch.tensor([[1.0, -2.0, 0.3], [0.0, 0.0, 0.0], [1e-30, 3e-30, 0.0]])
    row = place(x, 1)
    assert row.abs().amax(1).tolist() == [448.0, 0.0, 448.0]
    assert torch.equal(gs.quantize(row, "e4m3"), row)
    assert float(operands.placement("e4m3/tensor", "in")(x, 1).abs().max()) == 448.0
    assert torch.equal(operands.placement("e4m3/none", "in")(x, 1), gs.quantize(x, "e4m3"))
    assert operands.placement("", "in")(x, 1) is x
    assert str(operands.placement("e4m3", "in")) == "e4m3/row"
    with pytest.raises(StudyError, match="row, tensor, none"):
        operands.placement("e4m3/column", "in")
    with pytest.raises(gs.FormatError):
        operands.placement("e4m33x/row", "in")


def test_parameters_read_the_same_in_python_and_as_text():
    as_text = GrowthParameters.of(
        {"spec": ["e5m10"], "K": "2^6:2^8:x2", "dist": "randn,rand01", "M": "8", "in": "e4m3/row"}
    )
    in_python = GrowthParameters(spec=["e5m10"], K=[64, 128, 256], dist=["randn", "rand01"], M=8, in_="e4m3")
    assert as_text == in_python and hash(as_text) == hash(in_python)
    assert dataclasses.replace(as_text, K="64").K == (64,)
    words = as_text.arguments()
    assert words == ["--spec", "e5m10 = :e5m10", "--K", "64,128,256", "--M", "8", "--in", "e4m3/row"]
    assert GrowthParameters.of({"spec": words[1:2], "K": words[3], "M": words[5], "in": words[7]}) == as_text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"Kk": 3}, "no parameter 'Kk'.*Did you mean 'K'"),
        ({"M": 0}, "M = 0; allowed"),
        ({"M": "x"}, "M = 'x'; allowed"),
        ({"M": 1.5}, "M = 1.5; allowed"),
        ({"scale": "nan"}, "scale = 'nan'; allowed"),
        ({"metric": "rel_fr"}, "Did you mean 'rel_fro'"),
        ({"seeds": True}, "seeds = True"),
    ],
)
def test_bad_parameters_say_what_is_allowed(given, says):
    with pytest.raises(StudyError, match=says):
        GrowthParameters.of(given)


def test_every_kind_has_options_with_words_and_defaults_that_read():
    for name in study.kinds():
        kind = study.kind(name)
        assert kind.parameters.kind == name and kind.about
        for option in study.options(kind.parameters):
            assert option.help.endswith("."), (name, option.name)
    with pytest.raises(StudyError, match="Did you mean 'growth'"):
        study.kind("grwth")


@pytest.mark.filterwarnings("default:.*the keyword is spec now:DeprecationWarning")
def test_the_former_name_of_a_spec():
    """``acc`` was ``spec`` before."""
    with pytest.warns(DeprecationWarning, match="growth: the keyword is spec now, and acc an older name") as found:
        kind = study.kind("growth")(acc=["e5m10"], K="16")
    assert found[0].filename == __file__
    assert kind.parts == study.kind("growth")(spec=["e5m10"], K="16").parts
    assert kind.arguments()[0] == "--spec"
    with pytest.raises(StudyError, match="spec and acc, its former name"):
        study.kind("growth")(acc=["e5m10"], spec=["e5m10"])
    with pytest.raises(StudyError, match="no parameter 'acc'"):
        study.kind("integer")(acc=["e5m10"])


def test_files_of_earlier_versions_say_acc():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = with_parameters("growth", [{"acc": ["e5m10"], "K": "16"}])
    assert found.parts == (GrowthParameters.of({"spec": ["e5m10"], "K": "16"}),)
