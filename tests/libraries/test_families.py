"""From configurations to specs: what each family has a plan for, what it refuses, and both sides of every limit."""

from __future__ import annotations

import itertools
import math

import pytest

import gemmsim as gs
from gemmsim.libraries import LibraryError, UnknownPlan, cublaslt
from gemmsim.reference import gemm

SIZES = (96, 2950, 4096, 20008)
PAIRS = [("gb200", "12.8"), ("gb200", "13.1"), ("gb300", "13.1"), ("h100", "13.1")]


def config(algo: int, slices: int = 1, scheme: int = 0, option: int = 0, stages: int = 0) -> tuple[int, ...]:
    return algo, 0, slices, scheme, 0, option, stages, 0, 0


def planned(gpu: str, M: int, N: int, K: int, a: str, fields: tuple[int, ...], **more):
    return cublaslt(gpu, version="13.1" if gpu in ("h100", "gb200", "gb300") else "12.8").plan(
        M, N, K, a, config=fields, **more
    )


def text(*asked, **more) -> str:
    return planned(*asked, **more).text


def _share(K: int, slices: int, grain: int) -> int:
    """Terms of a slice."""
    return grain * math.ceil(math.ceil(K / grain) / slices)


# The published table, walked


@pytest.mark.parametrize(("gpu", "version"), PAIRS)
@pytest.mark.parametrize("K", SIZES)
def test_each_configuration_is_planned_or_refused(gpu, version, K):
    """Every family, stage, scheme, option and orientation; a plan's spec parses, loses nothing but by the rule."""
    library, hopper = cublaslt(gpu, version=version), gpu == "h100"
    kinds = {"planned": 0, "refused": 0}
    for fmt, (M, N) in itertools.product(("fp16", "bf16", "e4m3"), ((64, 64), (1, 64), (64, 1), (1, 1))):
        for fields in _configurations():
            expected = _is_known(hopper, fmt, M, N, K, fields)
            if fmt == "e4m3" and (N % 16 or K % 16):
                with pytest.raises(LibraryError):
                    library.plan(M, N, K, fmt, config=fields)
                continue
            if not expected:
                kinds["refused"] += 1
                with pytest.raises(UnknownPlan):
                    library.plan(M, N, K, fmt, config=fields)
                continue
            plan = library.plan(M, N, K, fmt, config=fields)
            assert str(plan.spec) and plan.lost == plan.spec.accumulator.lost(K), plan
            kinds["planned"] += 1
    assert all(kinds.values()), kinds


def _configurations():
    for stage, slices in itertools.product((0, 7, 8, 13, 17, 20, 25, 33, 35, 36), (1, 2, 9)):
        for algo, scheme in itertools.product((66, 21, 24), (0, 1, 2, 3, 4)):
            yield config(algo, slices, scheme, 0, stage)
    for algo, option, slices in itertools.product((11, 16), (0, 1, 2), (1, 2)):
        yield config(algo, slices, 0, option)
    for option, slices in itertools.product((0, 5, 8, 10, 11, 42, 89, 96, 97), (1, 3)):
        yield config(13, slices, 0, option)
    yield from (config(14, slices) for slices in (1, 2, 40))
    yield from (config(algo) for algo in (41, 56, 0, 67))


def _is_known(hopper: bool, fmt: str, M: int, N: int, K: int, fields: tuple[int, ...]) -> bool:
    """By the published rules, written again."""
    algo, _, slices, scheme, _, option, stage, _, _ = fields
    if fmt == "e4m3":
        whole = slices == 1 or _share(K, slices, 128) < K
        return algo == 66 and stage == 36 and M % 16 == 0 and whole
    if algo == 66:
        return stage == 35 and (slices == 1 or _share(K, slices, 64) < K)
    if algo in (21, 24):
        known = stage in (0, 7, 8, 13, 17, 20) or (stage == 25 and algo == 21)
        grain = 64 if K % 64 == 0 else 8
        fits = _share(K, slices, grain) <= K
        return known and (slices == 1 or (scheme in (0, 1, 2, 4) and fits))
    if algo in (11, 16):
        return slices == 1 and option in ((0, 1) if algo == 11 else (0,))
    vector = M == 1 or N == 1
    if algo == 13:
        if option in (89, 96):
            return vector and hopper
        return vector and option in (0, 5, 8, 10, 11, 42) and (option != 5 or (slices == 1 and M == 1))
    return algo == 14 and vector


