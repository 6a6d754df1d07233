"""Events at additions equal the reference's, on every instruction set, and the value is qmatmul's; what is refused."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic.errors import SpecError, UnsupportedSpec
from gemmsim.backends import cpu

NAMES = ("swamped", "inexact", "underflow", "overflow")


@pytest.fixture(autouse=True)
def _restore():
    name, threads = cpu.isa(), torch.get_num_threads()
    yield
    cpu.set_isa(name)
    torch.set_num_threads(threads)


REGISTERS = [
    "e5m10", "bf16", "fp32", "e4m3", "e5m2", "e6m9", "e4m7b10/rtz/sat/ftz", "e5m10/rtz", "e5m10/rna", "e5m10/ru",
    "e5m10/rd", "e5m10/sr16", "e5m10/sr8", "e5m2/sr4", "bf16/sr16", "e8m13", "fp64", "fixed(16,8)", "fixed(12,4)/rtz",
    "e4m3fnuz", "e5m10/sr16/sat", "e4m3/ftz", "e8m23/sr32", "e5m10/ro", "supernormal(4,3)",
    "sequential(e5m10, mul=e5m10)", "sequential(bf16/sr8, mul=bf16/sr8)", "sequential(e5m10/rtz, mul=e4m3)",
    "kahan(e5m10)", "neumaier(e5m10)", "two_sum(bf16)", "fast_two_sum(e5m10)", "kahan(e5m10/sr8)",
    "neumaier(e5m10/sr8)", "kahan(fp64)", "kahan(e5m10, mul=bf16)", "two_sum(e4m3/rtz)",
]  # fmt: skip
ORDERS = [
    "{}", "{}", "{}", "chunked(4, {})", "pairwise({})", "pairwise({}, 3)", "interleaved(4, {})",
    "interleaved(3, {}, pairwise)", "splitk(3, {}, bf16)", "shuffled({}, 5)", "chunked(5, pairwise({}, 2), fp32)",
    "promote({}, 6)", "chunked(3, {}, e5m2/sr4)", "splitk(2, interleaved(3, {}), e5m10/rtz)", "pairwise(chunked(2, {}), 4)",
    "shuffled(pairwise({}), 1)", "chunked(4, {}, fp64)", "pairwise(chunked(3, {}, e5m10/sr16), 6)",
]  # fmt: skip


def operands(rng: random.Random, m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    dtype = rng.choice([torch.float32, torch.float64, torch.float16, torch.bfloat16])
    scale = rng.choice([1.0, 0.01, 30.0, 2.0**-7, 200.0])
    a, b = (torch.randn(*shape, dtype=torch.float64, generator=g) * scale for shape in ((m, k), (k, n)))
    if rng.random() < 0.5:  # ties, exact sums, zeros
        a, b = (a * 4).round() / 4, (b * 2).round() / 2
    if rng.random() < 0.3:
        a.view(-1)[0], b.view(-1)[1], b.view(-1)[-1] = math.inf, rng.choice([math.nan, 3e38, 0.0]), -0.0
    if rng.random() < 0.2:
        a[0] = a[0].abs() * 2.0**20
    return a.to(dtype), b.to(dtype)


def check(a: torch.Tensor, b: torch.Tensor, spec: object, *, seed: int = 7, c: torch.Tensor | None = None) -> int:
    """Counts of all instruction sets against the reference's, bit for bit; the sum of all counts."""
    want = reference.count_events(
        a.double().tolist(), b.double().tolist(), spec, seed, None if c is None else c.double().tolist()
    )
    value = gs.qmatmul(a, b, spec, seed=seed, c=c)
    for name in isas():
        cpu.set_isa(name)
        got = gs.count_events(a, b, spec, seed=seed, c=c)
        assert_bitwise_equal(got.out, value, context=f"value of {spec} on {name}")
        for event in NAMES:
            expected = torch.tensor([[getattr(x, event) for x in row] for row in want])
            assert_bitwise_equal(getattr(got, event), expected, context=f"{event} of {spec} on {name}")
        additions = {x.additions for row in want for x in row}
    assert_bitwise_equal(torch.tensor([got.additions]), torch.tensor([*additions]), context=f"additions of {spec}")
    return int(sum(int(getattr(got, event).sum()) for event in NAMES))


