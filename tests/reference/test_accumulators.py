"""Every accumulator against the numpy design reference and Fraction loops: values, signs of zeros, specials."""

import math
from fractions import Fraction

import numpy as np
import pytest
from oracles import acc_reference as ref
from support import LONG

from gemmsim import acc
from gemmsim.arithmetic import GemmSpec
from gemmsim.reference import gemm

FORMATS = [
    ("e5m10", ref.FP16),
    ("bf16", ref.BF16),
    ("e6m9", ref.E6M9),
    ("e5m2", ref.E5M2),
    ("e4m7b10/sat", ref.eXmY(4, 7, saturate=True, bias=10)),
]
MODES = [("rne", "rne"), ("rna", "rna"), ("rtz", "rz"), ("ru", "ru"), ("rd", "rd")]
K = 19
TWICE = ref.FP16


def operands(seed, m=21, n=20, k=K):
    """420 dots that round, underflow into subnormals, overflow in the smaller formats, cancel, and hold both zeros."""
    rng = np.random.default_rng(seed)

    def some(shape, low, high):
        x = rng.integers(-31, 32, shape) * 2.0 ** rng.integers(low, high, shape)
        return np.where(rng.random(shape) < 0.1, np.copysign(0.0, rng.standard_normal(shape)), x)

    a, b = some((m, k), -9, 3), some((k, n), -6, 3)
    # Rows of one scale each: all tiny (subnormals, underflow), all large (overflow), and copies that cancel.
    a[:4] *= 2.0**-14
    a[4:7] *= 2.0**9
    a[7:10, 1::2] = -a[7:10, :-1:2]
    return a, b


def fused(a, b):
    return a[:, None, :], np.broadcast_to(b.T[None, :, :], (a.shape[0], b.shape[1], a.shape[1]))


def assert_same(got, want, hint):
    got, want = np.array(got), np.asarray(want, float)
    wrong = ~((got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want))
    assert not wrong.any(), (hint, int(wrong.sum()), got[wrong][:3], want[wrong][:3])


def single(v, step):
    """R(0 + v), term by term."""
    return ref.seqsum(v[..., None], step)


def fast_two_sum(a, b, s):
    p = ref.prods(a, b, s)
    S = np.zeros(p.shape[:-1])
    C = np.zeros_like(S)
    for k in range(p.shape[-1]):
        x = ref.rnd(p[..., k], s.add, s.add_mode)
        t = ref.radd(S, x, s)
        C = ref.radd(C, ref.radd(x, -ref.radd(t, -S, s), s), s)
        S = t
    return ref.radd(S, C, s)


def chunks_of_kahan(a, b, s):
    total = np.zeros(np.broadcast(a[..., 0], b[..., 0]).shape)
    for k in range(0, a.shape[-1], 6):
        total = ref.radd(total, ref.kahan(a[..., k : k + 6], b[..., k : k + 6], s), ref.Step(TWICE))
    return total


def shuffled(a, b, s):
    order = acc.shuffled("e5m10", 11).order(a.shape[-1])
    return ref.seq(a[..., order], b[..., order], s)


# inner accumulator -> ours, theirs
CASES = {
    "chunked": (lambda f: acc.chunked(8, f, "e5m10"), lambda a, b, s: ref.chunked(a, b, 8, s, ref.Step(TWICE))),
    "chunked_own": (lambda f: acc.mptorch_cuda(*f), lambda a, b, s: ref.chunked(a, b, 8, s, s)),
    "promote": (lambda f: acc.promote(f, 5), lambda a, b, s: ref.chunked(a, b, 5, s, ref.Step(ref.FP32))),
    "pairwise": (lambda f: acc.pairwise(f), lambda a, b, s: ref.tree(single(ref.prods(a, b, s), s), s)),
    "pairwise_leaf": (lambda f: acc.pairwise(f, 3), lambda a, b, s: ref.pairwise(a, b, s, 3)),
    "interleaved": (lambda f: acc.interleaved(4, f), lambda a, b, s: ref.interleaved(a, b, 4, s)),
    "interleaved_tree": (
        lambda f: acc.interleaved(7, f, "pairwise"),
        lambda a, b, s: ref.interleaved(a, b, 7, s, "tree"),
    ),
    "splitk": (
        lambda f: acc.splitk(3, f, "bf16"),
        lambda a, b, s: ref.splitk(a, b, 3, s, ref.Step(ref.BF16)),
    ),
    "shuffled": (lambda f: acc.shuffled(f, 11), shuffled),
    "kahan": (lambda f: acc.kahan(*f), ref.kahan),
    "neumaier": (lambda f: acc.neumaier(*f), ref.neumaier),
    "two_sum": (lambda f: acc.two_sum(*f), ref.twosum_cascade),
    "fast_two_sum": (lambda f: acc.fast_two_sum(*f), fast_two_sum),
    "chunked_kahan": (lambda f: acc.chunked(6, acc.kahan(*f), "e5m10"), chunks_of_kahan),
}
WANTS_CASTS = {"chunked_own", "kahan", "neumaier", "two_sum", "fast_two_sum", "chunked_kahan"}


