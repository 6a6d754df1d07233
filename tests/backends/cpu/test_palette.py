"""Palettes on the CPU: every element has the reference's bits of its member, whatever its neighbours are."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas, operand

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import SelectError, SpecError
from gemmsim.backends import cpu

FORMATS = ["e5m10", "e4m3", "e5m2", "bf16", "fp32", "e8m14", "fp64", "e6m9", "ieee_e3m2", "fixed(12,6)", "ufixed(10,4)"]
ENDINGS = ["", "", "", "", "/rtz", "/ru", "/rd", "/rna", "/ro", "/sat", "/ftz", "/clamp"]
STOCHASTIC = ["/sr8", "/sr16", "/srb8"]
OTHERS = [
    "chunked(3, e5m4, fp32)",
    "pairwise(bf16, 2)",
    "interleaved(4, e5m10)",
    "interleaved(3, e5m2/sr8)",
    "shuffled(e5m4, 3)",
    "shuffled(e5m4/sr8, 4)",
    "splitk(2, e5m10, bf16)",
    "kahan(bf16)",
    "two_sum(e5m10, e5m4)",
    "exact(fp32)",
    "binned(fp32)",
    "fixed(20, 6, rounding=rne)",
    "chunked(4, kahan(bf16), e5m10/sr8)",
]
HARDWARE = ["hw(hopper, wgmma, bf16)", "hw(ampere, mma, bf16)", "hw(cdna3, mfma, bf16)", "hw(cdna2, mfma, bf16)"]
SHAPES = [(1, 0, 3), (3, 1, 2), (9, 12, 5), (2, 40, 35), (5, 3, 18), (17, 9, 70)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def register(rng: random.Random, endings: list[str]) -> str:
    mul = rng.choice(["", "", f", mul={rng.choice(FORMATS)}{rng.choice(endings)}"])
    return f"sequential({rng.choice(FORMATS)}{rng.choice(endings)}{mul})"


def random_spec(rng: random.Random) -> GemmSpec | None:
    """Palettes of registers that round to nearest even, in one other mode, in any mode; of any accumulators."""
    kind, count = rng.choice(["nearest", "nearest", "one mode", "any mode", "anything"]), rng.randint(1, 8)
    endings = {"nearest": ["", "", "/sat"], "any mode": ENDINGS, "anything": ENDINGS + STOCHASTIC}.get(kind)
    endings = [rng.choice(["/rtz", "/ru", "/rd", "/rna"])] if endings is None else endings
    members = [register(rng, endings) for _ in range(count)]
    operands = rng.choice(["", "", "e4m3", "e5m2 * e4m3", "bf16"])
    if kind == "anything":
        pool = OTHERS + (HARDWARE if operands == "bf16" else [])
        members = [rng.choice(pool) if rng.random() < 0.5 else member for member in members]
    arithmetic = rng.choice(["", "", ", arithmetic=fp32"])
    try:
        return GemmSpec.of(f"{operands} : palette({', '.join(members)}){arithmetic}")
    except ValueError:
        return None


def selection(rng: random.Random, count: int, m: int, n: int) -> torch.Tensor:
    """Indices of any integer dtype and strides, broadcast ones among them; some members do not occur."""
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    form = rng.choice(["full", "full", "transposed", "row", "column", "scalar"])
    rows, cols = (1 if form in ("row", "scalar") else m), (1 if form in ("column", "scalar") else n)
    s = torch.randint(0, rng.choice([count, max(1, count - 2)]), (rows, cols), generator=g)
    s = s.to(rng.choice([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]))
    return s.t().contiguous().t() if form == "transposed" else s.expand(m, n)


@pytest.mark.parametrize("start", range(4))
def test_random_palettes_equal_the_reference(start):
    rng, done = random.Random(start), 0
    while done < 60:
        spec = random_spec(rng)
        if spec is None or cpu.refuses(spec) is not None:
            continue
        m, k, n = rng.choice(SHAPES)
        dtype, kind = rng.choice(DTYPES), None if k else "normal"
        a, b = operand(rng, m, k, dtype, kind), operand(rng, k, n, dtype, kind)
        select = selection(rng, len(spec.accumulator.members), m, n)
        want = reference.gemm(a.double(), b.double(), spec, seed=7, select=select)
        for name in isas():
            cpu.set_isa(name)
            out = torch.full((m, n), 77.0, dtype=torch.float64)
            run = cpu.gemm(a, b, spec, out, 7, select=select)
            context = f"{spec} on {name}, {dtype}, select {select.dtype} {select.stride()}, {run}"
            assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64).reshape(m, n), context=context)
        done += 1


@pytest.mark.parametrize(
    "texts", [["e5m10", "bf16", "e4m3/sat"], ["e5m10", "int(16)", "shuffled(bf16, 2)"], ["e8m14", *HARDWARE]]
)
def test_each_element_is_that_of_its_member_alone(texts):
    g = torch.Generator().manual_seed(3)
    a = torch.randint(-9, 10, (3, 21, 50), generator=g).float()
    b = torch.randint(-9, 10, (3, 50, 67), generator=g).float()
    select = torch.randint(0, len(texts), (3, 1, 67), generator=g).expand(3, 21, 67)
    alone = []
    for text in texts:
        alone.append(torch.empty(3, 21, 67))
        cpu.gemm(a, b, GemmSpec.of(f":{text}"), alone[-1])
    want = torch.stack(alone).gather(0, select[None])[0]
    spec, threads = GemmSpec.of(f":palette({', '.join(texts)})"), torch.get_num_threads()
    try:
        for name in isas():
            for count in (1, 2, 5):
                cpu.set_isa(name)
                torch.set_num_threads(count)
                out = torch.empty(3, 67, 21).mT
                cpu.gemm(a, b, spec, out, select=select)
                assert_bitwise_equal(out.contiguous(), want, context=f"{name}, {count} threads")
    finally:
        torch.set_num_threads(threads)


def test_registers_of_one_rounding_mode_share_a_pass():
    a, b = torch.randn(8, 64), torch.randn(64, 64)
    select = torch.arange(64, dtype=torch.uint8).remainder(4).expand(8, 64)
    spec = GemmSpec.of("e4m3 : palette(e5m10, e5m4, bf16, e6m9)")
    assert len(cpu.gemm(a, b, spec, torch.empty(8, 64), select=select).how.names) == 1
    mixed = GemmSpec.of("e4m3 : palette(e5m10, e5m4, exact(), e6m9)")
    assert len(cpu.gemm(a, b, mixed, torch.empty(8, 64), select=select).how.names) == 2
    assert (
        len(cpu.gemm(a, b, mixed, torch.empty(8, 64), select=select * 0).how.names) == 1
    )  # who is not chosen does not run


@pytest.mark.parametrize("size", [1.0, 40.0])
@pytest.mark.parametrize("at", [0, 70, 199])
def test_an_overflow_that_was_not_expected_is_seen_wherever_it_happens(size, at):
    g = torch.Generator().manual_seed(at)
    a, b = torch.randn(9, 200, generator=g), torch.randn(200, 35, generator=g) / 8
    a[4, at], b[at, 7] = 90 * size, 5.0  # this product alone, or what follows, passes 448 or 480 but not 65504
    select = torch.randint(0, 4, (9, 35), generator=g)
    select[4, 7] = 1
    spec = GemmSpec.of(":palette(e5m10, e4m3, ieee_e4m3/sat, bf16)")
    want = torch.tensor(reference.gemm(a, b, spec, select=select), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(9, 35, dtype=torch.float64)
        cpu.gemm(a, b, spec, out, select=select)
        assert_bitwise_equal(out, want, context=name)


def test_stochastic_output_and_operands():
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(9, 20, generator=g), torch.randn(20, 35, generator=g)
    spec = GemmSpec.of("e4m3/sr8 : palette(e5m10/sr8, bf16) -> e5m2/sr8")
    select = torch.randint(0, 2, (9, 35), generator=g)
    want = torch.tensor(reference.gemm(a, b, spec, seed=5, select=select), dtype=torch.float64)
    out = torch.empty(9, 35, dtype=torch.float64)
    cpu.gemm(a, b, spec, out, 5, select=select)
    assert_bitwise_equal(out, want)


def test_what_has_no_meaning_is_refused():
    a, b, out = torch.ones(1, 1), torch.ones(1, 1), torch.empty(1, 1)
    spec = GemmSpec.of(":palette(e5m10, bf16)")
    for bad in (2, -1, 300):
        with pytest.raises(SelectError, match=f"index {bad} in select; allowed: 0 to 1"):
            cpu.gemm(a, b, spec, out, select=torch.tensor([[bad]]))
    with pytest.raises(SelectError, match="without select"):
        cpu.gemm(a, b, spec, out)
    with pytest.raises(SpecError, match="select for palette"):
        cpu.gemm(a, b, GemmSpec.of(":e5m10"), out, select=torch.tensor([[0]]))
    with pytest.raises(ValueError, match="whole numbers"):
        cpu.gemm(a / 2, b, GemmSpec.of(":palette(e5m10, int(8))"), out, select=torch.tensor([[0]]))
