"""Metrics against the same formulas in rationals; bounds against measured errors; verdicts."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

import gemmsim as gs
from gemmsim.study import bounds, metrics, operands
from gemmsim.study.checks import Expectation, judge, passed
from gemmsim.study.curves import unit_roundoff

SPECS = [
    "e8m10",
    "e8m4/rtz",
    "chunked(8, e8m4)",
    "pairwise(e8m4)",
    "kahan(e8m10)",
    "interleaved(4, e8m4)",
    "splitk(4, e8m4, e8m4)",
]


def exactly(a: torch.Tensor, b: torch.Tensor) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    def sums(f):
        rows, columns = a.tolist(), b.T.tolist()
        return [
            [sum((f(Fraction(x) * Fraction(y)) for x, y in zip(r, c, strict=True)), Fraction(0)) for c in columns]
            for r in rows
        ]

    return sums(lambda q: q), sums(abs)


@pytest.mark.parametrize("spec", SPECS[:3])
@pytest.mark.parametrize("dist", ["randn", "rand01", "wide(4)"])
def test_error_columns_are_their_formulas(spec, dist):
    inputs = operands.drawn(dist, 8, 64, 8, 0, operands.Placement())
    chosen = gs.GemmSpec.of(spec)
    result = gs.qmatmul(inputs.a, inputs.b, chosen)
    unit = unit_roundoff(chosen)
    found = metrics.errors(result, inputs, unit)
    truth, size = exactly(inputs.a, inputs.b)
    pairs = [
        (Fraction(y), t, s)
        for ys, ts, ss in zip(result.tolist(), truth, size, strict=True)
        for y, t, s in zip(ys, ts, ss, strict=True)
    ]
    e = [y - t for y, t, _ in pairs]
    wanted = {
        "rel_fro": math.sqrt(sum(x * x for x in e) / sum(t * t for _, t, _ in pairs)),
        "max_rel": max(abs(x / t) for x, (_, t, _) in zip(e, pairs, strict=True)),
        "mean_abs": sum(map(abs, e)) / len(e),
        "ratio": sum(y / t for y, t, _ in pairs) / len(e),
        "bias": sum(x * (1 if t > 0 else -1) for x, (_, t, _) in zip(e, pairs, strict=True)) / len(e),
        "bwd_err_u_mean": sum(abs(x) / s for x, (_, _, s) in zip(e, pairs, strict=True)) / len(e) / Fraction(unit),
        "bwd_err_u_max": max(abs(x) / s for x, (_, _, s) in zip(e, pairs, strict=True)) / Fraction(unit),
        "max_err_over_s": max(abs(x) / s for x, (_, _, s) in zip(e, pairs, strict=True)),
    }
    for name, value in wanted.items():
        # e is a difference of float64 numbers near one another; sums of 64 of them in float64: 2^-53 (K + 64) of S, and
        # S / |e| is at most 2^13 here.
        assert found[name] == pytest.approx(float(value), rel=(64 + 64) * 2.0**-53 * 2**13), name
    assert found["nonfinite"] == 0.0


def test_standard_errors_take_rows_as_the_independent_draws():
    error = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
    truth = torch.ones(2, 2)
    mean, se = metrics.signed_bias(error.flatten(), truth.flatten(), torch.ones(4, dtype=torch.bool), truth.shape)
    assert mean == 2.0 and se == 1.0  # means of rows 1 and 3: deviation sqrt 2, over sqrt 2


def test_what_has_no_value_is_none_and_what_is_not_finite_is_counted():
    a = torch.tensor([[65504.0, 65504.0], [0.0, 0.0]])
    inputs = operands.of_tensors(a, torch.ones(2, 1))
    found = metrics.errors(gs.qmatmul(a, torch.ones(2, 1), "e5m10"), inputs, 2**-11)
    assert found["nonfinite"] == 0.5 and found["max_rel"] is None and found["rel_fro"] == 0.0
    empty = operands.of_tensors(torch.ones(0, 3), torch.ones(3, 2))
    assert set(metrics.errors(torch.ones(0, 2), empty, 2**-11).values()) <= {None, 0.0}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dist", ["rand01", "randn"])
def test_deterministic_bounds_hold(spec, dist):
    chosen = gs.GemmSpec.of(spec)
    for k in (1, 7, 64, 100):
        inputs = operands.drawn(dist, 16, k, 16, k, operands.Placement())
        found = metrics.errors(gs.qmatmul(inputs.a, inputs.b, chosen), inputs, unit_roundoff(chosen))
        bound = bounds.deterministic(chosen.accumulator, k)
        # To first order: (1 + u)^n - 1 <= n u / (1 - n u).
        assert found["bwd_err_u_max"] <= bound / (1 - min(0.9, bound * unit_roundoff(chosen))) + 1


@pytest.mark.parametrize("fmt", ["bf16", "e5m4", "e5m4/rtz", "bf16/sr"])
@pytest.mark.parametrize("name", ["kahan", "neumaier", "two_sum", "fast_two_sum"])
@pytest.mark.parametrize("dist", ["rand01", "randn"])
def test_no_compensated_sum_errs_by_more_than_its_bound_up_to_2_18_terms(name, fmt, dist):
    chosen = gs.GemmSpec.of(f"{name}({fmt})")
    for k in (1, 2, 3, 4, 16, 64, 256, 1024, 4096, 2**14, 2**16, 2**18):
        bound = bounds.deterministic(chosen.accumulator, k)
        if bound is None:
            continue  # an error as large as S is not excluded
        inputs = operands.drawn(dist, 8, k, 8, k, operands.Placement())
        found = metrics.errors(gs.qmatmul(inputs.a, inputs.b, chosen, seed=0), inputs, unit_roundoff(chosen))
        assert found["bwd_err_u_max"] <= bound < 1 / unit_roundoff(chosen), k


def test_bounds_of_compensated_sums_have_terms_of_second_order_and_end_where_they_say_nothing():
    def bound(text, k):
        return bounds.deterministic(gs.GemmSpec.of(text).accumulator, k)

    unit = 2.0**-24
    assert bound("kahan(fp32)", 2**18) == pytest.approx(3 + 6 * 2**18 * unit, rel=0.01)
    assert bound("two_sum(fp32)", 2**18) == pytest.approx(2 + (2**18) ** 2 * unit, rel=0.01)
    assert bound("fast_two_sum(fp32)", 2**10) == pytest.approx(3 + (2**10) ** 2 * unit, rel=0.01)
    assert bound("kahan(bf16)", 2**18) is None and bound("neumaier(bf16)", 2**12) is None
    assert bound("kahan(bf16, bf16)", 64) > bound("kahan(bf16)", 64) + 0.9  # the product's rounding, too
    assert bound("neumaier(bf16/rtz)", 4) is None  # to nearest only
    assert bounds.probabilistic(gs.GemmSpec.of("kahan(bf16)").accumulator, 64) is None


def test_the_probabilistic_bound_holds_in_all_but_a_few_draws():
    accumulator = gs.GemmSpec.of("e8m10/sr").accumulator
    inputs = operands.drawn("rand01", 20, 512, 10, 0, operands.Placement())
    found = gs.qmatmul(inputs.a, inputs.b, "e8m10/sr", seed=1).double()
    backward = (found - inputs.truth).abs() / inputs.size / 2**-11
    # Stochastic rounding errs by less than one unit, twice the half of rounding to nearest.
    assert float((backward <= 2 * bounds.probabilistic(accumulator, 512)).double().mean()) >= 0.95


def test_orders_without_a_bound_have_none():
    for text in ("exact(fp32)", "int(20)", "hw(hopper, wgmma, e4m3)"):
        assert bounds.deterministic(gs.GemmSpec.of(text).accumulator, 64) is None, text
    assert bounds.probabilistic(gs.GemmSpec.of("e5m10/rtz").accumulator, 64) is None
    assert bounds.additions(gs.GemmSpec.of("chunked(64, e5m10)").accumulator, 256) == 64 + 4
    assert bounds.additions(gs.GemmSpec.of("pairwise(e5m10, 8)").accumulator, 64) == 8 + 3


ROWS = [
    {"label": "a", "K": 1, "x": 2.0},
    {"label": "a", "K": 2, "x": 4.0},
    {"label": "b", "K": 1, "x": 1.0},
    {"label": "b", "K": 2, "x": None},
]


def expect(of, low, high, **more):
    return Expectation(tuple(of.items()), "x", low, high, "derived", **more)


@pytest.mark.parametrize(
    ("expectation", "word"),
    [
        (expect({"label": "a"}, 2, 4), "pass"),
        (expect({"label": "a"}, 2, 3), "fail"),
        (expect({"label": "a", "K": 1}, 2, 2), "pass"),
        (expect({"label": "b"}, 0, 9), "fail"),  # a value that is none
        (expect({"label": "c"}, 0, 9), "fail"),  # no row
        (expect({"label": "a", "K": 1}, 2, 2, against=(("label", "b"),), match=("K",)), "pass"),
        (expect({"label": "a", "K": 1}, 1, 1, against=(("label", "b"),), match=("K",), difference=True), "pass"),
        (expect({"label": "a", "K": 1}, -math.inf, 1.9, against=(("label", "b"),), match=("K",)), "fail"),
    ],
)
def test_verdicts(expectation, word):
    (verdict,) = judge([expectation], ROWS)
    assert verdict.word == word and passed([verdict]) == (word == "pass")
    assert expectation.words()


def test_an_unfinished_run_fails_only_what_it_knows_to_be_wrong():
    words = [
        v.word
        for v in judge(
            [expect({"label": "a"}, 2, 4), expect({"label": "a"}, 2, 3), expect({"label": "c"}, 0, 1)],
            ROWS,
            complete=False,
        )
    ]
    assert words == ["unfinished", "fail", "unfinished"]


def test_errors_in_units_in_the_last_place():
    inputs = operands.drawn("randn", 8, 64, 8, 0, operands.Placement())
    fmt = gs.formats.parse_scalar("e5m10")
    rounded = gs.qmatmul(inputs.a, inputs.b, "exact(fp32) -> e5m10")  # a second rounding: a little above a half
    found = metrics.errors(rounded, inputs, 2**-11, fmt)
    # errors spread evenly over half a place to either side: 1/4 in the mean, give or take 0.14 / sqrt(64)
    assert 0.2 < found["ulp_mean"] < 0.3 and 0.4 < found["ulp_max"] <= 0.5 + 2**-13
    tiny = operands.of_tensors(torch.full((1, 1), 2.0**-24), torch.full((1, 1), 0.25))
    assert metrics.errors(torch.zeros(1, 1), tiny, 2**-11, fmt)["ulp_max"] == 0.25  # of the subnormals' 2^-24
    assert metrics.errors(rounded, inputs, 2**-11)["ulp_max"] is None
