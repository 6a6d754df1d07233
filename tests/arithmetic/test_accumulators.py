"""Accumulators as values: texts, JSON, repr, explanations, what has no meaning, widths that cannot overflow."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.accumulators import CASES

import gemmsim as gs
import gemmsim.arithmetic
import gemmsim.formats
from gemmsim import acc
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError, constructors
from gemmsim.formats import FP32, Cast, FormatError, parse_cast

NAMES = {**vars(gemmsim.formats), **vars(gemmsim.arithmetic)}
casts = st.sampled_from(["e5m10", "bf16/rtz", "e6m9/sr5", "e5m2/sat", "e4m3", "e6m5/ftz"]).map(parse_cast)
maybe_casts = st.none() | casts
sizes = st.integers(1, 2**31 - 1)
leaves = (
    st.builds(acc.sequential, casts, maybe_casts)
    | st.builds(acc.kahan, casts, maybe_casts)
    | st.builds(acc.neumaier, casts, maybe_casts)
    | st.builds(acc.two_sum, casts, maybe_casts)
    | st.builds(acc.fast_two_sum, casts, maybe_casts)
    | st.builds(acc.exact, casts)
    | st.builds(acc.binned, casts, carry=st.integers(1, 53))
    | st.builds(acc.int, st.integers(1, 53), st.just("saturate"), signed=st.booleans(), shift=st.integers(0, 63))
    | st.builds(acc.fixed, st.integers(1, 53), st.integers(-60, 60), rounding=st.sampled_from(["rtz", "rne", "sr4"]))
)


def around(inner):
    return (
        st.builds(acc.chunked, sizes, inner, maybe_casts)
        | st.builds(acc.promote, inner, sizes)
        | st.builds(acc.pairwise, inner, sizes)
        | st.builds(acc.interleaved, sizes, inner, st.sampled_from(["sequential", "pairwise"]))
        | st.builds(acc.splitk, sizes, inner, casts)
        | st.builds(acc.shuffled, inner, st.integers(0, 2**64 - 1))
    )


nested = st.recursive(leaves, around, max_leaves=4).filter(lambda a: a.levels <= 7)
lasts = (
    st.builds(
        acc.int, st.integers(1, 53), st.sampled_from(["wrap", "saturate"]), when=st.sampled_from(["every", "end"])
    )
    | st.builds(acc.fixed, st.integers(1, 53), st.integers(-60, 60), overflow=st.just("wrap"))
    | st.lists(nested, min_size=1, max_size=8).map(lambda members: acc.palette(*members))
)


@settings(deadline=None, max_examples=300)
@given(nested | lasts)
def test_round_trips(accumulator):
    round_trips(accumulator)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_accumulators_of_every_kind_are_values(case):
    """Whatever every backend is asked has a text, JSON, a repr and words, too."""
    round_trips(GemmSpec.parse(case.text).accumulator)


def round_trips(accumulator):
    spec = GemmSpec.of(accumulator)
    assert Accumulator.parse(str(accumulator)) == accumulator
    assert GemmSpec.parse(str(spec)) == spec and GemmSpec.parse(str(spec)).key == spec.key
    assert Accumulator.from_json(json.loads(json.dumps(accumulator.to_json()))) == accumulator
    assert GemmSpec.from_json(json.dumps(spec.to_json())) == spec
    assert eval(repr(accumulator), dict(NAMES)) == accumulator
    assert copy.deepcopy(accumulator) == pickle.loads(pickle.dumps(accumulator)) == accumulator
    assert hash(pickle.loads(pickle.dumps(accumulator))) == hash(accumulator)
    assert accumulator.explain().splitlines()[0] == f"accumulator {accumulator}"
    assert GemmSpec(product=spec.product, accumulator=accumulator) == spec
    assert list(accumulator.grids()) and accumulator.add_cast is not None


TEXTS = [
    (acc.chunked(64, "e6m9"), "chunked(64, e6m9)"),
    (acc.chunked(64, "e6m9", "fp32"), "chunked(64, e6m9, e8m23)"),
    (acc.chunked(64, acc.kahan("bf16", "e5m10"), FP32), "chunked(64, kahan(e8m7, mul=e5m10), e8m23)"),
    (acc.promote("e5m10", 128), "promote(e5m10, 128)"),
    (acc.promote(acc.sequential("e5m10", "e4m3"), 128, "e6m9"), "promote(sequential(e5m10, mul=e4m3), 128, e6m9)"),
    (acc.pairwise("e5m10"), "pairwise(e5m10)"),
    (acc.pairwise("e5m10", 8), "pairwise(e5m10, 8)"),
    (acc.interleaved(4, "e5m10"), "interleaved(4, e5m10)"),
    (acc.interleaved(4, "e5m10", "pairwise"), "interleaved(4, e5m10, combine=pairwise)"),
    (acc.splitk(4, "fp32", "bf16"), "splitk(4, e8m23, e8m7)"),
    (acc.shuffled("bf16", 3), "shuffled(e8m7, 3)"),
    (acc.kahan("fp16"), "kahan(e5m10)"),
    (acc.neumaier("fp16/rtz", "e4m3"), "neumaier(e5m10/rtz, mul=e4m3)"),
    (acc.two_sum(Cast(FP32)), "two_sum(e8m23)"),
    (acc.fast_two_sum("e5m10/sr4"), "fast_two_sum(e5m10/sr4)"),
    (acc.exact(), "exact()"),
    (acc.exact("bf16"), "exact(e8m7)"),
    (acc.binned(carry=8), "binned(carry=8)"),
    (acc.int(32), "int(32)"),
    (acc.int(16, "saturate", when="end", signed=False, shift=4), "int(16, overflow=saturate, when=end, signed=false, shift=4)"),
    (acc.fixed(16, 8), "fixed(16, 8, rounding=rtz)"),
    (acc.fixed(16, -8, rounding="rne", overflow="wrap"), "fixed(16, -8, rounding=rne, overflow=wrap)"),
    (acc.palette("e5m10", acc.int(8)), "palette(e5m10, int(8))"),
    (acc.mptorch_cuda("e5m10", "e4m3"), "chunked(8, sequential(e5m10, mul=e4m3))"),
    (acc.wang2018(), "chunked(64, e6m9)"),
    (acc.batch_invariant(), "e8m23"),
    (acc.srmac_fp12(9), "e6m5/sr9"),
    (acc.lba_m7e4(), "chunked(16, sequential(e4m7b10/ftz/rtz/sat, mul=e4m7b12/ftz/rtz/sat))"),
    (acc.a2q(16), "int(16)"),
]  # fmt: skip


@pytest.mark.parametrize("accumulator, text", TEXTS, ids=[text for _, text in TEXTS])
def test_texts(accumulator, text):
    assert str(accumulator) == text
    assert GemmSpec.parse(f":{text}").accumulator == accumulator


def test_every_constructor_is_in_acc():
    for name in constructors():
        assert name in acc.__all__ or name == "hw"
        assert callable(getattr(acc, name))


BAD = [
    (lambda: acc.chunked(0, "e5m10"), "n=0; allowed: an integer from 1"),
    (lambda: acc.chunked("e5m10", 64), "n='e5m10'"),
    (lambda: acc.pairwise("e5m10", 0), "leaf=0"),
    (lambda: acc.interleaved(4, "e5m10", "tree"), "'sequential', 'pairwise'"),
    (lambda: acc.splitk(-1, "e5m10", "fp32"), "slices=-1"),
    (lambda: acc.shuffled("e5m10", -1), "seed=-1"),
    (lambda: acc.kahan("int8"), "kahan in fixed.*allowed: signed float formats"),
    (lambda: acc.neumaier("ufixed(8,4)"), "allowed: signed float formats"),
    (lambda: acc.two_sum("e8m0"), "allowed: signed float formats"),
    (lambda: acc.fast_two_sum("binary8p3ue"), "allowed: signed float formats"),
    (lambda: acc.kahan(acc.int(8)), "kahan"),
    (lambda: acc.chunked(8, acc.int(16)), "Give outer"),
    (lambda: acc.pairwise(acc.int(16)), "wraps"),
    (lambda: acc.interleaved(4, acc.int(16, "saturate", when="end")), "checks for overflow only at the end"),
    (lambda: acc.chunked(4, acc.shuffled(acc.fixed(16, 4, overflow="wrap"), 1)), "Give outer"),
    (lambda: acc.chunked(8, acc.sequential("e5m10", init="c_first")), "allowed: init=zero"),
    (lambda: acc.chunked(8, acc.palette("e5m10")), "palette outermost"),
    (lambda: acc.palette(acc.palette("e5m10")), "not palettes"),
    (lambda: acc.palette(), "1 to 8 accumulators"),
    (lambda: acc.palette(*["e5m10"] * 9), "of 9 accumulators; allowed: 1 to 8"),
    (lambda: acc.palette(acc.sequential("e5m2/sr3", seed=1), acc.sequential("e5m2/sr3", seed=2)), "one seed"),
    (lambda: acc.int(0), "P=0"),
    (lambda: acc.int(54), "from 1 to 53"),
    (lambda: acc.int(8, "clip"), "'wrap', 'saturate'"),
    (lambda: acc.int(8, signed=2), "true or false"),
    (lambda: acc.fixed(8, 4, rounding="nearst"), "rounding"),
    (lambda: acc.fixed(53, 1074, overflow="clip"), "'saturate'"),
    (lambda: acc.fixed(53, -1000), "frac"),
    (lambda: acc.binned(carry=0), "carry=0"),
    (lambda: GemmSpec(product="e5m2", accumulator=acc.exact()), "exact takes exact products"),
    (lambda: GemmSpec(product="e5m2", accumulator=acc.chunked(4, acc.int(8), "fp32")), "int takes exact products"),
    (lambda: GemmSpec(product="e5m2", accumulator=acc.kahan("e5m10", "e4m3")), "one rounding of the product"),
    (lambda: GemmSpec.parse(":chunked(4, exact()), arithmetic=fp32"), "Use arithmetic='exact'"),
    (lambda: GemmSpec.parse(":palette(e5m10, n=3)"), "palette with n="),
    (lambda: GemmSpec.parse(":kahn(e5m10)"), "Did you mean kahan"),
]  # fmt: skip


@pytest.mark.parametrize("make, message", BAD, ids=[message for _, message in BAD])
def test_what_has_no_meaning_says_what_is_allowed(make, message):
    with pytest.raises((SpecError, FormatError), match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError) and "allowed" in str(caught.value)


def test_nesting_is_bounded():
    inner = acc.sequential("e5m10")
    for _ in range(7):
        inner = acc.chunked(2, inner)
    acc.shuffled(inner, 1)
    acc.chunked(2, inner)
    with pytest.raises(SpecError, match="at most 7 with random bits"):
        acc.chunked(2, inner, "e5m10/sr8")


def test_composites_pass_on_product_seed_and_randomness():
    spec = GemmSpec(product="e4m3", accumulator=acc.splitk(2, acc.chunked(4, "e5m10"), "fp32"))
    assert spec.accumulator.inner.inner.mul == spec.product == parse_cast("e4m3")
    assert GemmSpec(product="e4m3", accumulator=acc.palette("e5m10", acc.kahan("bf16"))).product == parse_cast("e4m3")
    assert acc.palette("e5m10", acc.sequential("e5m10", "e4m3")).product_cast is None
    fixed = acc.pairwise(acc.sequential("e5m10/sr4", seed=9))
    assert fixed.is_stochastic and fixed.fixed_seed == 9 and GemmSpec.of(fixed).fixed_seed == 9
    assert acc.palette("fp32", fixed).fixed_seed == 9
    assert acc.palette("fp16", "fp32", acc.int(8)).add_cast == parse_cast("fp32")
    assert acc.chunked(4, "e5m10", "fp32/sr8").is_stochastic and acc.fixed(8, 4, rounding="sr").is_stochastic
    assert not acc.shuffled("e5m10", 3).is_stochastic and acc.shuffled("e5m10", 3).fixed_seed is None


def test_explanations_name_every_part():
    text = GemmSpec.of("e4m3 : splitk(4, chunked(64, kahan(e5m10)), bf16)").explain()
    for part in ["y = R(q - C)", "each 64 terms", "ceil(K/4)", "e8m7 (max", "S and C from +0"]:
        assert part in text
    assert "wraps modulo 2^16" in acc.int(16).explain() and "saturates" in acc.fixed(16, 4).explain()
    assert "select=1" in acc.palette("e5m10", "bf16").explain()


def test_permutation_is_a_long_tensor_of_every_index():
    shuffled = acc.shuffled("e5m10", 3)
    p = shuffled.permutation(1000)
    assert p.dtype == torch.int64 and p.tolist() == shuffled.order(1000)
    assert sorted(p.tolist()) == list(range(1000)) and p.tolist() != list(range(1000))
    assert shuffled.order(1000) != acc.shuffled("e5m10", 4).order(1000)
    assert shuffled.permutation(0).tolist() == [] and shuffled.permutation(1).tolist() == [0]
    with pytest.raises(ValueError, match="0 or more"):
        shuffled.permutation(-1)


@pytest.mark.parametrize("name, low, high", [("int8", -128, 127), ("uint8", 0, 255), ("int4", -8, 7), ("uint2", 0, 3)])
@pytest.mark.parametrize("bound", ["a2q", "a2q+", "exact"])
def test_certified_rows_never_overflow(name, low, high, bound):
    rng = np.random.default_rng(1)
    w = rng.integers(-40, 41, (60, 9)) * (rng.random((60, 9)) < 0.7)
    if bound == "a2q+":
        w[:, 0] -= w.sum(1)
    for row in w:
        P = acc.min_accumulator_bits([row.tolist()], name, bound=bound, k_dim=1)
        assert acc.overflow_certificate([row.tolist()], name, P, bound=bound, k_dim=1) == [True]
        assert P == 1 or acc.overflow_certificate([row.tolist()], name, P - 1, bound=bound, k_dim=1) == [False]
        # Worst partial sums: every positive term alone, every negative one alone.
        best = sum(int(max(x * low, x * high)) for x in row)
        worst = sum(int(min(x * low, x * high)) for x in row)
        assert -(2 ** (P - 1)) <= worst and best <= 2 ** (P - 1) - 1
        if bound == "exact" and P > 1:  # one bit less does not hold them
            assert not (-(2 ** (P - 2)) <= worst and best <= 2 ** (P - 2) - 1)
            assert P <= acc.min_accumulator_bits([row.tolist()], name, k_dim=1)
    assert acc.min_accumulator_bits(w, name, bound=bound, k_dim=1) == max(
        acc.min_accumulator_bits([row.tolist()], name, bound=bound, k_dim=1) for row in w
    )


def test_widths_against_the_design_reference():
    from oracles import acc_reference

    for l1 in [1, 7, 100, 127, 128, 129, 1000, 12345]:
        for name, n, signed in [("int8", 8, True), ("uint8", 8, False), ("int4", 4, True)]:
            P = acc.min_accumulator_bits([[l1]], name, k_dim=1)
            assert acc_reference.a2q_min_bits(l1, n, signed) == P
            assert l1 <= acc_reference.a2q_l1_limit(P, n, signed)
            P = acc.min_accumulator_bits([[l1, -l1]], name, bound="a2q+", k_dim=1)
            assert acc_reference.a2q_plus_l1_limit(P - 1, n) < 2 * l1 <= acc_reference.a2q_plus_l1_limit(P, n)


def test_weights_come_in_any_container():
    rows = [[1, -2, 3], [100, 100, 0]]
    want = [True, False]
    assert acc.overflow_certificate(rows, "int8", 12, k_dim=1) == want
    assert acc.overflow_certificate(np.array(rows, np.float32), "int8", 12, k_dim=1) == want
    tensor = acc.overflow_certificate(torch.tensor(rows, dtype=torch.int8), "int8", 12, k_dim=1)
    assert tensor.dtype == torch.bool and tensor.tolist() == want
    assert (
        acc.min_accumulator_bits(torch.tensor(rows), "int8", k_dim=1)
        == acc.min_accumulator_bits(rows, "int8", k_dim=1)
        == 16
    )
    for bound in ("a2q", "a2q+", "exact"):
        assert acc.min_accumulator_bits([[0, 0]], "uint8", k_dim=1, bound=bound) == 1
    assert acc.min_accumulator_bits([], "int8", k_dim=1) == acc.min_accumulator_bits([[0, 0]], "int8", k_dim=1) == 1


def test_the_dimension_of_the_sums_has_to_be_said():
    b = torch.full((8, 2), 100.0)  # (K, N), as qmatmul takes it
    assert acc.min_accumulator_bits(b, "int8", k_dim=0) == 18
    assert acc.min_accumulator_bits(b.mT, "int8", k_dim=-1) == acc.min_accumulator_bits(b.mT, "int8", k_dim=1) == 18
    assert acc.overflow_certificate(b, "int8", 18, k_dim=0).tolist() == [True, True]
    assert acc.overflow_certificate(b, "int8", 17, k_dim=0).tolist() == [False, False]
    worst = torch.full((1, 8), -128.0)
    assert gs.count_overflows(worst, b, ":int(17)").tolist() != [[0, 0]]
    assert gs.count_overflows(worst, b, ":int(18)").tolist() == [[0, 0]]
    for call in (lambda: acc.min_accumulator_bits(b, "int8"), lambda: acc.overflow_certificate(b, "int8", 16)):
        with pytest.raises(gs.SpecError, match=r"k_dim=None; allowed: 1 for a layer's weight"):
            call()
    with pytest.raises(gs.SpecError, match="k_dim=2"):
        acc.min_accumulator_bits(b, "int8", k_dim=2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: acc.min_accumulator_bits([[1.5]], "int8", k_dim=1), "allowed: integers"),
        (lambda: acc.min_accumulator_bits([1, 2], "int8", k_dim=1), "not a matrix"),
        (lambda: acc.min_accumulator_bits([[1]], "e4m3", k_dim=1), "integers of N bits"),
        (lambda: acc.min_accumulator_bits([[1]], "imt8", k_dim=1), "imt8"),
        (lambda: acc.min_accumulator_bits([[1]], "int8", bound="a2q+", k_dim=1), "sum to zero"),
        (lambda: acc.overflow_certificate([[1]], "int8", 0, k_dim=1), "P=0"),
        (lambda: acc.overflow_certificate([[1]], "int8", 8, bound="a3q", k_dim=1), "'a2q\\+'"),
    ],
)
def test_widths_of_what_has_none(call, message):
    with pytest.raises(ValueError, match=message):
        call()