@pytest.mark.parametrize("case", CASES)
def test_against_the_numpy_design_reference(case):
    ours, theirs = CASES[case]
    dots = 0
    for index, (name, fmt) in enumerate(FORMATS):
        for at, (mode, their_mode) in enumerate(MODES):
            if not LONG and (index + at) % len(MODES) > 1:
                continue  # two modes of each format, two formats of each mode; all pairs in the long run
            a, b = operands(100 * index + at)
            mul = "e5m7" if (index + at) % 2 else None
            casts = (f"{name}/{mode}", None if mul is None else f"{mul}/{mode}")
            inner = casts if case in WANTS_CASTS else acc.sequential(*casts)
            step = ref.Step(fmt, None if mul is None else ref.eXmY(5, 7), their_mode, their_mode)
            accumulator = ours(inner)
            with np.errstate(all="ignore"):
                want = theirs(*fused(a, b), step)
            assert_same(gemm(a, b, accumulator), want, str(accumulator))
            dots += want.size
    assert dots >= (10_000 if LONG else 4_000)


def rounded(x, fmt, mode):
    """Fraction -> float in fmt, overflow by IEEE 754."""
    try:
        y = ref.frac_round(x, fmt, mode)
    except OverflowError:
        return math.copysign(math.inf, x)
    return float(y) if y else math.copysign(0.0, x)


@pytest.mark.parametrize("kind", ["exact", "binned"])
def test_exact_registers_against_fractions(kind):
    dots = 0
    for index, (name, fmt) in enumerate(FORMATS):
        for at, (mode, their_mode) in enumerate(MODES):
            a, b = operands(100 * index + at)
            accumulator = acc.exact(f"{name}/{mode}") if kind == "exact" else acc.binned(f"{name}/{mode}", carry=2)
            with np.errstate(all="ignore"):
                want = [[(one_exact if kind == "exact" else one_binned)(x, y, fmt, their_mode) for y in b.T] for x in a]
            assert_same(gemm(a, b, accumulator), want, str(accumulator))
            dots += np.size(want)
    assert dots >= 10_000


def one_exact(x, y, fmt, mode):
    return rounded(sum((Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True)), Fraction(0)), fmt, mode)


def one_binned(x, y, fmt, mode):
    """Registers of products by exponent, at most four times the leading bit."""
    S, bins, step = 0.0, {}, ref.Step(fmt, None, mode)

    def spill(S, held):
        return float(ref.radd(np.array(S), np.array(float(held)), step))

    for p, q in zip(x, y, strict=True):
        product = Fraction(p) * Fraction(q)
        if product:
            e = math.frexp(float(product))[1] - 1
            held = bins.get(e, Fraction(0))
            if -(Fraction(2) ** (e + 2)) <= held + product < Fraction(2) ** (e + 2):
                bins[e] = held + product
            else:
                S = spill(S, held)
                bins[e] = product
    for e in sorted(bins):
        S = spill(S, bins[e]) if bins[e] else S
    return S


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
@pytest.mark.parametrize("when", ["every", "end"])
def test_integers_against_the_numpy_design_reference(overflow, when):
    from gemmsim.reference import count_overflows

    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (25, 23)), rng.integers(-128, 128, (23, 24))
    dots = 0
    for bits, signed, shift in [
        (8, True, 0),
        (16, True, 0),
        (17, True, 3),
        (12, False, 1),
        (32, True, 0),
        (1, False, 7),
    ]:
        accumulator = acc.int(bits, overflow, when=when, signed=signed, shift=shift)
        want, over = ref.intacc(a[:, None, :], b.T[None], bits, overflow, signed, shift, when)
        assert_same(gemm(a, b, accumulator), want, str(accumulator))
        assert np.array_equal(count_overflows(a, b, accumulator), over)
        dots += want.size
    assert dots >= 2_500


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
@pytest.mark.parametrize("mode, theirs", [("rtz", "rz"), ("rd", "rd"), ("rne", "rne")])
def test_fixed_against_the_numpy_design_reference(overflow, mode, theirs):
    from gemmsim.reference import count_overflows

    dots = 0
    for seed, (bits, frac) in enumerate([(8, 3), (16, 8), (12, 14), (10, -2), (24, 20)]):
        a, b = operands(seed)
        accumulator = acc.fixed(bits, frac, rounding=mode, overflow=overflow)
        want, over = ref.fixedacc(*fused(a, b), bits, frac, overflow, theirs)
        assert_same(gemm(a, b, accumulator), want, str(accumulator))
        assert np.array_equal(count_overflows(a, b, accumulator), over)
        dots += want.size
    assert dots >= 2_000


