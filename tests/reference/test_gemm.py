"""The reference GEMM against step loops of other arithmetic: Fractions, MPFR's fma, numpy loops, vectors."""

import json
import math
import random
from pathlib import Path

import gmpy2
import numpy as np
import pytest
from oracles import acc_reference
from oracles.nearest_search import dot_search, same

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import FloatFormat, parse, parse_cast
from gemmsim.reference import gemm, philox, quantize, round_value

GOLDEN = Path(__file__).parents[1] / "golden"
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 448.0, -448.0, 2.0**-9, 1e30, -1e-30, 5e-324]


def column_of(b, j):
    return [row[j] for row in b]


def small_operands(rng, m, k, n, special_rate):
    """Values that overflow, underflow and cancel in 4- to 8-bit formats, with specials sprinkled in."""

    def number():
        if rng.random() < special_rate:
            return rng.choice(SPECIALS)
        return rng.choice([-1, 1]) * rng.randint(1, 31) * 2.0 ** rng.randint(-9, 3)

    return [[number() for _ in range(k)] for _ in range(m)], [[number() for _ in range(n)] for _ in range(k)]


@pytest.mark.parametrize("rounding", ["rne", "rna", "rtz", "ru", "rd", "ro"])
@pytest.mark.parametrize("add, mul", [("e4m3", None), ("e3m2", None), ("e5m2/sat", None), ("e4m3fnuz", "e3m2/clamp"),
    ("e2m3/ftz", "e4m1/ftz"), ("fixed(8,3)", "e4m3/sat"), ("binary6p3", None), ("ufixed(7,1)", None),
    ("e3m3/satprop", "fixed(9,4,unbounded)"), ("binary7p2ue", "binary6p2sf")])  # fmt: skip
def test_against_search_in_the_list_of_values(rounding, add, mul):
    add = parse_cast(f"{add}/{rounding}")
    mul = None if mul is None else parse_cast(f"{mul}/{rounding}")
    spec = GemmSpec(product=mul, accumulator=add)
    rng = random.Random(f"{add}{mul}")
    for special_rate in (0.0, 0.08, 0.3):
        a, b = small_operands(rng, 6, 9, 6, special_rate)
        a = [[min(max(x, -600), 600) if math.isfinite(x) else x for x in row] for row in a]
        b = [[x if abs(x) < 1 or not math.isfinite(x) else math.copysign(1, x) for x in row] for row in b]
        got = gemm(a, b, spec)
        for i in range(6):
            for j in range(6):
                want = dot_search(a[i], column_of(b, j), mul, add)
                assert same(got[i][j], want), (str(spec), a[i], column_of(b, j), got[i][j], want)


@pytest.mark.parametrize("name", ["e5m10", "e8m7", "e6m9", "e5m2", "e8m23", "e8m20"])
@pytest.mark.parametrize(
    "mode, mpfr",
    [("rne", gmpy2.RoundToNearest), ("rtz", gmpy2.RoundToZero), ("ru", gmpy2.RoundUp), ("rd", gmpy2.RoundDown)],
)
def test_fused_steps_against_mpfr_fma(name, mode, mpfr):
    fmt = parse(name)
    assert isinstance(fmt, FloatFormat)
    context = gmpy2.context(
        precision=fmt.p, emin=fmt.emin - fmt.p + 2, emax=fmt.emax + 1, subnormalize=True, round=mpfr
    )
    exact = gmpy2.context(precision=200)
    rng = np.random.default_rng(3)
    scale = np.ldexp(1.0, rng.integers(-12, 6, (5, 40)))
    a = (rng.standard_normal((5, 40)) * scale).astype(np.float32)
    b = rng.standard_normal((40, 4)).astype(np.float32)
    got = gemm(a, b, f":{name}/{mode}")
    for i in range(5):
        for j in range(4):
            s = gmpy2.mpfr(0)
            for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True):
                with exact:
                    x, y = gmpy2.mpfr(x), gmpy2.mpfr(y)
                with context:
                    s = gmpy2.fma(x, y, s)
            assert got[i][j] == float(s)


