"""Two's complement registers on the CPU: integers and fixed point equal the reference bit for bit."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

WIDTHS = [4, 8, 12, 16, 24, 32, 48, 53]
SHAPES = [(1, 5, 3), (3, 17, 33), (9, 12, 5), (2, 40, 35)]


def register(rng: random.Random, integer: bool) -> str:
    width, overflow = rng.choice(WIDTHS), rng.choice(["wrap", "saturate"])
    if integer:
        extra = [rng.choice(["", word]) for word in (", when=end", ", signed=false", ", shift=3")]
        return f"int({width}, {overflow}{''.join(extra)})"
    rounding = rng.choice(["rtz", "rne", "rd", "rna", "sr8"])
    return f"fixed({width}, {rng.choice([0, 4, 10, -3])}, rounding={rounding}, overflow={overflow})"


def random_spec(rng: random.Random, integer: bool) -> GemmSpec | None:
    text = register(rng, integer)
    if rng.random() < 0.3:
        forms = (f"chunked(3, {text}, fp32)", f"pairwise({text}, 2)", f"interleaved(4, {text})", f"shuffled({text}, 3)")
        text = rng.choice(forms)
    operands = rng.choice(["int8", "uint8", "int4", ""] if integer else ["", "e4m3"])
    try:
        return GemmSpec.of(f"{operands} : {text}")
    except ValueError:  # totals of a register that wraps have no format to meet in
        return None


@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("start", range(3))
def test_random_registers_equal_the_reference(integer, start):
    rng, done = random.Random(start), 0
    g = torch.Generator().manual_seed(start)
    while done < 150:
        spec = random_spec(rng, integer)
        if spec is None:
            continue
        m, k, n = rng.choice(SHAPES)
        dtype, scale = rng.choice([torch.float32, torch.float64, torch.bfloat16]), rng.choice([1, 4, 100, 2.0**40])
        a, b = torch.randn(m, k, generator=g) * scale, torch.randn(k, n, generator=g) * scale
        if integer:
            a, b = a.round(), b.round()
        elif rng.random() < 0.3:
            a.view(-1)[0], b.view(-1)[1] = math.inf, rng.choice([math.nan, 3e38])
        a, b = a.to(dtype), b.to(dtype)
        want = reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=7)
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(m, n, dtype=torch.float64)
            cpu.gemm(a, b, spec, out, 7)
            assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64), context=f"{spec} on {name}, {dtype}")
        done += 1


@pytest.mark.parametrize("bad", [0.5, math.nan, math.inf])
def test_integer_registers_refuse_what_is_not_a_whole_number(bad):
    a = torch.tensor([[1.0, bad]])
    with pytest.raises(ValueError, match="whole numbers"):
        cpu.gemm(a, torch.ones(2, 1), GemmSpec.of(":int(16)"), torch.empty(1, 1))


def test_wrapping_does_not_depend_on_the_order():
    g = torch.Generator().manual_seed(4)
    a, b = (
        torch.randint(-128, 128, (5, 300), generator=g).float(),
        torch.randint(-128, 128, (300, 7), generator=g).float(),
    )
    order, spec = torch.randperm(300, generator=g), GemmSpec.of("int8 : int(12)")
    one, other = torch.empty(5, 7), torch.empty(5, 7)
    cpu.gemm(a, b, spec, one)
    cpu.gemm(a[:, order], b[order], spec, other)
    assert_bitwise_equal(one, other)
    exact = (a.double() @ b.double()).long()
    assert_bitwise_equal(one, (((exact + 2048) % 4096) - 2048).float())


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        (":chunked(3, int(12, signed=false), e3m4)", 1.0),  # 4095 of a sum of -1
        (":chunked(3, int(12, signed=false), e4m3)", 1.0),
        (":chunked(2, int(24), fixed(40,0))", 1.0),  # totals that float32 does not hold
        (":chunked(2, int(24, signed=false), fp64)", 1.0),
        (":pairwise(fixed(24, 0, rounding=rne), 2)", 1.0),
        (":fixed(12, 200, rounding=rtz)", 2.0**-100),  # values that float32 does not hold
        (":fixed(20, 140, rounding=rtz)", 2.0**-70),
        (":fixed(20, -120, rounding=rtz)", 2.0**62),
        (":chunked(2, fixed(9, 3, rounding=ru), e4m3)", 2.0**-3),
    ],
)
def test_registers_in_float_lanes_lose_nothing_in_their_tiles(text, scale):
    g = torch.Generator().manual_seed(5)
    a, b = (torch.randint(-2, 3, shape, generator=g).float() * scale for shape in ((9, 12), (12, 40)))
    a[0], a[0, 0], b[0, 0] = 0.0, scale, -scale
    spec, want = GemmSpec.of(text), reference.gemm(a.tolist(), b.tolist(), text)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(9, 40, dtype=torch.float64)
        cpu.gemm(a, b, spec, out)
        assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64), context=f"{text} on {name}")