INNERS = ["e5m10", "mul=e5m7/rtz, add=e6m5", "e5m2/rd", "kahan(bf16)", "pairwise(e6m5, 2)"]


@pytest.mark.parametrize("inner", INNERS)
def test_identities(inner):
    a, b = operands(7, 8, 7)

    def same(x, y):
        # As text: NaN equals itself and -0 is not +0.
        assert repr(gemm(a, b, x)) == repr(gemm(a, b, y)), (str(x), str(y))

    register = GemmSpec.of(inner).accumulator.add_cast
    same(acc.promote(inner, 5, "bf16"), acc.chunked(5, inner, "bf16"))
    same(acc.chunked(K, inner), acc.chunked(1000, inner))
    same(acc.splitk(1, inner, register), acc.chunked(K, inner))
    same(acc.splitk(4, inner, register), acc.chunked(5, inner))
    same(acc.interleaved(1, inner), acc.chunked(K, inner))
    same(acc.interleaved(K, inner, "pairwise"), acc.pairwise(inner, 1))
    same(acc.interleaved(3 * K, inner), acc.chunked(1, inner))
    same(acc.pairwise(inner, K), acc.interleaved(1, inner, "pairwise"))
    same(acc.pairwise(inner, K), inner)
    same(acc.chunked(1, acc.exact(register)), acc.chunked(1, acc.pairwise(register)))


def test_chunks_of_one_are_the_sequential_order_of_rounded_products():
    a, b = operands(8, 8, 7)
    assert gemm(a, b, acc.chunked(1, "e5m7", "e5m10")) == gemm(a, b, "mul=e5m7, add=e5m10")


@pytest.mark.parametrize(
    "text", ["exact(e5m10)", "exact(bf16/ru)", "int(9)", "fixed(9, 2, rounding=rne, overflow=wrap)"]
)
def test_the_order_has_no_influence(text):
    rng = np.random.default_rng(5)
    a, b = rng.integers(-99, 99, (6, 40)), rng.integers(-99, 99, (40, 5))
    want = gemm(a, b, text)
    for seed in range(5):
        order = rng.permutation(40)
        assert gemm(a[:, order], b[order], text) == want == gemm(a, b, acc.shuffled(text, seed))


def test_a_saturating_order_has():
    a, b = [[100.0, 100.0, -100.0]], [[1.0]] * 3
    assert gemm(a, b, acc.int(8, "saturate")) == [[27.0]]
    assert gemm([[100.0, -100.0, 100.0]], b, acc.int(8, "saturate")) == [[100.0]]


def test_a_row_does_not_depend_on_the_batch():
    a, b = operands(9, 5, 4)
    for text in [
        "chunked(4, e5m10/sr7)",
        "kahan(e5m10/sr5)",
        "pairwise(interleaved(3, e6m9/sr4), 5)",
        "binned(e5m2/sr3)",
    ]:
        whole = gemm(a, b, text, seed=3)
        assert repr(gemm(a[2:3], b, text, seed=3, row0=2)) == repr(whole[2:3])
        assert repr(whole) != repr(gemm(a, b, text, seed=4))


EVERYTHING = [
    "chunked(4, e5m10)", "promote(e5m2, 3)", "pairwise(e5m10)", "interleaved(4, e5m10, pairwise)", "interleaved(4, e5m10)",
    "splitk(3, e5m10, bf16)", "shuffled(e5m10, 1)", "kahan(e5m10)", "neumaier(e5m10)", "two_sum(e5m10)",
    "fast_two_sum(e5m10)", "exact(e5m10)", "binned(e5m10)", "int(8)", "fixed(8, 3, rounding=rne)",
    "chunked(4, exact(e5m10))", "splitk(2, binned(e5m2), fp32)",
]  # fmt: skip


@pytest.mark.parametrize("text", EVERYTHING)
def test_no_terms_are_plus_zero(text):
    assert repr(gemm(np.zeros((1, 0)), np.zeros((0, 2)), text)) == "[[0.0, 0.0]]"
    got = gemm([[-0.0, 0.0, -0.0]], [[1.0], [-2.0], [5.0]], text)
    assert repr(got) == "[[0.0]]"


