"""The definition of ``fused`` against that of the rows of the tables, and against its formula in fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from support.fused import ROWS, TEXTS
from support.hardware import assert_same, operands

from gemmsim import reference
from gemmsim.arithmetic import Accumulator, Fused
from gemmsim.formats import Cast, FloatFormat, Overflow, parse_scalar


@pytest.mark.parametrize("row, one", ROWS[::3], ids=str)
def test_rows_of_the_tables(row, one):
    for seed, k in enumerate([1, 2 * row.instruction.k + 3]):
        given = operands(row.instruction, 6, 6, k, seed)
        got, want = (reference.gemm(given.left, given.right, x) for x in (one, row))
        assert_same(got, want, one)


def exponent(x: Fraction, fmt: FloatFormat) -> int:
    return max(math.frexp(float(x))[1] - 1, fmt.emin)


def by_formula(one: Fused, a: list[float], b: list[float]) -> float:
    """The register after all steps, finite operands alone, whatever the definition's units are."""
    fa, fb = one.operand_formats
    out, c = one.out.format, Fraction(0)
    for first in range(0, len(a), one.n):
        pairs = [
            (Fraction(x), Fraction(y)) for x, y in zip(a[first : first + one.n], b[first : first + one.n], strict=True)
        ]
        addends = [*(x * y for x, y in pairs), c]
        if one.kept is not None:
            exponents = [exponent(x, fa) + exponent(y, fb) for x, y in pairs if x and y] + [exponent(c, out)] * (c != 0)
            largest = max([-252 if one.least is None else one.least, *exponents])
            unit = Fraction(2) ** (largest - one.kept)
            addends = [math.trunc(x / unit) * unit for x in addends]
        total = sum(addends, Fraction(0))
        # Rounded in a format of the same precision without an end, so that overflow is judged here.
        near = abs(total) * 2 > out.max_fraction
        wide = Cast(parse_scalar(f"e11m{out.p - 1}"), one.out.rounding)
        rounded = reference.round_value(total, wide if near else one.out)
        if abs(Fraction(rounded)) > out.max_fraction:
            if one.out.overflow is not Overflow.INFINITY:
                rounded = math.copysign(out.max, rounded)
            else:
                return math.copysign(math.inf, rounded) if out.has_inf else math.nan
        c = Fraction(rounded)
    return float(c)


@pytest.mark.parametrize("text", TEXTS)
def test_the_formula(text):
    one = Accumulator.parse(text)
    assert isinstance(one, Fused)
    rng = random.Random(text)
    a_cast, b_cast = one.operand_casts
    for _ in range(40):
        k, spread = rng.randrange(1, 3 * one.n + 2), rng.choice([1, 6, 30])
        a, b = (
            [reference.round_value(rng.gauss(0, 1) * 2.0 ** rng.randint(-spread, spread), c) for _ in range(k)]
            for c in (a_cast, b_cast)
        )
        if not all(map(math.isfinite, a + b)):
            continue
        want = by_formula(one, a, b)
        if math.isinf(want) or math.isnan(want):
            continue  # what follows an overflow is told by the rows
        assert reference.gemm([a], [[x] for x in b], one) == [[want]], (text, k)


def test_past_the_largest_value_and_signs_of_zero():
    big = [[3e38, 3e38]], [[1.0], [1.0]]
    assert reference.gemm(*big, "fused(2, 25)") == [[math.inf]]
    assert reference.gemm(*big, "fused(2, 25, fp32/rtz/sat)") == [[(2 - 2.0**-23) * 2.0**127]]
    assert math.isnan(reference.gemm([[400.0, 400.0]], [[1.0], [1.0]], "fused(2, 25, e4m3/rtz)")[0][0])
    for a in ([[-0.0]], [[-(2.0**-149)]]):
        ((zero,),) = reference.gemm(a, [[2.0**-30]], "fused(1, 25, e5m10/ru)")
        assert zero == 0 and math.copysign(1.0, zero) == 1.0
    assert reference.gemm([[]], [], "fused(4, 9)") == [[]]


def test_subnormal_operands_have_the_exponent_of_their_format():
    tiny = [[2.0**-9, 2.0**-9 * 2.0**-6]], [[1.0], [1.0]]
    # In e4m3 both operands of the sum count as 2^-6: four bits below that, the second one is lost.
    assert reference.gemm([[2.0**-9, 1.0]], [[2.0**-9], [2.0**-9]], "fused(2, 3, a=e4m3)") == [[2.0**-9]]
    assert reference.gemm(*tiny, "fused(2, 6, fp32)") == [[2.0**-9 + 2.0**-15]]


def test_a_trace_tells_of_each_step():
    import gemmsim as gs

    found = gs.trace([[1.0, 2.0**-12, 3.0]], [[1.0], [1.0], [1.0]], "fused(2, 10, fp32)")
    steps = [step for step in found.steps if step.kind == "instruction"]
    assert len(steps) == 2 and "truncated below 2^-10" in str(steps[0])
    assert [float(step.value) for step in steps] == [1.0, 4.0]
    assert sum(step.kind == "product" for step in found.steps) == 3
    exact = gs.trace([[1.0, 2.0**-12]], [[1.0], [1.0]], "fused(2, exact, fp32)")
    assert "nothing truncated" in str(exact)