# Texts of each rule


def test_nvjet():
    assert text("h100", 64, 64, 4096, "fp16", config(66, 1, 0, 3, 35)) == "fp16 : hw(hopper, wgmma, fp16) -> fp16"
    assert text("gb300", 64, 64, 4096, "bf16", config(66, 4, 2, 0, 35)) == (
        "bf16 : splitk(4, hw(blackwell, tcgen05, bf16), fp32, grain=64, share=floor) -> bf16"
    )
    assert text("h100", 64, 64, 4096, "fp16", config(66, 0, stages=35)) == "fp16 : hw(hopper, wgmma, fp16) -> fp16"
    assert text("h100", 64, 64, 4096, "fp16", (66, *[None] * 5, 35, None, None), out="fp32") == (
        "fp16 : hw(hopper, wgmma, fp16) -> fp32"
    )


def test_nvjet_of_fp8_promotes_on_hopper_without_fast_accumulation():
    slow = text("h100", 64, 64, 4096, "e4m3", config(66, 4, 0, 0, 36), out="bf16")
    assert slow == (
        "e4m3 : splitk(4, promote(hw(hopper, wgmma, e4m3), 128), fp32, grain=128, share=floor) -> fp32 -> bf16"
    )
    fast = text("h100", 64, 64, 4096, "e4m3", config(66, 4, 0, 0, 36), fast_accumulation=True)
    assert fast == "e4m3 : splitk(4, hw(hopper, wgmma, e4m3), fp32, grain=128, share=floor) -> fp32 -> fp16"
    for flag in (False, True):
        assert text("gb200", 64, 64, 4096, "e4m3", config(66, stages=36), fast_accumulation=flag) == (
            "e4m3 : hw(blackwell, tcgen05, e4m3) -> fp32 -> fp16"
        )


def test_a_split_needs_more_than_one_block():
    assert planned("h100", 8, 8, 65, "fp16", config(66, 2, stages=35)).spec
    with pytest.raises(UnknownPlan, match="which are one slice"):
        planned("h100", 8, 8, 64, "fp16", config(66, 2, stages=35))
    assert planned("h100", 16, 16, 144, "e4m3", config(66, 2, stages=36)).spec
    with pytest.raises(UnknownPlan):
        planned("h100", 16, 16, 128, "e4m3", config(66, 2, stages=36))


@pytest.mark.parametrize(
    ("K", "grain"), [(4096, 64), (8190, 8), (6400, 64), (6408, 8), (64, 64), (63, 8)], ids=lambda value: str(value)
)
def test_cutlass_slices_are_of_64_where_64_divides_k(K, grain):
    assert f"fp32, grain={grain}) ->" in text("h100", 64, 65, K, "bf16", config(21, 2, 2, 0, 13)) or K == 64
    if K == 64:
        assert "grain=64" in text("h100", 64, 65, K, "bf16", config(21, 2, 2, 0, 13))


def test_cutlass_slices_are_at_most_k():
    assert planned("h100", 3, 3, 8, "fp16", config(23, 2, 2, 0, 13)).spec
    with pytest.raises(UnknownPlan, match="has 8 terms"):
        planned("h100", 3, 3, 7, "fp16", config(23, 2, 2, 0, 13))