@pytest.mark.parametrize("dtype, name", [(np.float16, "fp16"), (np.float32, "fp32"), (np.float64, "fp64")])
@pytest.mark.parametrize("special", [False, True])
def test_separate_roundings_against_numpy_loops(dtype, name, special):
    rng = np.random.default_rng(4)
    bits = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}[dtype]
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((6, 30), (30, 6)))
    if special:
        for x in (a, b):
            raw = rng.integers(0, np.iinfo(bits).max, x.shape, dtype=bits, endpoint=True).view(dtype)
            np.copyto(x, raw, where=rng.random(x.shape) < 0.1)
            np.copyto(x, dtype(-0.0), where=rng.random(x.shape) < 0.1)
    s = np.zeros((6, 6), dtype)
    with np.errstate(all="ignore"):
        for k in range(30):
            s = s + a[:, k, None] * b[None, k, :]
    got = np.array(gemm(a, b, f":mul={name}, add={name}"))
    assert np.array_equal(got, s.astype(np.float64), equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(s) & ~np.isnan(s))


@pytest.mark.parametrize("name", ["e5m10", "e8m7", "e4m3", "e6m9"])
def test_fp32_arithmetic_rounds_to_binary32_first(name):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((4, 50)), rng.standard_normal((50, 4))
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    cast = parse_cast(name)
    s = np.zeros((4, 4), np.float32)
    t = np.zeros((4, 4), np.float32)
    into = np.vectorize(lambda x: round_value(float(x), cast), otypes=[np.float32])
    for k in range(50):
        product = a32[:, k, None] * b32[None, k, :]
        s = into(s + into(product))
        # The product of two float32 is exact in longdouble and its sum with t in 64 bits nearly always.
        fused = a32[:, k, None].astype(np.longdouble) * b32[None, k, :] + t
        t = into(fused.astype(np.float32))
    assert np.array_equal(np.array(gemm(a, b, f":mul={name}, add={name}, arithmetic=fp32")), s)
    assert np.array_equal(np.array(gemm(a, b, f":{name}, arithmetic=fp32")), t)


def test_fp32_arithmetic_differs_from_exact_where_it_should():
    # 1 + 2^-11 + 2^-36 is above the midpoint of e5m10; binary32 drops 2^-36 and leaves the tie, which goes to even.
    a, b = [[1.0, 1.0]], [[1.0], [2.0**-11 + 2.0**-34]]
    assert gemm(a, b, ":e5m10") == [[1 + 2.0**-10]]
    assert gemm(a, b, ":e5m10, arithmetic=fp32") == [[1.0]]


def test_fp32_arithmetic_casts_operands_from_the_given_value():
    # Through binary32 1 + 2^-11 + 2^-40 would become a tie.
    a = [[1 + 2.0**-11 + 2.0**-40]]
    assert gemm(a, [[1.0]], "e5m10 : fp32, arithmetic=fp32") == [[1 + 2.0**-10]]
    assert gemm(a, [[1.0]], ":fp32, arithmetic=fp32") == [[1 + 2.0**-11]]


@pytest.mark.parametrize("mode, theirs", [("rne", "rne"), ("rna", "rna"), ("rtz", "rz"), ("ru", "ru"), ("rd", "rd")])
@pytest.mark.parametrize("name, fmt", [("e5m10", acc_reference.FP16), ("bf16", acc_reference.BF16),
    ("e6m9", acc_reference.E6M9), ("e5m2", acc_reference.E5M2), ("fp32", acc_reference.FP32),
    ("e4m3", acc_reference.E4M3), ("e4m7b10/sat", acc_reference.eXmY(4, 7, saturate=True, bias=10))])  # fmt: skip
@pytest.mark.parametrize("mul", [None, "e5m7"])
def test_against_the_numpy_design_reference(mode, theirs, name, fmt, mul):
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal(s).astype(np.float16).astype(np.float64) for s in ((5, 70), (70, 6)))
    step = acc_reference.Step(fmt, None if mul is None else acc_reference.eXmY(5, 7), theirs, theirs)
    want = acc_reference.seq(a[:, None, :], b.T[None, :, :], step)
    mul_text = "" if mul is None else f"mul={mul}/{mode}, add="
    assert np.array_equal(np.array(gemm(a, b, f":{mul_text}{name}/{mode}")), want)


def golden_cases():
    with np.load(GOLDEN / "mptorch_gemm.npz") as vectors:
        arrays = dict(vectors)
    for i, meta in enumerate(json.loads(bytes(arrays["meta"]))):
        if meta["op"] in ("float_mm", "fxp_mm", "float_bmm"):
            yield i, meta, {key: arrays[f"{i:04d}/{key}"] for key in ("a", "b", "y", "valid")}