@pytest.mark.parametrize("text", [text for text in EVERYTHING if "int" not in text or "inter" in text])
def test_specials(text):
    inf, nan = math.inf, math.nan
    for row in ([nan, 1.0, 2.0], [1.0, inf, -inf], [1.0, 2.0, nan]):
        got = gemm([row], [[1.0], [1.0], [1.0]], text)[0][0]
        assert math.isnan(got) or (text.startswith("fixed") and inf in row)
    assert math.isnan(gemm([[1.0, inf]], [[1.0], [0.0]], text)[0][0])


def test_infinities_stay_where_nothing_subtracts_them():
    row, column = [[1.0, -math.inf, 5.0]], [[1.0], [1.0], [1.0]]
    for text in ["chunked(2, e5m10)", "pairwise(e5m10)", "exact(e5m10)", "binned(e5m10)", "splitk(2, e5m10, bf16)"]:
        assert gemm(row, column, text) == [[-math.inf]]
    for text in ["kahan(e5m10)", "neumaier(e5m10)", "two_sum(e5m10)", "fast_two_sum(e5m10)"]:
        assert math.isnan(gemm(row, column, text)[0][0])
    assert gemm(row, column, acc.fixed(8, 0)) == [[-123.0]]
    assert math.isnan(gemm(row, column, acc.fixed(8, 0, overflow="wrap"))[0][0])


def test_compensation_gains_what_it_should():
    a, b = [[1.0] + [2.0**-12] * 128], [[1.0]] * 129
    assert gemm(a, b, "bf16") == [[1.0]]
    for text in ["kahan(bf16)", "neumaier(bf16)", "two_sum(bf16)", "fast_two_sum(bf16)", "exact(bf16)"]:
        assert gemm(a, b, text) == [[1.03125]]


def test_fp32_arithmetic_goes_through_binary32_at_each_rounding():
    # 1 + 2^-11 + 2^-36: above the midpoint of e5m10; binary32 leaves the tie, which goes to even.
    a, b = [[1.0, 1.0]], [[1.0], [2.0**-11 + 2.0**-34]]
    for text in ["chunked(2, e5m10)", "interleaved(1, e5m10)", "pairwise(e5m10, 2)", "kahan(e5m10)"]:
        assert gemm(a, b, f":{text}, arithmetic=fp32") == [[1.0]], text
        assert text.startswith("kahan") or gemm(a, b, f":{text}") == [[1 + 2.0**-10]], text


def test_palette_elements_are_those_of_their_members():
    a, b = operands(12, 6, 5)
    members = ["e5m10/sr6", "chunked(4, e5m2/sr3)", "kahan(bf16)", "exact(e6m9)", "mul=e5m7, add=e5m7"]
    select = np.random.default_rng(1).integers(0, len(members), (6, 5))
    palette = acc.palette(*(GemmSpec.of(text).accumulator for text in members))
    got = gemm(a, b, palette, seed=8, select=select)
    alone = [gemm(a, b, text, seed=8) for text in members]
    for i in range(6):
        for j in range(5):
            assert repr(got[i][j]) == repr(alone[select[i, j]][i][j])


@pytest.mark.parametrize(
    "spec, select, message",
    [
        (acc.palette("e5m10"), None, "without select"),
        (acc.palette("e5m10"), [[1]], "index 1 in select; allowed: 0 to 0"),
        (acc.palette("e5m10"), [[0, 0]], r"not \(1, 1\)"),
        ("e5m10", [[0]], "for palette"),
    ],
)
def test_select_errors(spec, select, message):
    with pytest.raises(ValueError, match=message):
        gemm([[1.0]], [[1.0]], spec, select=select)


@pytest.mark.parametrize("value", [0.5, math.inf, math.nan])
def test_integer_registers_take_integers(value):
    with pytest.raises(ValueError, match="allowed: integers"):
        gemm([[value]], [[2.0]], acc.chunked(4, acc.int(8), "fixed(16,0)"))
    assert gemm([[2.5]], [[2.0]], "int8 : int(16)") == [[4.0]]


def test_overflows_are_counted_through_composites_only_in_registers():
    from gemmsim.arithmetic import SpecError
    from gemmsim.reference import count_overflows

    a, b = [[100.0, 100.0, 100.0, 100.0]], [[1.0]] * 4
    assert count_overflows(a, b, acc.promote(acc.int(8), 2)) == [[2]]
    assert count_overflows(a, b, acc.int(8, when="end")) == [[1]]
    assert count_overflows(a, b, acc.palette(acc.int(8), "fp32"), select=[[1]]) == [[0]]
    with pytest.raises(SpecError, match="allowed: int"):
        count_overflows(a, b, "fixed(8,0)")