@pytest.mark.parametrize(
    ("scheme", "merge"),
    [
        (0, "bf16/via(fp32), grain=8, partial=fp32"),
        (1, "bf16/via(fp32), grain=8, partial=fp32"),
        (2, "fp32, grain=8"),
        (4, "fp32, grain=8, partial=bf16"),
    ],
)
def test_cutlass_schemes(scheme, merge):
    asked = ("gb200", 64, 65, 1000, "bf16", config(24, 3, scheme, 0, 20))
    assert text(*asked) == f"bf16 : splitk(3, hw(blackwell, mma, bf16, first=128), {merge}) -> bf16"
    assert text(*asked, out="fp32") == ("bf16 : splitk(3, hw(blackwell, mma, bf16, first=128), fp32, grain=8) -> fp32")


def test_cutlass_stages():
    assert text("h100", 9, 9, 99, "fp16", config(21, stages=0)) == "fp16 : fused(8, 25, a=fp16, first=32) -> fp16"
    for stage, block in ((7, 32), (12, 32), (13, 64), (18, 64), (19, 128), (25, 32)):
        assert text("h100", 9, 9, 99, "fp16", config(21, stages=stage)) == (
            f"fp16 : hw(hopper, mma, fp16, first={block}) -> fp16"
        )
    with pytest.raises(UnknownPlan):
        planned("h100", 9, 9, 99, "fp16", config(23, stages=25))


def test_one_product_has_no_order():
    one = planned("h100", 9, 9, 1, "bf16", config(12))
    assert (one.text, one.evidence) == ("bf16 : fp32 -> bf16", "silicon")
    more = planned("h100", 9, 9, 2, "bf16", config(12, stages=13))
    assert (more.family, more.evidence) == ("cutlass", "unverified")
    with pytest.raises(UnknownPlan):
        planned("h100", 9, 9, 1, "bf16", config(12, 2))


def test_gemmsn():
    assert text("gb300", 5, 9, 99, "fp16", config(11)) == "fp16 : splitk(2, chunked(256, fp32), fp32) -> fp16"
    assert text("h100", 5, 9, 99, "fp16", config(11, option=1)) == "fp16 : splitk(4, chunked(128, fp32), fp32) -> fp16"
    assert text("h100", 5, 9, 99, "bf16", config(16)) == "bf16 : fp32 -> bf16"


GEMV = [
    (0, 1, "chunked(512, fp32)", "fp32", "fp32"),
    (7, 1, "chunked(256, fp32)", "fp32", "fp32"),
    (8, 1, "chunked(256, fp32)", "fp32", "chunked(256, fp32)"),
    (84, 1, *["fp32"] * 3),
    (5, 1, *["splitk(32, chunked(16, fp32), fp32)"] * 3),
    (10, 1, *["interleaved(32, fp32, halves, width=4)"] * 3),
    (11, 1, *["interleaved(16, chunked(32, fp32))"] * 3),
    (13, 1, *["interleaved(16, chunked(16, fp32))"] * 3),
    (95, 1, *["interleaved(2, fp32, halves)"] * 3),
    (93, 2, *["splitk(2, interleaved(32, fp32, halves), fp32)"] * 3),
    (42, 2, *["splitk(2, interleaved(8, fp32, halves, width=63), fp32)"] * 3),
    (48, 1, *["interleaved(2, fp32, halves, width=64)"] * 3),
    (46, 3, *["splitk(3, interleaved(32, fp32, halves, width=11), fp32)"] * 3),
    (46, 40, *["splitk(40, interleaved(32, fp32, halves), fp32)"] * 3),
]


@pytest.mark.parametrize(("option", "slices", "h100", "gb200", "gb300"), GEMV)
def test_gemv(option, slices, h100, gb200, gb300):
    for gpu, accumulator in (("h100", h100), ("gb200", gb200), ("gb300", gb300)):
        plan = planned(gpu, 1, 64, 1000, "fp16", config(13, slices, 0, option))
        assert plan.text == f"fp16 : {accumulator} -> fp16", gpu
    assert plan.spec == gs.GemmSpec.parse(plan.text)


def test_the_width_of_lanes_is_a_share_of_the_slice_up_to_64():
    for K, width in ((512, 64), (511, 64), (505, 64), (504, 63), (8, 1), (9, 2)):
        want = f"interleaved(8, fp32, halves{f', width={width}' if width > 1 else ''})"
        assert text("h100", 1, 9, K, "fp16", config(13, option=42)) == f"fp16 : {want} -> fp16"