def golden_spec(meta):
    if meta["op"] == "fxp_mm":
        add, mul = (f"fixed({meta[f'wl_{role}']},{meta[f'fl_{role}']})" for role in ("add", "mul"))
    else:
        tail = ("" if meta["subnormals"] else "/ftz") + ("/sat" if meta["saturate"] else "")
        add, mul = (f"ieee_e{meta[f'exp_{role}']}m{meta[f'man_{role}']}{tail}" for role in ("add", "mul"))
    return f":{add}" if meta["fma"] else f":mul={mul}, add={add}"


@pytest.mark.parametrize("arithmetic", ["exact", "fp32"])
def test_mptorch_vectors(arithmetic):
    count = 0
    for i, meta, z in golden_cases():
        spec = GemmSpec.parse(f"{golden_spec(meta)}, arithmetic={arithmetic}")
        a, b = z["a"], z["b"]
        if meta["op"] == "float_bmm":
            got = np.array([gemm(x, y.T, spec) for x, y in zip(a, b, strict=True)])
        else:
            got = np.array(gemm(a, b, spec))
        agrees = (got == z["y"]) | (np.isnan(got) & np.isnan(z["y"])) | ~z["valid"]
        assert agrees.all(), (i, meta, str(spec))
        count += z["valid"].sum()
    assert count > 2500


