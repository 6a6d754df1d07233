"""Orders of totals: kernels equal the reference for every small number of terms, and for specials."""

from __future__ import annotations

import itertools

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.reference import gemm

#: Ways to combine totals, with the largest number of totals that discriminates them here.
COMBINED = [
    "sequential",
    "pairwise",
    "halves",
    "bf16/via(fp32)",
    "kahan(e5m2)",
    "interleaved(2, e5m10, combine=halves)",
]


def operands(k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands (2, k) and (k, 2) of very different size, so that orders differ in many sums."""
    g = torch.Generator().manual_seed(100 * k + seed)
    pair = (torch.randn(2, k, generator=g), torch.randn(k, 2, generator=g))
    a, b = (x * torch.exp2(torch.randint(-3, 4, x.shape, generator=g).float()) for x in pair)
    return a, b


def check(text: str, k: int) -> None:
    a, b = operands(k)
    found = gs.qmatmul(a, b, text, seed=3)
    want = torch.tensor(gemm(a, b, text, seed=3), dtype=torch.float64).reshape(2, 2).float()
    assert_bitwise_equal(found, want, context=f"{text}, k = {k}")


@pytest.mark.parametrize("k", range(1, 13))
def test_every_slice_grain_and_share(k):
    for slices, grain, share, partial in itertools.product(
        range(1, 7), range(1, 8), ("ceil", "floor"), ("none", "e5m2")
    ):
        check(f"splitk({slices}, e5m10, bf16, grain={grain}, share={share}, partial={partial})", k)


@pytest.mark.parametrize("k", range(1, 13))
def test_every_lane_and_width(k):
    for lanes, width, combine in itertools.product(range(1, 7), range(1, 6), COMBINED):
        check(f"interleaved({lanes}, e5m10, combine={combine}, width={width})", k)


@pytest.mark.parametrize("k", range(1, 13))
def test_every_leaf_and_run(k):
    for n, how in itertools.product(
        range(1, 5), ("bf16/via(fp32)", "two_sum(e5m2)", "pairwise(e5m2, 2, pairs=halves)")
    ):
        check(f"chunked({n}, e5m10, {how})", k)
        check(f"pairwise(e5m10, {n}, pairs=halves)", k)


@pytest.mark.parametrize("k", range(1, 13))
def test_every_list_of_lengths(k):
    for lengths in itertools.chain.from_iterable(itertools.product((1, 2, 5), repeat=n) for n in (1, 2, 3)):
        check(f"splitk({list(lengths)}, e5m2, e5m10)", k)


def trees(leaves: tuple[int, ...]) -> list[str]:
    """Every tree whose leaves are these from left to right."""
    if len(leaves) == 1:
        return [str(leaves[0])]
    cuts = range(1, len(leaves))
    return [f"({x}+{y})" for cut in cuts for x in trees(leaves[:cut]) for y in trees(leaves[cut:])]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_tree(n):
    for leaves in itertools.permutations(range(n)):
        for tree in trees(leaves):
            for k in (1, 3, n, 7):  # totals that do not exist are +0
                check(f"interleaved({n}, e5m2, combine=tree({tree}))", k)
                check(f"splitk({n}, e5m10, tree({tree}, e5m2), partial=bf16)", k)


@pytest.mark.parametrize("k", range(1, 40))
def test_every_first_tile(k):
    for first in (16, 32, 48):
        check(f"hw(hopper, mma, fp16, first={first})", k)
        check(f"splitk(2, hw(hopper, mma, fp16, first={first}), e5m10/via(fp32), grain=8, partial=fp32)", k)
    for n, kept in ((4, 9), (8, 25)):
        check(f"fused({n}, {kept}, first=16)", k)


def test_a_first_tile_is_the_same_sum_with_zeros_after_it():
    a, b = operands(100)
    a, b = a.half().float(), b.half().float()
    zeros = torch.zeros(2, 28)
    filled = torch.cat([a[:, :36], zeros, a[:, 36:]], 1), torch.cat([b[:36], zeros.T, b[36:]])
    spec = "fused(8, 11, a=fp16, first=64)"
    assert_bitwise_equal(gs.qmatmul(a, b, spec), gs.qmatmul(*filled, "fused(8, 11, a=fp16)"))
    assert not torch.equal(gs.qmatmul(a, b, spec), gs.qmatmul(a, b, "fused(8, 11, a=fp16)"))


@pytest.mark.parametrize(
    "spec",
    [
        "splitk(3, fp16, fp32, partial=bf16)",
        "interleaved(4, fp16, combine=halves, width=2)",
        "chunked(3, fp16, neumaier(fp16))",
        "interleaved(3, fp16, combine=tree(((2+0)+1)))",
        "hw(hopper, mma, fp16, first=32)",
    ],
)
def test_specials(spec):
    """NaN, infinities of one and of both signs, and zeros of both signs, wherever they stand."""
    inf, nan = float("inf"), float("nan")
    for place, value in itertools.product(range(11), (inf, -inf, nan, -0.0)):
        a, b = torch.full((1, 11), -0.0), torch.ones(11, 1)
        a[0, place] = value
        for other in (0.0, -inf):
            b[(place + 3) % 11] = other
            want = torch.tensor(gemm(a, b, spec), dtype=torch.float64).float()
            assert_bitwise_equal(gs.qmatmul(a, b, spec), want, context=f"{spec} {place} {value} {other}")


def test_totals_that_round_to_minus_zero_keep_their_sign_with_a_partial_format():
    a, b = torch.tensor([[-(2.0**-30), 0.0, -(2.0**-30), 0.0]]), torch.ones(4, 1)
    assert str(gs.qmatmul(a, b, "splitk(2, fp32, fp32, partial=e5m2)").item()) == "-0.0"
    assert str(gs.qmatmul(a, b, "splitk(2, fp32, e5m2)").item()) == "0.0"


def test_lost_terms_never_enter():
    spec = gs.GemmSpec.parse("splitk(9, hw(blackwell, tcgen05, fp16), fp32, grain=64, share=floor)")
    assert [spec.accumulator.lost(k) for k in (0, 63, 64, 576, 8640, 8648)] == [0, 0, 0, 0, 0, 8]
    a, b = torch.ones(1, 8648), torch.ones(8648, 1)
    a[0, 8640:] = float("nan")
    assert gs.qmatmul(a, b, spec).item() == 8640
    nested = gs.GemmSpec.parse("chunked(100, splitk(3, fp32, fp32, grain=8, share=floor), fp32)").accumulator
    assert nested.lost(250) == sum(nested.inner.lost(k) for k in (100, 100, 50))


def test_an_output_that_rounds_twice():
    """By fp32 first: a value just above a tie of bf16 becomes the tie."""
    a, b = torch.tensor([[1 + 2.0**-8, 2.0**-40]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    assert gs.qmatmul(a, b, ":exact(fp64) -> bf16").item() == 1 + 2.0**-7
    assert gs.qmatmul(a, b, ":exact(fp64) -> fp32 -> bf16").item() == 1
    assert gs.qmatmul(a, b, ":exact(fp32) -> fp32 -> bf16").item() == 1
    many = torch.randn(40, 30, dtype=torch.float64), torch.randn(30, 50, dtype=torch.float64)
    once = gs.qmatmul(*many, ":fp64 -> fp32")
    assert_bitwise_equal(
        gs.qmatmul(*many, ":fp64 -> fp32 -> fp16/sat"),
        gs.qmatmul(once, torch.eye(50).double(), ":exact(fp64) -> fp16/sat"),
    )
    assert_bitwise_equal(gs.qlinear(many[0], many[1].T, spec="fp64 -> fp32 -> bf16"), gs.quantize(once, "bf16"))


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_threads_or_batches(threads):
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(3, 70, 300, generator=g), torch.randn(300, 90, generator=g)
    spec = "fp16 : splitk(3, interleaved(8, fp16/sr8, combine=halves, width=4), bf16/via(fp32), grain=8, partial=fp16)"
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = gs.qmatmul(a, b, spec, seed=5)
    finally:
        torch.set_num_threads(before)
    assert_bitwise_equal(whole, gs.qmatmul(a.reshape(210, 300), b, spec, seed=5).reshape(3, 70, 90))


def test_gradients_and_compiled_code():
    a, b = (x.requires_grad_() for x in operands(24))
    spec = "fp16 : interleaved(4, fp16, combine=halves, width=2)"
    out = gs.qmatmul(a, b, spec)
    out.sum().backward()
    assert a.grad is not None and torch.isfinite(a.grad).all()
    with torch.no_grad():
        compiled = torch.compile(lambda x, y: gs.qmatmul(x, y, spec), fullgraph=True)(a, b)
    assert_bitwise_equal(compiled, out.detach())