@pytest.mark.parametrize(("gpu", "cap"), [("h100", 8448), ("gb200", 9728), ("gb300", 9728)])
def test_option_10_ends_at_its_cap(gpu, cap):
    assert planned(gpu, 1, cap, 512, "fp16", config(13, option=10)).family == "gemv"
    assert planned(gpu, cap, 1, 512, "fp16", config(13, option=10)).family == "gemv"
    for shape in ((1, cap + 1), (cap + 1, 1)):
        with pytest.raises(UnknownPlan, match=f"at most {cap} outputs"):
            planned(gpu, *shape, 512, "fp16", config(13, option=10))
    assert planned(gpu, 1, cap + 1, 512, "fp16", config(13, option=42)).family == "gemv"


def test_option_8_was_seen_on_short_sums_alone():
    assert planned("gb200", 1, 64, 256, "fp16", config(13, option=8)).evidence == "silicon"
    assert planned("gb200", 1, 64, 257, "fp16", config(13, option=8)).evidence == "inferred"
    assert planned("gb200", 1, 64, 512, "fp16", config(13, 2, option=8)).evidence == "silicon"
    assert planned("gb300", 1, 64, 512, "fp16", config(13, option=8)).evidence == "silicon"


def test_dot():
    second = "interleaved(128, fp32, interleaved(64, fp32, interleaved(32, fp32, interleaved(4, fp32))))"
    assert text("h100", 64, 1, 9999, "fp16", config(14, 40)) == (
        f"fp16 : interleaved(40, interleaved(128, interleaved(2, fp32), halves, width=2), {second}, width=256) -> fp16"
    )
    assert text("h100", 1, 64, 9999, "fp16", config(14, 40)) == (
        f"fp16 : interleaved(40, interleaved(128, fp32, halves), {second}, width=128) -> fp16"
    )
    assert text("h100", 1, 64, 9999, "fp16", config(14)) == "fp16 : interleaved(128, fp32, halves) -> fp16"


def test_tiles():
    slow = ("rtx4060", 64, 64, 4096, "e4m3")
    assert text(*slow, config(35, 4, 0, 1, 17), out="bf16") == (
        "e4m3 : interleaved(4, promote(hw(ada, mma, e4m3), 128), tree(((3+(0+2))+1)), width=64) -> fp32 -> bf16"
    )
    assert text(*slow, config(35, 4, 0, 2, 17), out="fp32") == (
        "e4m3 : interleaved(4, promote(hw(ada, mma, e4m3), 128), sequential, width=64) -> fp32"
    )
    fast = text(*slow[:4], "e5m2", config(60, 2, 0, 1, 15), b="e4m3", out="e5m2", fast_accumulation=True)
    assert fast == (
        "e5m2 * e4m3 : interleaved(2, hw(ada, mma, e5m2, e4m3), tree((1+0)), width=64) -> fp32 -> e5m2/satfinite"
    )
    for fields, flag in ((config(35, stages=15), True), (config(60, stages=15), False)):
        with pytest.raises(UnknownPlan, match="fast accumulation"):
            planned(*slow, fields, fast_accumulation=flag)
    for fields in (config(35, 2, 0, 3, 15), config(35, stages=14), config(66, stages=36)):
        with pytest.raises(UnknownPlan):
            planned(*slow, fields)


@pytest.mark.parametrize(
    ("slices", "tree"),
    [(2, "(1+0)"), (3, "((2+0)+1)"), (4, "((3+(0+2))+1)"), (5, "(((4+(0+3))+1)+2)"), (6, "(((5+(0+3))+(1+4))+2)")],
)
def test_pairwise_trees(slices, tree):
    assert f"tree({tree})" in text("rtx4060", 64, 64, 4096, "e4m3", config(35, slices, 0, 1, 17))


# The lost tail


