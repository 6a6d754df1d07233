"""Sliced products bit for bit as Fractions say: slices, partial products, their sum; specials, shapes, refusals."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal, assert_values_equal
from support.rounding import gamma

import gemmsim as gs
from gemmsim import reference, sliced
from gemmsim.arithmetic import SpecError
from gemmsim.sliced.powers import scale

INF, NAN = math.inf, math.nan
#: Significant bits and exponent of the least positive number.
PARAMETERS = {
    "fp32": (24, -149, 2**128),
    "fp64": (53, -1074, 2**1024),
    "bf16": (8, -133, 2**128),
    "tf32": (11, -136, 2**128),
}
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


def rounded(x: Fraction, name: str, away: bool = False, saturate: bool = False) -> Fraction | float:
    """x to the nearest number of the format, ties to even or away from zero."""
    p, least, beyond = PARAMETERS[name]
    if x == 0:
        return Fraction(0)
    size, quantum = abs(x), least
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    quantum = Fraction(2) ** max(exponent - p + 1, least)
    units, rest = divmod(size, quantum)
    up = rest * 2 > quantum or (rest * 2 == quantum and (away or units % 2 == 1))
    found = (units + up) * quantum
    if found >= beyond:
        if not saturate:
            return INF if x > 0 else -INF
        found = beyond - quantum
    return found if x > 0 else -found


def float_slices(x: Fraction, slicing: sliced.FloatSlices) -> list[Fraction]:
    name = {8: "bf16", 11: "tf32"}[slicing.fmt.format.p]
    rest, found = rounded(x, "fp32"), []
    for _ in range(slicing.count):
        found.append(rounded(rest, name, away="rna" in str(slicing.fmt), saturate=True))
        rest = (rest - found[-1]) * 2**slicing.gain
    return found


def integer_slices(vector: list[Fraction], slicing: sliced.IntegerSlices) -> tuple[list[list[Fraction]], int]:
    """The slices of each element, and e."""
    largest, e = max(map(abs, vector), default=Fraction(0)), 0
    if largest:
        while largest >= Fraction(2) ** e:
            e += 1
        while largest < Fraction(2) ** (e - 1):
            e -= 1
    found = []
    for x in vector:
        rest, one = x / Fraction(2) ** e, []
        for _ in range(slicing.count):
            rest *= 2**slicing.bits
            one.append(Fraction(math.trunc(rest)))
            rest -= one[-1]
        found.append(one)
    return found, e


def cut(vector: list[Fraction], slicing) -> tuple[list[list[Fraction]], int]:
    if isinstance(slicing, sliced.IntegerSlices):
        return integer_slices(vector, slicing)
    return [float_slices(x, slicing) for x in vector], 0


def partial(x: list[Fraction], y: list[Fraction], spec: gs.GemmSpec, name: str) -> Fraction:
    """One element of a product of slices, rounded to the format of the total."""
    if spec.accumulator.name in ("exact", "int"):
        exact = sum((p * q for p, q in zip(x, y, strict=True)), Fraction(0))
        return rounded(rounded(exact, "fp32") if spec.accumulator.name == "exact" else exact, name)
    if not x:
        return Fraction(0)
    value = reference.gemm([list(map(float, x))], [[float(q)] for q in y], spec)[0][0]
    return rounded(Fraction(value), name)


def element(row: list[Fraction], column: list[Fraction], scheme: sliced.Sliced) -> float:
    (left, e), (right, f) = cut(row, scheme.slicing), cut(column, scheme.slicing)
    if scheme.joined:
        x = [one[i - 1] for i, _ in scheme.terms for one in left]
        y = [one[j - 1] for _, j in scheme.terms for one in right]
        return float(partial(x, y, scheme.specs[0], scheme.out))
    total: Fraction = Fraction(0)
    for (i, j), spec in zip(scheme.terms, scheme.specs, strict=True):
        value = partial([one[i - 1] for one in left], [one[j - 1] for one in right], spec, scheme.total)
        total = rounded(total + value * Fraction(2) ** scheme.slicing.shift((i, j)), scheme.total)
    return float(rounded(total * Fraction(2) ** (e + f), scheme.out))


def wanted(a: torch.Tensor, b: torch.Tensor, scheme: sliced.Sliced) -> torch.Tensor:
    rows, columns = ([[Fraction(x) for x in one] for one in t.tolist()] for t in (a, b.mT))
    return torch.tensor([[element(r, c, scheme) for c in columns] for r in rows], dtype=DTYPES[scheme.out])


def operands(kind: str, dtype: torch.dtype, m: int = 3, k: int = 11, n: int = 3, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(m, k, generator=g, dtype=torch.float64), torch.randn(k, n, generator=g, dtype=torch.float64)
    if kind == "wide":
        a, b = (t * torch.exp2(torch.randint(-25, 25, t.shape, generator=g).double()) for t in (a, b))
    elif kind == "rows apart":
        a *= torch.tensor([2.0**-60, 2.0**40, 0])[:m, None]
        b[:, 1] *= 0.0
        b[:, 2] *= 2.0**50
    elif kind == "subnormal":
        a, b = a * 2.0**-140, b * 2.0 ** (-20 if dtype is not torch.float64 else -930)
    elif kind == "largest":
        a, b = a.sign() * torch.finfo(torch.float32).max * (1 - torch.rand(m, k, generator=g).double() / 512), b / 64
    return a.to(dtype), b.to(dtype)


SCHEMES = {
    "x1": sliced.bf16(1),
    "x3": sliced.bf16(2),
    "x4": sliced.bf16(2, 4),
    "x6": sliced.bf16(3, 6),
    "x9": sliced.bf16(3),
    "x9 in one register": sliced.bf16(3, joined=True),
    "x6 on a tensor core": sliced.bf16(3, 6, spec=":hw(hopper, wgmma, bf16)"),
    "x6 in one register of a tensor core": sliced.bf16(3, 6, spec=":hw(hopper, wgmma, bf16)", joined=True),
    "tf32 inside": sliced.tf32x3("inside"),
    "tf32 outside": sliced.tf32x3(),
    "tf32 on hopper's mma": sliced.tf32x3(arch="hopper"),
    "int8 x 2": sliced.ozaki_int8(2),
    "int8 x 5 to fp32": sliced.ozaki_int8(5, "fp32"),
    "int8 x 8": sliced.ozaki_int8(8),
    "int8 x 9": sliced.ozaki_int8(9),
    "two specs": sliced.Sliced(
        sliced.FloatSlices("tf32/rna/sat", 2, 11), ((2, 1), (1, 1)), (":fp32", ":chunked(4, fp32)"), False, "fp64", "fp32"
    ),
    "4 bits": sliced.Sliced(sliced.IntegerSlices(4, 3), ((1, 1), (3, 1), (1, 2)), ":int(24)", False, "fp32", "fp32"),
}  # fmt: skip
KINDS = ["normal", "wide", "rows apart", "subnormal", "largest"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEMES)
def test_bits_are_those_of_the_fractions(name, kind):
    for dtype in (torch.float32, torch.float64):
        a, b = operands(kind, dtype)
        assert_values_equal(SCHEMES[name](a, b), wanted(a, b, SCHEMES[name]), context=f"{name}, {dtype}")


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_operands_are_numbers(name, dtype):
    a, b = operands("normal", dtype)
    assert_bitwise_equal(SCHEMES[name](a, b), SCHEMES[name](a.float(), b.float()))


def test_slices_hold_what_is_promised():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(4000, generator=g) * torch.exp2(torch.randint(-109, 120, (4000,), generator=g).float())
    x = torch.cat([x[x.abs() >= 2.0**-110], x[:9] * 0, torch.tensor([3.4028234e38, -3.3961775e38, 2.0**-110])]).double()
    for count, loss in ((1, 2**-8), (2, 2**-16), (3, 0)):
        found = sum(sliced.FloatSlices("bf16/sat", count).of(x, 0)[0])
        assert bool(((found - x).abs() <= loss * x.abs()).all())
    tiny = torch.randn(4000, generator=g) * 2.0**-130
    assert float((sum(sliced.FloatSlices("bf16/sat", 3).of(tiny, 0)[0]) - tiny.double()).abs().max()) <= 2.0**-134
    below = x[x.abs() < 3.4e38]
    one, two = sliced.FloatSlices("tf32/rna/sat", 2, 11).of(below, 0)[0]
    assert bool(((one + two * 2.0**-11 - below).abs() <= 2.0**-23 * below.abs()).all())

    a = torch.randn(6, 40, generator=g, dtype=torch.float64)
    a[2], a[3] = 0, a[3] * 2.0**-1060
    parts, e = sliced.IntegerSlices(7, 9).of(a, -1)
    largest = a.abs().amax(-1, keepdim=True)
    assert bool(
        ((scale(torch.ones(6, 1), e) > largest) & ((scale(torch.ones(6, 1), e) <= 2 * largest) | (largest == 0))).all()
    )
    assert all(bool((part.abs() <= 127).all()) and part.equal(part.trunc()) for part in parts)
    whole = sum(scale(part, e - 7 * s) for s, part in enumerate(parts[:7], 1)) + scale(
        parts[7] * 128 + parts[8], e - 63
    )
    near = a.abs() >= largest * 2.0**-9  # 63 bits below 2^e are 53 of these
    assert whole[near].equal(a[near]) and int(near.sum()) > 150 and e[2] == 0


def test_scaling_by_powers_of_two_rounds_once():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, generator=g, dtype=torch.float64)
    for one, exponent in ((x, -1074), (x, -1060), (x, 1023), (x, 1024), (x * 2.0**1000, -2050), (x * 2.0**-1000, 1999)):
        got = scale(one, torch.tensor(exponent))
        want = [rounded(Fraction(v) * Fraction(2) ** exponent, "fp64") for v in one.tolist()]
        assert_bitwise_equal(got.abs(), torch.tensor([float(w) for w in want], dtype=torch.float64).abs())
    odd = torch.tensor([0.0, -0.0, INF, -INF, NAN, 5e-324], dtype=torch.float64)
    got = scale(odd, torch.tensor(9000))
    assert_bitwise_equal(got, torch.tensor([0.0, -0.0, INF, -INF, NAN, INF], dtype=torch.float64), nan_is_nan=True)
    assert not bool(scale(x, torch.tensor(-9000)).any())


@pytest.mark.parametrize("name", SCHEMES)
def test_what_is_not_finite_is_as_in_ieee_754(name):
    a, b = operands("normal", torch.float32, 6, 9, 5)
    plain = SCHEMES[name](a, b)
    a[1, 2], a[2, 3], a[2, 4], a[3, 5] = INF, INF, -INF, NAN
    b[2, 1], b[:, 3], b[7, 4] = 0.0, b[:, 3].abs(), -INF
    a[4, 7] = 0.0
    got, want = SCHEMES[name](a, b), a @ b
    odd = ~want.isfinite()
    assert bool(got[odd].isnan().equal(want[odd].isnan()) and (got == want)[odd & ~want.isnan()].all())
    assert int(odd.sum()) == 18 and bool(want.isinf().any())
    untouched = [[0, 0, plain[0, 0]], [5, 2, plain[5, 2]]]
    assert all(got[i, j] == value for i, j, value in untouched)


def test_float64_beyond_float32_is_infinite_where_slices_are_float32():
    a, b = torch.tensor([[1e300, 1.0]], dtype=torch.float64), torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    assert float(sliced.bf16(3)(a, b)) == INF
    assert float(sliced.ozaki_int8(8)(a, b)) == 1e300 and float(sliced.ozaki_int8(8, "fp32")(a, b)) == INF


SHAPES = [((5,), (5,)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 4, 5), (5,)), ((3, 1, 4, 5), (2, 5, 6)), ((5,), (2, 5, 6))]
EMPTY = [((0, 5), (5, 6)), ((4, 0), (0, 6)), ((2, 4, 0), (0, 6)), ((0, 4, 5), (5, 6)), ((0,), (0,)), ((4, 5), (5, 0))]


@pytest.mark.parametrize("shapes", [*SHAPES, *EMPTY], ids=str)
@pytest.mark.parametrize("name", ["x9", "x9 in one register", "tf32 outside", "int8 x 8"])
def test_shapes_are_those_of_matmul(name, shapes):
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randn(*shape, generator=g) for shape in shapes)
    got, plain = SCHEMES[name](a, b), a @ b
    assert got.shape == plain.shape and got.dtype is DTYPES[SCHEMES[name].out]
    left, right = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    lefts, rights = left.expand(*batch, *left.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    each = (
        [SCHEMES[name](x, y) for x, y in zip(lefts.flatten(0, -3), rights.flatten(0, -3), strict=True)] if batch else []
    )
    want = torch.stack(each).reshape(plain.shape) if each else SCHEMES[name](left, right).reshape(plain.shape)
    assert_bitwise_equal(got, want)
    # float32 sums in two orders; slices lose less than 2^-21 of an operand
    assert bool(((got - plain).abs() <= 2 * gamma(5 + 8) * (a.abs() @ b.abs())).all())


def test_strides_change_no_bit():
    a, b = operands("normal", torch.float32, 6, 10, 8)
    for scheme in (SCHEMES["x6"], SCHEMES["int8 x 8"]):
        want = scheme(a[::2, ::2].contiguous(), b[::2].contiguous())
        assert_bitwise_equal(scheme(a[::2, ::2], b[::2]), want)
        assert_bitwise_equal(sliced.matmul(a.mT.contiguous().mT[::2, ::2], b[::2], scheme), want)


@pytest.mark.parametrize("name", SCHEMES)
def test_json_and_words(name):
    scheme = SCHEMES[name]
    assert sliced.Sliced.from_json(json.dumps(scheme.to_json())) == scheme == sliced.Sliced.from_json(scheme.to_json())
    assert hash(sliced.Sliced.from_json(scheme.to_json())) == hash(scheme)
    assert str(scheme.products) in str(scheme) and str(scheme.slicing) in str(scheme)
    text = scheme.explain()
    assert f"terms       {scheme.products}: " in text and all(
        spec.explain().splitlines()[0] in text for spec in scheme.specs
    )


def test_numbers_of_products():
    assert [sliced.bf16(n, p).products for n, p in ((1, 1), (2, 3), (2, 4), (3, 6), (3, 9))] == [1, 3, 4, 6, 9]
    assert [sliced.bf16(n).products for n in (1, 2, 3)] == [1, 3, 9] and sliced.tf32x3().products == 3
    assert [sliced.ozaki_int8(n).products for n in (1, 2, 8)] == [1, 3, 36]
    assert sliced.bf16(3, 6).terms == ((3, 1), (2, 2), (1, 3), (2, 1), (1, 2), (1, 1))


FLOATS, INTEGERS = sliced.FloatSlices("bf16/sat", 2), sliced.IntegerSlices(7, 2)
REFUSED = {
    "slices from 1 to 2": lambda: sliced.Sliced(FLOATS, ((1, 3),), ":fp32"),
    "each once": lambda: sliced.Sliced(FLOATS, ((1, 1), (1, 1)), ":fp32"),
    "at least one": lambda: sliced.Sliced(FLOATS, (), ":fp32"),
    "pairs": lambda: sliced.Sliced(FLOATS, 3, ":fp32"),
    "2 specs for 1 terms": lambda: sliced.Sliced(FLOATS, ((1, 1),), (":fp32", ":fp32")),
    "palette": lambda: sliced.Sliced(FLOATS, ((1, 1),), ":palette(fp32, bf16)"),
    "total='bf16'": lambda: sliced.Sliced(FLOATS, ((1, 1),), ":fp32", False, "bf16"),
    "joined='yes'": lambda: sliced.Sliced(FLOATS, ((1, 1),), ":fp32", "yes"),
    "without gain": lambda: sliced.Sliced(INTEGERS, ((1, 1),), ":fp32", True),
    "slicing 7": lambda: sliced.Sliced(7, ((1, 1),), ":fp32"),
    "deterministic": lambda: sliced.FloatSlices("bf16/sr8", 2),
    "float formats": lambda: sliced.FloatSlices("fixed(8,4)", 2),
    "count=9": lambda: sliced.FloatSlices("bf16", 9),
    "gain=25": lambda: sliced.FloatSlices("bf16", 2, 25),
    "bits=0": lambda: sliced.IntegerSlices(0, 2),
    "1, 2 or 3": lambda: sliced.bf16(4),
    "6 or|9 or": lambda: sliced.bf16(3, 7),
    "'inside', 'outside'": lambda: sliced.tf32x3("within"),
    "count=65": lambda: sliced.ozaki_int8(65),
    "version 1": lambda: sliced.Sliced.from_json({**SCHEMES["x3"].to_json(), "version": 2}),
    "Sliced JSON with": lambda: sliced.Sliced.from_json({"terms": []}),
    "Sliced JSON: ": lambda: sliced.Sliced.from_json("{"),
    "a gemmsim.sliced.Sliced": lambda: sliced.matmul(torch.ones(2, 2), torch.ones(2, 2), "bf16"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_means_nothing_is_refused(words):
    with pytest.raises(SpecError, match=words):
        REFUSED[words]()


def test_operands_that_do_not_fit_are_refused():
    scheme = sliced.ozaki_int8(1)
    with pytest.raises(gs.ShapeError, match="contracted sizes"):
        scheme(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(gs.DTypeError, match="complex"):
        scheme(torch.ones(2, 3, dtype=torch.complex64), torch.ones(3, 2))
    long = torch.ones(1, 133144) * 0.9999999
    assert float(scheme(long, long.mT)) == 133144 * 127**2 / 128**2
    with pytest.raises(gs.ShapeError, match="K up to 133144"):
        scheme(torch.ones(1, 133145), torch.ones(133145, 1))
    with pytest.raises(gs.ops.GradError, match="requires grad"):
        scheme(torch.ones(2, 3, requires_grad=True), torch.ones(3, 2))
    with torch.no_grad():
        assert not scheme(torch.ones(2, 3, requires_grad=True), torch.ones(3, 2)).requires_grad
