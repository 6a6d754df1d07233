"""Adder trees with a width for each level, against trees of Python's integers."""

from __future__ import annotations

import random

import pytest
import torch

import gemmsim as gs
from gemmsim import acc
from gemmsim.arithmetic import Accumulator


def clamped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return max(-half, min(half - 1, value))


def tree(terms: list[int], widths: list[int], outer: int) -> int:
    """Groups of 2**levels terms, level by level; results added in order."""
    size, total = 2 ** len(widths), 0
    for start in range(0, len(terms), size):
        level = terms[start : start + size]
        level += [0] * (size - len(level))
        for bits in widths:
            level = [clamped(x + y, bits) for x, y in zip(level[::2], level[1::2], strict=True)]
        total = clamped(total + level[0], outer)
    return total


CASES = [
    ([17, 18, 19, 20], 32),
    ([14, 15, 15, 16], 17),
    ([12, 12], 14),
    ([16], 16),
    ([9, 10, 11], 20),
    ([15, 16, 17, 18, 19, 20], 22),
]


@pytest.mark.parametrize(("widths", "outer"), CASES)
@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 33, 100])
def test_elements_are_those_of_a_tree_of_integers(widths, outer, k):
    rng = random.Random(f"{widths}{k}")
    a = [[rng.choice((-128, 127, rng.randrange(-128, 128))) for _ in range(k)] for _ in range(5)]
    b = [[rng.choice((-128, 127, rng.randrange(-128, 128))) for _ in range(k)] for _ in range(5)]
    a[0], b[0] = [-128] * k, [-128] * k  # every level at its end
    a[1], b[1] = [127] * k, [-128] * k
    spec = gs.GemmSpec.parse(f"int8 : adder_tree({widths}, {outer})")
    got = gs.qmatmul(torch.tensor(a).double(), torch.tensor(b).double().T, spec, out_dtype=torch.float64)
    want = [[tree([x * y for x, y in zip(p, q, strict=True)], widths, outer) for q in b] for p in a]
    assert got.tolist() == want
    if k > 32 and outer < 20:
        assert any(abs(value) >= (1 << (outer - 1)) - 1 for row in want for value in row)


@pytest.mark.parametrize("widths", [[17, 18, 19], [9, 10, 11, 12], [12, 12, 12], [10, 10, 11, 14], [16]])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_trees_that_wrap(widths, k):
    """Every adder of the model wraps, those of later levels too."""
    rng = random.Random(f"{widths}{k}")
    a, b = ([[rng.randrange(-128, 128) for _ in range(k)] for _ in range(4)] for _ in range(2))
    a[0], b[0] = [-128] * k, [-128] * k
    spec = f"int8 : adder_tree({widths}, 20, overflow=wrap)"
    got = gs.qmatmul(torch.tensor(a).double(), torch.tensor(b).double().T, spec, out_dtype=torch.float64)
    want = [[wrapping_tree([x * y for x, y in zip(p, q, strict=True)], widths) for q in b] for p in a]
    assert got.tolist() == want


def wrapping_tree(terms: list[int], widths: list[int]) -> int:
    size, total = 2 ** len(widths), 0
    for start in range(0, len(terms), size):
        level = terms[start : start + size]
        level += [0] * (size - len(level))
        for bits in widths:
            half = 1 << (bits - 1)
            level = [(x + y + half) % (2 * half) - half for x, y in zip(level[::2], level[1::2], strict=True)]
        total = clamped(total + level[0], 20)
    return total


def test_it_is_the_nested_form():
    made = acc.adder_tree([17, 18, 19, 20], "int(32, saturate)")
    nested = acc.int(17, "saturate", when="end")
    for terms, bits in ((2, 18), (4, 19), (8, 20), (16, 32)):
        nested = acc.chunked(terms, nested, f"fixed({bits},0)")
    assert made == nested == Accumulator.parse("adder_tree([17,18,19,20], 32)") == Accumulator.parse(str(made))
    assert made == acc.adder_tree((17, 18, 19, 20), 32) == acc.adder_tree([17, 18, 19, 20], "fixed(32,0)")
    assert gs.GemmSpec.from_json(gs.GemmSpec.parse(f":{made}").to_json()).accumulator == made
    assert str(acc.adder_tree([9], "kahan(fp32)")) == "chunked(2, int(9, overflow=saturate, when=end), kahan(e8m23))"


def test_a_tree_that_cannot_overflow_is_the_wrapping_register():
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-128, 128, (6, 200), generator=g).double() for _ in range(2))
    assert torch.equal(
        gs.qmatmul(a, b.T, "int8 : adder_tree([17, 18, 19, 20], 32)"), gs.qmatmul(a, b.T, "int8 : int(32)")
    )


def test_kernels_compute_it_and_count_its_overflows():
    a, b = torch.full((2, 32), -128.0), torch.full((32, 2), -128.0)
    gs.qmatmul(a, b, "int8 : adder_tree([14, 15], 18)")
    assert gs.last_backend().backend == "cpu"
    assert (gs.count_overflows(a, b, "int8 : adder_tree([14, 15], 18)") > 0).all()


def test_registers_of_every_level():
    a, b = torch.full((1, 8), -128.0), torch.full((8, 1), -128.0)
    found = gs.vectors.registers_of(a, b, gs.GemmSpec.parse("int8 : adder_tree([16, 16, 17], 18)"))
    told = [(one.name, str(one.format), one.values.flatten().tolist()) for one in found]
    top = 2**15 - 1
    assert told == [
        ("steps", "fixed(16,0)", [top] * 4),
        ("totals_1", "fixed(16,0)", [top, top] * 2),
        ("totals_2", "fixed(17,0)", [top, 2 * top]),
        ("totals_3", "fixed(18,0)", [2 * top]),
    ]
