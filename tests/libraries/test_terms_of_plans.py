"""Every term of a product enters a plan's sum once, but for those that are lost, and slices are contiguous and in order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmsim as gs
from gemmsim.arithmetic import Accumulator, Chunked, Interleaved, Promote, SplitK
from gemmsim.libraries import UnknownPlan, cublaslt

LIBRARIES = [cublaslt(gpu, version="13.1") for gpu in ("h100", "gb200", "gb300")]
LIBRARIES += [cublaslt(gpu, version="12.8") for gpu in ("h100-pcie", "rtx4060")]


def runs(accumulator: Accumulator, terms: list[int]) -> list[list[int]]:
    """The terms of each innermost sum, in the order in which their totals are met."""
    if isinstance(accumulator, (Chunked, Promote)):
        parts = [terms[i : i + accumulator.n] for i in range(0, len(terms), accumulator.n)]
    elif isinstance(accumulator, Interleaved):
        lanes: list[list[int]] = [[] for _ in range(accumulator.lanes)]
        for run, start in enumerate(range(0, len(terms), accumulator.width)):
            lanes[run % accumulator.lanes] += terms[start : start + accumulator.width]
        parts = [lane for lane in lanes if lane]
    elif isinstance(accumulator, SplitK):
        parts, start = [], 0
        for count, size in accumulator.sizes(len(terms)):
            for _ in range(count):
                parts.append(terms[start : start + size])
                start += size
    else:
        return [terms]
    return [run for part in parts for run in runs(accumulator.inner, part)]


@st.composite
def calls(draw):
    """A library, M, N, K, operands and the nine fields of one of its families."""
    library = draw(st.sampled_from(LIBRARIES))
    K = draw(st.one_of(st.integers(1, 300), st.integers(1, 20000)))
    slices = draw(st.one_of(st.just(1), st.integers(2, 64)))
    fp8 = library.gpu in ("h100-pcie", "rtx4060") or draw(st.booleans())
    M, N = draw(st.sampled_from([(64, 64), (1, 64), (64, 1), (1, 1)]))
    if fp8:
        a, fast, M, N, K = "e4m3", draw(st.booleans()), 64, 64, 16 * -(-K // 16)
        ada = library.gpu == "rtx4060"
        fields = ((60 if fast else 35), draw(st.integers(0, 2)), 17) if ada else (66, 0, 36)
        return library, M, N, K, a, fast, (fields[0], 0, slices, 0, 0, *fields[1:], 0, 0)
    a = draw(st.sampled_from(["fp16", "bf16"]))
    algo = draw(st.sampled_from([66, 21, 23, 24, 11, 16, 13, 14, 12]))
    stage = 35 if algo == 66 else draw(st.sampled_from([0, 7, 13, 20, 25]))
    options = sorted(library.profile.gemv) if algo == 13 else [0, 1]
    scheme, option = draw(st.sampled_from([0, 1, 2, 4])), draw(st.sampled_from(options))
    return library, M, N, K, a, False, (algo, 0, slices, scheme, 0, option, stage, 0, 0)


@given(calls())
def test_every_term_enters_once_but_for_those_that_are_lost(call):
    library, M, N, K, a, fast, fields = call
    try:
        plan = library.plan(M, N, K, a, config=fields, fast_accumulation=fast)
    except UnknownPlan as refusal:
        assert refusal.asked and refusal.known and refusal.do
        return
    spec = plan.spec
    assert gs.GemmSpec.parse(str(spec)) == spec and spec.out is not None
    found = runs(spec.accumulator, list(range(K)))
    assert sorted(itertools.chain(*found)) == list(range(K - plan.lost))
    assert all(run == sorted(run) for run in found)
    block = 64 if a != "e4m3" else 128
    tail, slices = K % block, fields[2]
    if plan.lost and slices <= 64:
        assert plan.family == "nvjet" and (K // block) % slices == 0 and slices > tail == plan.lost


def test_the_calls_drawn_have_every_family_planned():
    """What the property says is said of each family."""
    found = set()

    @settings(max_examples=1000)  # which numbers hypothesis tries depends on the modules that are loaded
    @given(calls())
    def count(call):
        library, M, N, K, a, fast, fields = call
        try:
            found.add(library.plan(M, N, K, a, config=fields, fast_accumulation=fast).family)
        except UnknownPlan:
            found.add("refused")

    count()
    assert found >= {"nvjet", "cutlass", "gemmsn", "gemv", "dot", "tiles", "refused"}


@pytest.mark.parametrize(("K", "slices"), [(1000, 3), (4096, 7), (8648, 9), (130, 2)])
def test_slices_are_contiguous_and_in_order(K, slices):
    plan = LIBRARIES[0].plan(8, 8, K, "fp16", config=(66, 0, slices, 0, 0, 0, 35, 0, 0))
    found = runs(plan.spec.accumulator, list(range(K)))
    assert list(itertools.chain(*found)) == list(range(K - plan.lost))
    assert {len(run) % 64 for run in found[:-1]} == {0}


def test_a_plan_does_not_depend_on_m_and_n_once_it_is_chosen():
    texts = {
        LIBRARIES[0].plan(M, N, 4096, "fp16", config=(66, 0, 4, 0, 0, 0, 35, 0, 0)).text
        for M, N in ((1, 1), (64, 8), (4096, 4096))
    }
    assert len(texts) == 1