@pytest.mark.kept
@pytest.mark.parametrize("register", REGISTERS)
def test_counts_equal_the_reference(register):
    rng, seen = random.Random(register), 0
    for order in [ORDERS[0], *rng.sample(ORDERS, 5)]:
        try:
            spec = gs.GemmSpec.of(f"{rng.choice(['', 'e4m3', 'bf16', 'e4m3/sr4'])} : {order.format(register)}")
        except ValueError:  # totals without a format to meet in
            continue
        m, k, n = rng.choice([(1, 5, 3), (3, 17, 18), (9, 12, 5), (2, 40, 35)])
        seen += check(*operands(rng, m, k, n), spec)
    assert seen > 0 or "fp" in register  # of operands with few bits, none is inexact there


def terms_of(kind: str, shape: tuple[int, int], g: torch.Generator) -> torch.Tensor:
    x = torch.randn(*shape, generator=g)
    if kind == "sparse":
        return x.relu()
    if kind == "ties":
        return (x * 4).round() / 4 * 2.0 ** torch.randint(-6, 7, shape, generator=g)
    if kind == "wide":  # swamped, tiny and past the end
        return x * 2.0 ** torch.randint(-14, 9, shape, generator=g)
    if kind == "lowest":  # products that no float lane holds
        return x * 2.0 ** torch.randint(-80, -50, shape, generator=g)
    if kind == "specials":
        x[torch.rand(shape, generator=g) < 0.03] = math.inf
        x[torch.rand(shape, generator=g) < 0.03] = math.nan
        x[torch.rand(shape, generator=g) < 0.2] = -0.0
    return x


@pytest.mark.kept
@pytest.mark.parametrize("register", ["e5m10", "bf16", "e4m3", "e5m2/sat", "e5m10/ftz", "e6m9", "e4m3fnuz"])
@pytest.mark.parametrize("kind", ["normal", "sparse", "ties", "wide", "lowest", "specials"])
def test_sums_in_pairs(register, kind):
    g = torch.Generator().manual_seed(11)
    for order, dtype in [
        ("pairwise({})", torch.float32),
        ("pairwise({})", torch.bfloat16),
        ("chunked(7, pairwise({}))", torch.float32),
        ("shuffled(pairwise({}, 2), 3)", torch.float32),
        ("pairwise({}, 5)", torch.float32),
    ]:
        for k in (1, 6, 43):
            a, b = terms_of(kind, (2, k), g), terms_of(kind, (k, 33), g)
            check(a.to(dtype), b.to(dtype), f":{order.format(register)}")


