"""The addend C inside the register (init=c_first, c_last) on the CPU: the reference's bits, whatever C is."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas, operand

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.backends import cpu

FORMATS = ["e5m10", "e4m3", "e5m2", "bf16", "fp32", "e8m14", "fp64", "e6m9", "ieee_e3m2", "fixed(12,6)", "ufixed(10,4)"]
ENDINGS = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/sr8", "/sr16", "/sr20", "/srb8", "/sat", "/ftz", "/ro"]
SHAPES = [(1, 0, 3), (3, 1, 2), (9, 12, 5), (2, 40, 35), (5, 3, 18)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
C_KINDS = ["normal", "wide", "tiny", "small", "huge", "special", "zeros"]


def random_spec(rng: random.Random) -> GemmSpec | None:
    add = rng.choice(FORMATS) + rng.choice(ENDINGS)
    mul = rng.choice(["", f", mul={rng.choice(FORMATS)}{rng.choice(ENDINGS)}"])
    operands = rng.choice(["", "", "e4m3", "e5m2 * e4m3", "bf16"])
    arithmetic = rng.choice(["", "", ", arithmetic=fp32"])
    try:
        return GemmSpec.of(f"{operands} : sequential({add}{mul}, init={rng.choice(['c_first', 'c_last'])}){arithmetic}")
    except ValueError:  # no such cast, or too wide for arithmetic=fp32
        return None


def addend(rng: random.Random, m: int, n: int) -> torch.Tensor:
    """C of any dtype and strides, broadcast ones among them."""
    kind, dtype = rng.choice(C_KINDS), rng.choice(DTYPES)
    form = rng.choice(["full", "full", "transposed", "row", "column", "scalar"])
    rows, cols = (1 if form in ("row", "scalar") else m), (1 if form in ("column", "scalar") else n)
    if kind == "zeros":
        c = torch.zeros(rows, cols, dtype=dtype)
        c.view(-1)[:: rng.choice([1, 2])] = -0.0
    else:
        c = operand(rng, rows, cols, dtype, kind)
    return c.t().contiguous().t() if form == "transposed" else c.expand(m, n)


@pytest.mark.parametrize("start", range(4))
def test_random_products_equal_the_reference(start):
    rng, done = random.Random(start), 0
    while done < 120:
        spec = random_spec(rng)
        if spec is None or cpu.refuses(spec) is not None:
            continue
        m, k, n = rng.choice(SHAPES)
        dtype = rng.choice(DTYPES)
        kind = None if k else "normal"
        a, b, c = operand(rng, m, k, dtype, kind), operand(rng, k, n, dtype, kind), addend(rng, m, n)
        if rng.random() < 0.3:  # negative zeros meet negative zeros
            a, b = -a.abs(), b.abs() * 0
        want = reference.gemm(a.double(), b.double(), spec, seed=7, c=c.double().tolist())
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(m, n, dtype=torch.float64)
            cpu.gemm(a, b, spec, out, 7, c)
            context = f"{spec} on {name}, {dtype}, c {c.dtype} {c.stride()}"
            assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64).reshape(m, n), context=context)
        done += 1


@pytest.mark.parametrize("mode", ["rne", "rna", "rtz", "ru", "rd", "ro", "sr8"])
@pytest.mark.parametrize("init", ["c_first", "c_last"])
def test_signs_of_zero(mode, init):
    values = [0.0, -0.0, 1.0, -1.0, 2.0**-30, -(2.0**-30)]
    a = torch.tensor([[-0.0, -0.0], [0.0, 0.0], [1.0, -1.0], [-(2.0**-16), 0.0]])
    b = torch.tensor([[1.0, 0.0, 2.0**-9, 1.0, 1.0, -1.0], [1.0, 0.0, 2.0**-9, 1.0, 0.0, 1.0]])
    c = torch.tensor(values).expand(4, 6)
    spec = GemmSpec.of(f":sequential(e5m10/{mode}, init={init})")
    want = torch.tensor(reference.gemm(a, b, spec, seed=3, c=c.tolist()), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(4, 6, dtype=torch.float64)
        cpu.gemm(a, b, spec, out, 3, c)
        assert_bitwise_equal(out, want, context=f"{spec} on {name}")


def test_c_first_is_not_rounded_and_c_last_is():
    a, b, c = torch.zeros(2, 0), torch.zeros(0, 3), torch.full((2, 3), 1 + 2.0**-20)
    first, last = torch.empty(2, 3), torch.empty(2, 3)
    cpu.gemm(a, b, GemmSpec.of(":sequential(bf16, init=c_first)"), first, 0, c)
    cpu.gemm(a, b, GemmSpec.of(":sequential(bf16, init=c_last)"), last, 0, c)
    assert_bitwise_equal(first, c)
    assert_bitwise_equal(last, torch.ones(2, 3))


def test_no_addend_starts_from_zero():
    a, b = torch.randn(3, 20), torch.randn(20, 17)
    with_init, plain = torch.empty(3, 17), torch.empty(3, 17)
    cpu.gemm(a, b, GemmSpec.of(":e5m10"), plain)
    for init in ("c_first", "c_last"):
        cpu.gemm(a, b, GemmSpec.of(f":sequential(e5m10, init={init})"), with_init)
        assert_bitwise_equal(with_init, plain)


@pytest.mark.parametrize("text", ["sequential(e5m10, init=c_first)", "sequential(e5m10/sr8, init=c_last)"])
def test_batches_threads_and_isas_agree(text):
    spec = GemmSpec.of(f":{text}")
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(3, 41, 30, generator=g), torch.randn(3, 30, 70, generator=g)
    c = torch.randn(3, 1, 70, generator=g).expand(3, 41, 70)
    want = torch.empty(3, 41, 70)
    for i in range(3):
        rows = reference.gemm(a[i, :2], b[i], spec, seed=5, c=c[i, :2].tolist(), row0=41 * i)
        want[i, :2] = torch.tensor(rows)
    threads, results = torch.get_num_threads(), []
    try:
        for name in isas():
            for count in (1, 2, 5):
                cpu.set_isa(name)
                torch.set_num_threads(count)
                results.append(torch.empty(3, 41, 70))
                cpu.gemm(a, b, spec, results[-1], 5, c)
    finally:
        torch.set_num_threads(threads)
    assert_bitwise_equal(results[0][:, :2], want[:, :2])
    for other in results[1:]:
        assert_bitwise_equal(other, results[0])


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e38, 65504.0])
def test_extreme_addends_reach_only_their_own_elements(value):
    g = torch.Generator().manual_seed(2)
    a, b, c = torch.randn(9, 40, generator=g), torch.randn(40, 35, generator=g), torch.randn(9, 35, generator=g)
    c[3, 4] = value
    for init in ("c_first", "c_last"):
        spec = GemmSpec.of(f":sequential(e5m10, init={init})")
        want = torch.tensor(reference.gemm(a, b, spec, c=c.tolist()))
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(9, 35)
            cpu.gemm(a, b, spec, out, 0, c)
            assert_bitwise_equal(out, want, context=f"{spec} on {name}")


def test_an_addend_without_a_place_is_refused():
    with pytest.raises(SpecError, match="c_first"):
        cpu.gemm(torch.ones(1, 1), torch.ones(1, 1), GemmSpec.of(":e5m10"), torch.empty(1, 1), 0, torch.ones(1, 1))


def test_a_negative_zero_outlives_products_that_are_negative_zeros():
    a, b, c = torch.tensor([[1.0, -2.0], [-0.0, -0.0]]), torch.ones(2, 3), torch.full((2, 3), -0.0)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(2, 3)
        cpu.gemm(a, b, GemmSpec.of("e4m3 : sequential(e5m10, init=c_first)"), out, 0, c)
        assert_bitwise_equal(out, torch.tensor([[-1.0] * 3, [-0.0] * 3]), context=name)


def test_a_wide_addend_is_rounded_once():
    a, b = torch.full((1, 1), 2.0**-9), torch.full((1, 3), 2.0**-9)
    c = torch.full(
        (1, 3), 256 * (1 + 2.0**-11)
    )  # halfway; the product, 2^-18, decides, and float32 does not hold the sum
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(1, 3)
        cpu.gemm(a, b, GemmSpec.of("e4m3 : sequential(e5m10, init=c_first)"), out, 0, c)
        assert_bitwise_equal(out, torch.full((1, 3), 256.25), context=name)
