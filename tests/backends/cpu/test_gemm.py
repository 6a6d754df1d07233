"""The CPU library's products equal the exact reference bit for bit, on every instruction set.

Specs, shapes, dtypes and data are drawn from tables that reach every kernel (test_planner.py shows which spec takes
which). The reference computes in Python integers and shares nothing with the library.
"""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import assert_equals_reference, operand

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.formats import FormatError

ACCUMULATORS = """
e5m10 e5m2 e4m3 ieee_e4m3 e8m7 tf32 e6m9 e3m2 e2m1 e5m7 e7m15 fp32 e5m21 e8m22 fp64 e11m40 e8m13 e9m10 e5m0 e11m51
fixed(16,8) fixed(8,4,symmetric) fixed(32,12) fixed(50,20) ufixed(12,4) int16 e5m10/ftz e4m7b10/ftz bf16/ftz e4m3fnuz
binary8p3 binary8p4sf binary8p1 binary8p3ue
""".split()
MODES = ["/rtz", "/ru", "/rd", "/rna", "/sr", "/sr8", "/sr20", "/srb8", "/src8", "/ro"]
POLICIES = ["", "", "/sat", "/clamp", "/satprop"]
OPERANDS = ["", "", "e4m3", "e5m2", "bf16*e4m3", "e5m10/rtz", "e4m3/sr", "fixed(8,4)", "e2m1", "e8m0"]
OUTPUTS = ["bf16", "e4m3/sat", "e5m10/sr", "e5m2/rtz"]
SHAPES = [(1, 5, 3), (3, 17, 33), (9, 12, 5), (2, 40, 35), (8, 8, 8), (13, 31, 70), (4, 1, 17)]
DTYPES = [torch.float32] * 4 + [torch.float64, torch.bfloat16, torch.float16]


def random_spec(rng: random.Random) -> GemmSpec | None:
    """A spec from the tables, or None for a combination that has no meaning."""

    def cast() -> str:
        mode = rng.choice(MODES) if rng.random() < 0.55 else ""
        return rng.choice(ACCUMULATORS) + mode + rng.choice(POLICIES)

    text = cast()
    choice = rng.random()
    if choice < 0.25:
        text = f"mul={cast()}, add={text}"
    elif choice < 0.4:  # one mode for both roundings has kernels of its own
        mode = rng.choice(MODES[:7])
        text = f"mul={rng.choice(ACCUMULATORS)}{mode}, add={rng.choice(ACCUMULATORS)}{mode}"
    text = f"{rng.choice(OPERANDS)} : {text}"
    if rng.random() < 0.2:
        text += f" -> {rng.choice(OUTPUTS)}"
    if rng.random() < 0.2:
        text += ", arithmetic=fp32"
    try:
        spec = GemmSpec.of(text)
    except (FormatError, ValueError):
        return None
    return spec if cpu.refuses(spec) is None else None


def test_both_roundings_of_double_lanes_with_subnormals():
    """Numbers of many magnitudes and registers of more bits than lemma A takes: few random cases are so."""
    g = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(shape, generator=g) * torch.exp2(torch.randint(-14, 6, shape, generator=g))
        for shape in ((3, 40), (40, 9))
    )
    assert_equals_reference(GemmSpec.of(":mul=e6m29, add=e6m29"), a, b)


def test_double_lanes_rounded_to_odd_where_nothing_leaves_the_range():
    """A register of more bits than float lanes round to."""
    g = torch.Generator().manual_seed(1)
    assert_equals_reference(GemmSpec.of(":e8m22"), torch.randn(5, 40, generator=g), torch.randn(40, 19, generator=g))


@pytest.mark.parametrize("start", range(8))
def test_random_specs_and_data_equal_the_reference(start):
    rng = random.Random(start)
    done = 0
    while done < 250:
        spec = random_spec(rng)
        if spec is None:
            continue
        m, k, n = rng.choice(SHAPES)
        dtype = rng.choice(DTYPES)
        a, b = operand(rng, m, k, dtype), operand(rng, k, n, dtype)
        assert_equals_reference(spec, a, b, rng.randrange(1 << 63))
        done += 1


TINY = ["e2m1", "e3m2", "e2m3", "e4m3", "e5m2", "e3m0", "e2m2", "fixed(5,2)"]


@pytest.mark.parametrize("accumulator", ["e3m2", "ieee_e3m3", "e2m3", "e4m3", "ieee_e4m4", "fixed(6,3)"])
@pytest.mark.parametrize("operand", TINY)
def test_all_pairs_of_small_operands_then_all_again(operand, accumulator):
    """Exhaustive over two steps: every product of the operand format, added to every value it can have left behind.

    This is where a planner lemma that is wrong by one bit would show.
    """
    from gemmsim.formats import parse

    values = [v for v in parse(operand).values() if abs(v) < 2**20]
    if len(values) > 48:
        values = values[:: len(values) // 48 + 1] + values[-2:]
    pairs = [(x, y) for x in values for y in values if x >= y]
    rng = random.Random(0)
    rows = [(x, z) for x, _ in pairs for z in (rng.choice(values), rng.choice(values))][:160]
    a = torch.tensor(rows, dtype=torch.float32)
    b = torch.tensor([[y for _, y in pairs][:96], [rng.choice(values) for _ in pairs][:96]], dtype=torch.float32)
    for mode in ("", "/rtz", "/rna", "/ru"):
        assert_equals_reference(GemmSpec.of(f"{operand} : {accumulator}{mode}"), a, b, 0)


@pytest.mark.parametrize(
    "text", [":e5m10", "e4m3 : e5m10", ":bf16", ":e5m2/sr8", ":mul=e5m10,add=e6m9", ":fp32", "e5m2 : e4m3/sat"]
)
def test_longer_sums(text):
    rng = random.Random(7)
    a, b = operand(rng, 10, 700, torch.float32, "normal"), operand(rng, 700, 37, torch.float32, "normal")
    assert_equals_reference(GemmSpec.of(text), a, b, 3)


def test_products_without_subnormals_are_no_coarser_than_their_last_bit():
    """Sums of them are multiples of 2^(emin - p + 1), not of 2^emin: too many bits for the carrier's nearest sum."""
    rng = random.Random(5)
    spec = GemmSpec.of("e5m10/rtz : mul=e5m10/ftz/sat, add=e5m21")
    for _ in range(60):
        assert_equals_reference(
            spec, operand(rng, 8, 8, torch.bfloat16, "normal"), operand(rng, 8, 8, torch.bfloat16, "normal"), 0
        )


def test_zero_depth_and_empty_sides():
    spec = GemmSpec.of(":e5m10")
    out = torch.full((2, 3), 7.0)
    cpu.gemm(torch.empty(2, 0), torch.empty(0, 3), spec, out)
    assert_bitwise_equal(out, torch.zeros(2, 3))
    cpu.gemm(torch.empty(0, 4), torch.empty(4, 3), spec, torch.empty(0, 3))
    cpu.gemm(torch.empty(2, 4), torch.empty(4, 0), spec, torch.empty(2, 0))
