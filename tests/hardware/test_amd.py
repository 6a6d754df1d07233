"""AMD's models against the sheet's formulas: trees in numpy's binary32, floored sums in fractions. Finite operands."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from gemmsim import hardware
from gemmsim.formats import parse_cast
from gemmsim.hardware.tracing import floor_log2
from gemmsim.reference import round_value

FP32 = parse_cast("fp32")
DTYPES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}
DOTS = 40


def exponent(x: float, kind: hardware.Operand) -> int:
    return max(math.frexp(x)[1] - 1, kind.format.emin) if x else -10_000


def drawn(rng: random.Random, kind: hardware.Operand, count: int) -> list[int]:
    """Finite codes; half of them near 1 in magnitude, a few zeros and subnormals."""
    one, sign = kind.storage.encode(1.0), 1 << (kind.width - 1)
    out: list[int] = []
    while len(out) < count:
        kinds = [rng.getrandbits(kind.width), one + rng.randrange(-one // 4, one // 4), 0, rng.randrange(1, 8)]
        code = rng.choices(kinds, (4, 4, 1, 1))[0] ^ (sign if rng.random() < 0.5 and kind.width > 8 else 0)
        if math.isfinite(kind.storage.decode(code)):
            out.append(code >> kind.dropped << kind.dropped)
    return out


def rows(model: type) -> list[hardware.Instruction]:
    return [row for row in hardware.instructions() if type(row.model) is model]


def compare(row: hardware.Instruction, step) -> None:
    """``step(values of a, values of b, c)`` -> binary32 for one step, against ``mma`` on the whole instruction."""
    rng = random.Random(f"{row.arch} {row.name}")
    a_kind, b_kind, c_kind, _ = row.operands
    a = [drawn(rng, a_kind, row.k) for _ in range(DOTS)]
    b = [drawn(rng, b_kind, row.k) for _ in range(DOTS)]
    c = drawn(rng, c_kind, DOTS)
    left = torch.tensor(a, dtype=DTYPES[a_kind.width])[:, None, :]
    right = torch.tensor(b, dtype=DTYPES[b_kind.width])[:, :, None]
    start = torch.tensor(c, dtype=DTYPES[c_kind.width])[:, None, None]
    got = hardware.mma(row.arch, row.name, left, right, start).view(torch.float32).flatten().tolist()
    for dot in range(DOTS):
        value = c_kind.storage.decode(c[dot])
        for k in range(0, row.k, row.model.products):
            x = [a_kind.storage.decode(code) for code in a[dot][k : k + row.model.products]]
            y = [b_kind.storage.decode(code) for code in b[dot][k : k + row.model.products]]
            value = step(x, y, value)
            if not math.isfinite(value):
                break
        if math.isfinite(value):
            assert got[dot] == value and math.copysign(1, got[dot]) == math.copysign(1, value), (
                dot,
                a[dot],
                b[dot],
                c[dot],
            )


@pytest.mark.parametrize("row", rows(hardware.PairwiseTree), ids=lambda row: f"{row.arch}-{row.name}")
def test_trees_agree_with_binary32_arithmetic(row):
    def flushed(x: float, least: float) -> float:
        return math.copysign(0.0, x) if abs(x) < least else x

    def round32(x: float) -> float:
        with np.errstate(all="ignore"):
            return flushed(float(np.float32(x)), 2.0**-126)

    def step(x: list[float], y: list[float], c: float) -> float:
        least = row.operands[0].format.smallest_normal
        pairs = [(abs(flushed(p, least)) and p, abs(flushed(q, least)) and q) for p, q in zip(x, y, strict=True)]
        values = [round32(p * q + 0.0) for p, q in pairs]
        while len(values) > 1:
            values = [round32(p + q) for p, q in zip(values[::2], values[1::2], strict=True)]
        return round32((abs(flushed(c, 2.0**-126)) and c) + values[0])

    compare(row, step)


@pytest.mark.parametrize("row", rows(hardware.ExactSum), ids=lambda row: f"{row.arch}-{row.name}")
def test_exact_sums_are_rounded_once(row):
    def step(x: list[float], y: list[float], c: float) -> float:
        exact = Fraction(c) + sum(Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True))
        return round_value(exact, FP32) or math.copysign(0.0, exact or 1)  # an underflow keeps its sign

    compare(row, step)


@pytest.mark.parametrize("row", rows(hardware.FlooredSum), ids=lambda row: f"{row.arch}-{row.name}")
def test_floored_sums_agree_with_the_formula_in_fractions(row):
    a_kind, b_kind, c_kind, _ = row.operands

    def cut_sum(x: list[float], y: list[float]) -> tuple[Fraction, int]:
        exponents = [exponent(p, a_kind) + exponent(q, b_kind) for p, q in zip(x, y, strict=True)]
        unit = Fraction(2) ** (max(exponents) - 24)
        terms = (Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True))
        return sum(math.trunc(term / unit) for term in terms) * unit, max(exponents)

    def floor(x: Fraction, lowest: int) -> Fraction:
        return math.floor(x / Fraction(2) ** lowest) * Fraction(2) ** lowest

    def step(x: list[float], y: list[float], c: float) -> float:
        if any(abs(Fraction(p) * Fraction(q)) >= Fraction(2) ** 128 for p, q in zip(x, y, strict=True)):
            return math.inf  # left to the golden vectors
        if row.operands[0].width == 8:
            (even, e0), (odd, e1) = cut_sum(x[::2], y[::2]), cut_sum(x[1::2], y[1::2])
            e = max(e0, e1)
            total = floor(even, e - 24) + floor(odd, e - 24)
        else:
            total, e = cut_sum(x, y)
        own = max(exponent(c, c_kind), -126)
        largest = max(e, own)
        kept = row.operands[0].width != 8 or own >= largest - 25
        addend = floor(Fraction(c), largest - 24) if kept else 0
        value = floor(total, largest - 32) + addend
        exponent_of_sum = max(floor_log2(value), -126) if value else -126
        value = floor(value, exponent_of_sum - 31)
        return round_value(value, FP32) or math.copysign(0.0, value or 1)  # an underflow keeps its sign

    compare(row, step)