@pytest.mark.kept
@pytest.mark.parametrize("kind", ["normal", "sparse", "ties", "wide", "lowest", "specials", "cancelling", "powers"])
def test_the_float_register(kind):
    """Whole blocks of terms, in which all additions may be known to be inexact, and what follows them."""
    g = torch.Generator().manual_seed(12)
    for k, n in ((40, 32), (16, 33), (8, 64), (259, 32)):
        rows = 2 if k > 100 else 5
        a, b = terms_of(kind, (rows, k), g), terms_of(kind, (k, n), g)
        if kind == "cancelling":  # registers become zero and small
            a[:, k // 2 :] = -a[:, : k - k // 2]
            b[k // 2 :] = b[: k - k // 2].clone()
        if kind == "powers":
            a, b = (2.0 ** torch.randint(-3, 4, x.shape, generator=g) for x in (a, b))
        check(a, b, ":fp32")
    a, b = torch.full((4, 24), 1e19), torch.full((24, 32), 1e19)
    assert check(a, b, ":fp32") > 0  # infinite


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("small", [2.0**-26, 2.0**-25, 2.0**-24, 3 * 2.0**-25, 2.0**-23, 2.0**-12])
def test_products_beside_large_sums_of_the_float_register(rows, small):
    """In either place of a pair of terms, in one row or column alone; sums of many bits, so that most of them are inexact."""
    g = torch.Generator().manual_seed(rows)
    a, b = (1 + torch.rand(*shape, generator=g) for shape in ((rows, 30), (30, 32)))
    a[-1, [7, 12, 20, 21]] *= small
    b[[3, 10], 5] *= small
    b[25, :] *= small * 16
    assert check(a, b, ":fp32") > 0
    a[:, 16:] *= -1
    check(a, b, ":fp32")


@pytest.mark.parametrize("start", [2.0**e for e in range(19, 28)])
def test_sums_that_just_hold_their_products(start):
    """Whole numbers around 2^24, from which on odd ones are lost."""
    g = torch.Generator().manual_seed(6)
    a = torch.randint(-3, 4, (8, 20), generator=g) * 2.0 + 1
    b = torch.randint(0, 2, (20, 32), generator=g) * 2.0 - 1
    a[:, 0] = start
    check(a, b, ":fp32")


@pytest.mark.parametrize("tiny", [2.0**-49, 2.0**-51, 2.0**-100, 1e-40])
def test_zeros_beside_tiny_factors_of_the_float_register(tiny):
    """Whose products the fast steps do not know."""
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(8, 24, generator=g), torch.randn(24, 16, generator=g)
    a[:, ::2] = 0
    a[2, 1::2] *= tiny
    check(a, b, ":fp32")
    a, b = torch.randn(8, 24, generator=g), torch.randn(24, 16, generator=g)
    b[1::2] = 0
    b[::2, 3] *= tiny
    check(a, b, ":fp32")


@pytest.mark.parametrize("k", [257, 513, 514])
def test_negative_zeros_between_runs_of_the_float_register(k):
    """Terms are taken some hundreds at a time; a sum that was -0 there goes on as that."""
    g = torch.Generator().manual_seed(k)
    a, b = (torch.randn(*shape, generator=g) * 1e-24 for shape in ((9, k), (k, 16)))
    a[:, ::2] = 0
    found = gs.count_events(a, b, ":fp32").out
    assert torch.signbit(found[found == 0]).any()
    assert_bitwise_equal(found, gs.qmatmul(a, b, ":fp32"))


@pytest.mark.parametrize("register", ["kahan(e5m8/sat/ftz)", "kahan(e5m10)", "e5m10", "e5m8/ftz", "e5m10/rtz"])
def test_tiny_sums(register):
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randn(*shape, generator=g).relu() * 2.0**-5 for shape in ((3, 17), (17, 12)))
    check(a, b, f":{register}")
    a, b = torch.tensor([[0.9, 0.0, 2.5]]), torch.tensor([[-1e-20], [-1.0], [-1e-20]])
    check(a, b, f":{register}")  # -0 and a product that is -0


@pytest.mark.parametrize("order", ["pairwise(e5m10)", "pairwise(e5m10, 2)", "interleaved(3, e5m10, pairwise)"])
def test_negative_zeros_meet(order):
    a, b = torch.full((2, 4), -1e-5), torch.full((4, 3), 1e-5)
    assert check(a, b, f":{order}") > 0
    assert torch.signbit(gs.count_events(a[:, :2], b[:2], f":{order}").out).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=16), min_size=1, max_size=12),
    st.sampled_from(
        ["e5m10", "e4m3", "e5m2/sat", "bf16/rtz", "e5m10/sr4", "kahan(e5m2)", "pairwise(e5m2)", "e4m3/ftz"]
    ),
)
def test_any_half_precision_terms(terms, register):
    check(torch.tensor([terms], dtype=torch.float32), torch.ones(len(terms), 1), f":{register}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_strides_batches_and_vectors(dtype):
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 3, 24, 6, generator=g).to(dtype), torch.randn(24, 10, generator=g).to(dtype)
    left, right = a.transpose(-1, -2)[..., ::2], b[::2, ::2]
    got = gs.count_events(left, right, "chunked(4, e5m10/sr8)", seed=5)
    assert_bitwise_equal(got.out, gs.qmatmul(left, right, "chunked(4, e5m10/sr8)", seed=5))
    for i in range(2):
        for j in range(3):
            row0 = (i * 3 + j) * 6
            want = reference.count_events(
                left[i, j].double().tolist(), right.double().tolist(), "chunked(4, e5m10/sr8)", 5, row0=row0
            )
            for event in NAMES:
                counts = [[getattr(x, event) for x in line] for line in want]
                assert getattr(got, event)[i, j].tolist() == counts
    many = gs.count_events(left, torch.randn(3, 12, 4, generator=g).to(dtype), "e5m10")
    assert many.swamped.shape == many.out.shape == (2, 3, 6, 4)
    vector = gs.count_events(left[0, 0, 0], right[:, 0], "e5m10")
    assert vector.inexact.shape == vector.out.shape == ()
    assert int(vector.inexact) == int(gs.count_events(left[0, 0, :1], right[:, :1], "e5m10").inexact)
    assert gs.count_events(left[0, 0, 0], right, "e5m10").swamped.shape == (5,)
    assert gs.count_events(left[0, 0], right[:, 0], "e5m10").swamped.shape == (6,)