def _loses(K: int, slices: int) -> int:
    tail = K % 64
    return tail if tail and (K // 64) % slices == 0 and slices > tail else 0


def test_the_tail_is_lost_exactly_where_it_was_measured():
    found = 0
    library = cublaslt("h100", version="13.1")
    for slices, K in itertools.product(range(2, 65), (*range(65, 900), *range(8640, 8720), 23104, 23105)):
        if not _share(K, slices, 64) < K:
            continue
        plan = library.plan(8, 8, K, "fp16", config=config(66, slices, 0, 0, 35))
        assert plan.lost == _loses(K, slices) == plan.spec.accumulator.lost(K)
        assert plan.evidence == "silicon" or not plan.lost
        found += plan.lost > 0
    assert found > 100


def test_a_loss_is_the_first_line():
    plan = planned("gb200", 1, 8, 8648, "fp16", config(66, 9, 0, 0, 35))
    assert plan.lost == 8
    first = plan.explain().splitlines()[0]
    assert first.startswith("The last 8 terms of 8648 never enter the sum") and "8640" in first
    whole = planned("gb200", 1, 8, 8640, "fp16", config(66, 9, 0, 0, 35))
    assert whole.lost == 0 and "never enter" not in whole.explain()
    one = planned("gb200", 1, 8, 129, "fp16", config(66, 2, 0, 0, 35))
    assert one.lost == 1 and "The last term of 129" in one.explain()


def test_a_sum_of_ones_shows_the_loss():
    """As the library was found to compute 1 x 8 x 8648 with 9 slices."""
    for gpu in ("h100", "gb200", "gb300"):
        spec = planned(gpu, 1, 8, 8648, "fp16", config(66, 9, 0, 0, 35), out="fp32").spec
        assert gemm([[1.0] * 8648], [[1.0]] * 8648, spec) == [[8640.0]]


def test_beyond_64_slices_the_loss_is_not_verified():
    plan = planned("h100", 8, 8, 4677, "fp16", config(66, 72, 0, 0, 35))
    assert (plan.lost, plan.evidence) == (69, "unverified")
    assert planned("h100", 8, 8, 64 * 73 + 5, "fp16", config(66, 73, 0, 0, 35)).lost == 5


def test_fp8_loses_by_inference():
    plan = planned("h100", 16, 16, 128 * 17 + 16, "e4m3", config(66, 17, 0, 0, 36))
    assert (plan.lost, plan.evidence) == (16, "inferred")
    assert planned("h100", 16, 16, 128 * 16 + 16, "e4m3", config(66, 16, 0, 0, 36)).lost == 0


# Evidence


def test_evidence_is_that_of_the_weakest_part():
    def level(gpu, *rest, **more):
        return planned(gpu, *rest, **more).evidence

    chain = (64, 64, 4096, "fp16", config(66, 4, stages=35))
    assert level("h100", *chain) == "silicon" and level("gb200", *chain) == "inferred"
    assert level("h100", *chain, out="fp32") == "inferred"
    vector = (1, 64, 4096, "fp16", config(13, option=10))
    assert level("gb200", *vector) == level("gb300", *vector) == level("h100", *vector) == "silicon"
    for stage, unsplit, split in ((8, "silicon", "unverified"), (11, *["unverified"] * 2), (7, *["silicon"] * 2)):
        assert level("h100", 9, 9, 4096, "fp16", config(21, 1, 2, 0, stage)) == unsplit
        assert level("h100", 9, 9, 4096, "fp16", config(21, 2, 2, 0, stage)) == split
    fp8 = ("h100-pcie", 64, 64, 8192, "e4m3")
    assert level(*fp8, config(66, 24, 0, 3, 36), out="bf16") == "silicon"
    assert level(*fp8, config(66, 25, 0, 3, 36), out="bf16") == "inferred"
    assert level(*fp8, config(66, 24, 0, 4, 36), out="bf16") == "inferred"
    ada = ("rtx4060", 64, 64, 8192, "e4m3")
    assert level(*ada, config(35, 29, 0, 1, 17)) == "silicon" and level(*ada, config(35, 30, 0, 1, 17)) == "inferred"