def draws_of(seed, row, col, bits):
    """The written definition, once more: docs/reference/random_bits.md."""

    def draw(site, k):
        n = 8 if bits <= 16 else 4
        key = (seed % 2**32, seed >> 32)
        words = philox(key, (col, row % 2**32, k // n, site + ((row >> 32) << 8)))
        if bits > 16:
            return words[k % 4] >> (32 - bits)
        return ((words[k % 8 // 2] >> (16 * (k % 2))) & 0xFFFF) >> (16 - bits)

    return draw


@pytest.mark.parametrize("rounding", ["sr3", "sr8", "srb5", "src12", "sr20"])
@pytest.mark.parametrize("mul", [None, "e3m3"])
@pytest.mark.parametrize("row0", [0, (1 << 32) + 5])
def test_stochastic_steps_draw_as_written(rounding, mul, row0):
    add = parse_cast(f"e4m3/{rounding}")
    mul = None if mul is None else parse_cast(f"{mul}/{rounding}")
    rng = random.Random(7)
    a, b = small_operands(rng, 4, 19, 5, 0.02)
    a = [[x if abs(x) < 100 or not math.isfinite(x) else 1.5 for x in row] for row in a]
    b = [[x if abs(x) < 1 or not math.isfinite(x) else 0.75 for x in row] for row in b]
    seed = 0xFEDCBA9876543210
    got = gemm(a, b, GemmSpec(product=mul, accumulator=add), seed=seed, row0=row0)
    for i in range(4):
        for j in range(5):
            want = dot_search(a[i], column_of(b, j), mul, add, draws_of(seed, row0 + i, j, add.rounding.bits))
            assert same(got[i][j], want)


def test_stochastic_rows_and_columns_do_not_depend_on_the_rest():
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((6, 20)), rng.standard_normal((20, 5))
    spec = "e4m3/sr5 : mul=e5m7/sr8, add=e5m4/sr20 -> e4m3/sr4"
    whole = gemm(a, b, spec, seed=9)
    assert gemm(a[2:], b, spec, seed=9, row0=2) == whole[2:]
    assert whole != gemm(a, b, spec, seed=10)
    narrow = gemm(a, b[:, :3], ":e5m4/sr8", seed=9)
    assert narrow == [row[:3] for row in gemm(a, b, ":e5m4/sr8", seed=9)]


def test_a_seed_in_the_spec_wins():
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((3, 20)), rng.standard_normal((20, 3))
    fixed = gemm(a, b, "e4m3/sr2 : sequential(e5m4/sr8, seed=9)", seed=1)
    assert fixed == gemm(a, b, "e4m3/sr2 : e5m4/sr8", seed=9) != gemm(a, b, "e4m3/sr2 : e5m4/sr8", seed=1)


def test_operand_and_output_casts_are_quantize_with_their_site():
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((3, 7)), rng.standard_normal((7, 4))
    by_hand = gemm(quantize(a, "e4m3/sr4", 5, 0), quantize(b, "e3m2/sr4", 5, 1), ":fp32")
    assert gemm(a, b, "e4m3/sr4 * e3m2/sr4 : fp32 -> e5m2/sr7", seed=5) == quantize(by_hand, "e5m2/sr7", 5, 4)


@pytest.mark.parametrize("mode", ["rne", "rd", "ru"])
def test_zero_sums(mode):
    spec = f":e5m10/{mode}"
    for a, b, negative in [
        ([[-0.0]], [[1.0]], False),  # +0 + -0
        ([[1.0, 1.0]], [[2.0], [-2.0]], False),
        ([[2.0**-40]], [[-1.0]], mode != "rd"),  # underflow keeps the sign; rd gives -2^-24
    ]:
        got = gemm(a, b, spec)[0][0]
        if mode == "rd" and a[0][0] == 2.0**-40:
            assert got == -(2.0**-24)
        else:
            assert got == 0 and (math.copysign(1, got) < 0) == negative
    cs = gemm([[-0.0, 0.0]], [[1.0], [-3.0]], f":sequential(e5m10/{mode}, init=c_first)", c=[[-0.0]])
    assert math.copysign(1, cs[0][0]) < 0


def test_specials():
    inf, nan = math.inf, math.nan
    for a, b, want in [
        ([[inf, 1]], [[0.0], [1]], nan),
        ([[inf, -inf]], [[1.0], [1]], nan),
        ([[inf, 5]], [[-1.0], [1]], -inf),
        ([[nan, 5]], [[0.0], [1]], nan),
        ([[65504, 65504, -65504]], [[1.0], [1], [1]], inf),
    ]:
        got = gemm(a, b, ":e5m10")[0][0]
        assert same(got, want) and (not math.isnan(got) or math.copysign(1, got) > 0)
    assert gemm([[65504, 65504, -65504]], [[1.0], [1], [1]], ":e5m10/sat") == [[0.0]]
    assert gemm([[inf, -1]], [[1.0], [448]], ":e4m3/sat") == [[0.0]]
    assert gemm([[inf, -1]], [[1.0], [448]], ":e5m10/clamp") == [[65504 - 448]]


def test_c_enters_first_or_last():
    a, b, c = [[1.0, 1.0]], [[2.0**-11], [2.0**-11]], [[1.0]]
    assert gemm(a, b, ":sequential(e5m10, init=c_first)", c=c) == [[1.0]]
    assert gemm(a, b, ":sequential(e5m10, init=c_last)", c=c) == [[1 + 2.0**-10]]
    assert gemm(a, b, ":sequential(e5m10, init=c_first)") == [[2.0**-10]]


def test_c_last_is_step_k():
    spec = ":sequential(e4m3/sr3, init=c_last)"
    a, b, c = [[0.3, 0.7]], [[1.1], [1.3]], [[0.11]]
    by_hand = gemm([[0.3, 0.7, 1.0]], [[1.1], [1.3], [0.11]], ":e4m3/sr3", seed=6)
    assert gemm(a, b, spec, seed=6, c=c) == by_hand


def test_empty_shapes():
    assert gemm(np.zeros((2, 0)), np.zeros((0, 3)), ":e5m10") == [[0.0] * 3] * 2
    assert gemm(np.zeros((0, 4)), np.zeros((4, 3)), ":e5m10") == []
    assert gemm(np.zeros((2, 4)), np.zeros((4, 0)), ":e5m10") == [[], []]
    assert gemm(np.zeros((1, 0)), np.zeros((0, 1)), ":e5m10 -> e8m0") == [[2.0**-127]]


@pytest.mark.parametrize(
    "a, b, c, spec, message",
    [
        ([[1.0, 2.0]], [[1.0]], None, ":e5m10", r"a \(1, 2\) and b \(1, 1\)"),
        ([1.0], [[1.0]], None, ":e5m10", "not a matrix"),
        ([[1.0]], [[1.0]], [[1.0]], ":e5m10", "init=c_first"),
        ([[1.0]], [[1.0]], [[1.0, 2.0]], ":sequential(e5m10, init=c_last)", r"not \(1, 1\)"),
    ],
)
def test_bad_input_says_what_is_allowed(a, b, c, spec, message):
    with pytest.raises(ValueError, match=message):
        gemm(a, b, spec, c=c)