def test_threads_give_the_same_counts():
    a, b = torch.randn(70, 200), torch.randn(200, 90)
    torch.set_num_threads(1)
    want = gs.count_events(a, b, "e5m10")
    torch.set_num_threads(3)
    got = gs.count_events(a, b, "e5m10")
    for event in (*NAMES, "out"):
        assert_bitwise_equal(getattr(got, event), getattr(want, event))


@pytest.mark.parametrize("m, k, n", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty(m, k, n):
    got = gs.count_events(torch.ones(m, k), torch.ones(k, n), "pairwise(e5m10)")
    assert got.out.shape == got.swamped.shape == (m, n) and got.swamped.dtype == torch.int64
    assert got.additions == (0 if k == 0 else 2 * k - 1) and int(got.inexact.sum()) == 0
    assert got.shares() == dict.fromkeys(NAMES, 0.0)


def test_each_event_once():
    one = torch.ones(3, 1)

    def of(*terms: float, spec: str = "e5m10") -> dict[str, int]:
        found = gs.count_events(torch.tensor([terms]), one[: len(terms)], spec)
        return {event: int(getattr(found, event)) for event in NAMES if int(getattr(found, event))}

    assert of(1.0, 2.0) == {}
    assert of(2048.0, 1.0) == {"swamped": 1, "inexact": 1}
    assert of(2048.0, 0.0) == of(2048.0, -0.0) == {}
    assert of(2048.0, 3.0) == {"inexact": 1}
    assert of(2.0**-24) == {}  # tiny, but exact
    assert of(2.0**-25) == {"swamped": 1, "inexact": 1, "underflow": 1}  # becomes 0: the register stays
    assert of(1.5 * 2.0**-24) == {"inexact": 1, "underflow": 1}
    assert of(2.0**-14 - 2.0**-26) == {"inexact": 1, "underflow": 1}  # rounds up to the smallest normal: tiny before
    assert of(60000.0, 60000.0, 1.0) == {"inexact": 1, "overflow": 1}  # infinite: nothing more
    assert of(60000.0, 60000.0, 1.0, spec="e5m10/sat") == {"swamped": 1, "inexact": 2, "overflow": 1}
    assert of(65504.0, 1.0, spec="e5m10/sat") == {
        "swamped": 1,
        "inexact": 1,
    }  # rounds to the largest value, not past it
    assert of(math.inf, 1.0, 1.0) == of(math.nan, 1.0) == {}


@pytest.mark.kept
@pytest.mark.parametrize("init", ["c_first", "c_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addend(init, dtype):
    g = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(*shape, generator=g) for shape in ((5, 20), (20, 7), (5, 7)))
    c[0, 0], c[1, 1] = -0.0, 1e6
    for add in ("e5m10", "e5m2/sr4", "bf16/rtz"):
        check(a, b, f": sequential({add}, init={init})", c=c.to(dtype))
    with pytest.raises(SpecError, match="init="):
        gs.count_events(a, b, "e5m10", c=c)


def test_slices_of_k_follow_one_register():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(4, 64, generator=g), torch.randn(64, 4, generator=g)
    whole = gs.count_events(a, b, "e5m10")
    register, swamped = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.int64)
    for k in range(0, 64, 16):
        part = gs.count_events(a[:, k : k + 16], b[k : k + 16], ": sequential(e5m10, init=c_first)", c=register)
        register, swamped = part.out, swamped + part.swamped
    assert_bitwise_equal(register, whole.out)
    assert_bitwise_equal(swamped, whole.swamped)


@pytest.mark.parametrize(
    "spec",
    [
        "exact(fp32)", "binned(fp32)", "chunked(4, exact(fp32))", "int8 : int(24)", "fixed(16, 8, rounding=rtz)",
        "hw(hopper, wgmma, bf16)", "promote(hw(hopper, wgmma, e4m3), 32)", "palette(e5m10, bf16)", "mxfp8_e4m3 : scaled(e5m10)",
    ],
)  # fmt: skip
def test_refusals_name_what_is_supported(spec):
    with pytest.raises(UnsupportedSpec, match="allowed: accumulators in a format, kahan"):
        gs.count_events(torch.ones(2, 32), torch.ones(32, 2), spec)
    with pytest.raises(UnsupportedSpec, match="fp32"):
        gs.count_events(torch.ones(2, 32), torch.ones(32, 2), gs.GemmSpec(accumulator="e5m10", arithmetic="fp32"))


@pytest.mark.parametrize(
    "spec",
    ["mxfp8_e4m3 : e5m10", "mxfp4 * mxfp8_e5m2 : chunked(8, e6m9)", "nvfp4/tensor : e5m10", "nvfp4 * e4m3 : bf16/sr8",
     "mxint8 : kahan(e5m10)", "FP[1|5|2,15](SN) : e5m10"],
)  # fmt: skip
@pytest.mark.parametrize("k", [64, 0])
def test_operands_in_block_formats_are_their_values(spec, k):
    g = torch.Generator().manual_seed(len(spec))
    a, b = torch.randn(3, k, generator=g), torch.randn(k, 5, generator=g)
    want = reference.count_events(a.tolist(), b.tolist(), spec, 3) if k else [[(0, 0, 0, 0, 0)] * 5] * 3
    for name in isas():
        cpu.set_isa(name)
        found = gs.count_events(a, b, spec, seed=3)
        assert_bitwise_equal(found.out, gs.qmatmul(a, b, spec, seed=3), context=f"{spec}, {name}")
        for i, event in enumerate(NAMES):
            expected = torch.tensor([[counts[i] for counts in row] for row in want])
            assert_bitwise_equal(getattr(found, event), expected, context=f"{event}, {spec}, {name}")
        assert found.additions == want[0][0][4]


def test_operator():
    a, b = torch.randn(4, 12), torch.randn(12, 5)
    torch.library.opcheck(torch.ops.gemmsim.count_events.default, (a, b, ":e5m10", 3))
    torch.library.opcheck(torch.ops.gemmsim.count_events.default, (a.bfloat16(), b, ":chunked(4, bf16/sr8)", 3))
    batch = torch.randn(3, 4, 12)
    got = torch.vmap(lambda x: gs.count_events(x, b, "e5m10").swamped)(batch)
    assert_bitwise_equal(got, gs.count_events(batch, b, "e5m10").swamped)
    got = torch.vmap(lambda y: gs.count_events(a, y, "e5m10").inexact, in_dims=2)(torch.stack([b, 2 * b], 2))
    assert_bitwise_equal(got[0], gs.count_events(a, b, "e5m10").inexact)


def test_operands_that_are_formats_and_gradients():
    a, b = torch.randint(-100, 100, (3, 40), dtype=torch.int8), torch.randint(-100, 100, (40, 2), dtype=torch.int8)
    got = gs.count_events(a, b, "int8 : e5m10")
    assert_bitwise_equal(got.swamped, gs.count_events(a.float(), b.float(), "e5m10").swamped)
    x = torch.randn(3, 40, requires_grad=True)
    assert not gs.count_events(x, b.float(), "e5m10").out.requires_grad
