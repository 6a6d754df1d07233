"""The GPU's matrix products, run on the host, equal the CPU backend bit for bit; some equal the reference directly.

The text of each kernel is the one NVRTC compiles. Specs are drawn from the tables of the CPU backend's own tests and from
lists that reach every kind of run; operands hold NaN, infinities, zeros of both signs, subnormals, ties and overflows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import operand
from support.cuda_gemm import Call, compile_on_host, cuda_gemm, host_gemm, sources_of
from support.cuda_specs import CHIPS, ORDERS, RUNS, SCHEDULED, random_register, specs

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec, SpecError, UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.backends.cuda.simt import tile_heuristic

#: Shapes whose rows are read element by element, and those that are read 16 bytes at a time: kernels of their own.
SHAPES = [(1, 5, 3), (3, 17, 33), (9, 13, 5), (2, 41, 35), (20, 70, 35)]
ALIGNED = [(2, 40, 35), (9, 8, 8), (17, 32, 40)]
DTYPES = [torch.float32] * 4 + [torch.float64, torch.bfloat16, torch.float16]


def calls_of(chosen: Sequence[GemmSpec], rng: random.Random, times: int = 4) -> list[Call]:
    calls = []
    for spec in chosen:
        dtype = rng.choice(DTYPES)  # one for each spec: a kernel belongs to dtypes
        shapes = rng.choice([SHAPES, SHAPES, ALIGNED])
        for _ in range(times):
            m, k, n = rng.choice(shapes)
            calls.append((operand(rng, m, k, dtype), operand(rng, k, n, dtype), spec, rng.randrange(1 << 63)))
    return calls


def check(calls: Sequence[Call]) -> None:
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got, want = (torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64) for _ in range(2))
        host_gemm(a, b, spec, got, seed)
        try:
            cpu.gemm(a, b, spec, want, seed)
        except ValueError:  # operands of int(...) that are not whole: no error where nobody waits for the result
            assert_bitwise_equal(got.isnan().any(), torch.tensor(True), context=f"{spec}: fractions were added")
            continue
        assert_bitwise_equal(got, want, context=f"{spec}, {a.dtype} {tuple(a.shape)}x{tuple(b.shape)}, seed {seed}")


def test_random_registers():
    rng = random.Random(1)
    check(calls_of(specs(40, random_register, rng), rng))


@pytest.mark.parametrize("texts", [ORDERS, SCHEDULED, RUNS, CHIPS], ids=["orders", "schedules", "runs", "chips"])
def test_every_kind_of_accumulator(texts):
    rng = random.Random(2)
    check(calls_of([GemmSpec.of(text) for text in texts], rng, times=5))


@pytest.mark.parametrize("text", ["int8 : int(24)", "int8 : int(12, overflow=saturate)"])
def test_only_chunks_with_a_factor_that_is_not_whole_look_for_it(text):
    """In the middle of three chunks and a part: its row and column are NaN, all others what they are without it."""
    spec, g = GemmSpec.of(text), torch.Generator().manual_seed(4)
    a, b = (
        torch.randint(-128, 128, (37, 53), generator=g).float(),
        torch.randint(-128, 128, (53, 21), generator=g).float(),
    )
    want = torch.empty(37, 21)
    cpu.gemm(a, b, spec, want, 0)
    compile_on_host(sources_of([(a, b, spec, 0)]))
    for row, column in ((None, None), (5, None), (None, 7), (36, 20)):
        left, right, expected = a.clone(), b.clone(), want.clone()
        if row is not None:
            left[row, 20], expected[row] = torch.nan, torch.nan
        if column is not None:
            right[40, column], expected[:, column] = torch.nan, torch.nan
        got = torch.empty(37, 21)
        host_gemm(left, right, spec, got, 0)
        assert_bitwise_equal(got, expected, context=f"{row} {column}")


def test_the_reference_agrees():
    rng = random.Random(3)
    texts = [":e5m10", "e4m3 : e5m10", ":bf16/sr8", ":mul=e4m3, add=e5m10/rtz", ":chunked(3, e4m3)", ":kahan(e5m2)"]
    calls = [c for c in calls_of([GemmSpec.of(t) for t in texts], rng, times=3) if c[0].numel() < 200]
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
        host_gemm(a, b, spec, got, seed)
        want = reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=seed)
        assert_bitwise_equal(got, torch.tensor(want, dtype=torch.float64), context=str(spec))


@pytest.mark.parametrize("text", ["e4m3 : e5m10", ":e5m10/sr8", "e4m3 : e4m3/sr4", ":bf16, arithmetic=fp32"])
def test_long_sums_that_leave_the_range_and_come_back(text):
    """The loop without range checks and the other one take turns."""
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(70, 400, generator=g), torch.randn(400, 90, generator=g)
    a[:, 100:140] *= 200
    b[100:140] *= 200
    a[3, 250] = float("inf")
    a[5, 260] = float("nan")
    b[120:130, 7] = 3e38
    check([(a, b, GemmSpec.of(text), 5), (a[:, 150:], b[150:], GemmSpec.of(text), 5)])


WIDER = [
    "fixed(32,0)/rtz : e5m10", "fixed(32,0) : fp32", "fixed(32,0)/sr4 : fp64", "e8m3 : e5m10", "e8m3/ru : bf16",
    "fixed(8,-6,unbounded) : e5m10", "int32 : int(40)", "e9m3 : bf16", "fixed(20,0)/sr8 : e5m10", "e8m30/sat : fp64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_casts_to_formats_with_more_range_than_the_tensor(dtype):
    """Its largest number may be rounded up beyond the dtype's end, and infinities become numbers that the dtype, or
    float32, does not hold."""
    g = torch.Generator().manual_seed(9)
    calls, most = [], torch.finfo(dtype).max
    for text in WIDER:
        a, b = (
            (torch.randn(5, 9, generator=g) * 3e4).round().to(dtype),
            torch.randn(9, 7, generator=g).round().to(dtype),
        )
        a[0, 0], a[1, 1], a[2, 1], a[3, 3], b[0, 1], b[1] = float("inf"), most, -most, 3e9, 1.0, 1.0
        calls.append((a, b, GemmSpec.of(text), 3))
    check(calls)
    spec = GemmSpec.of(WIDER[2])
    out = torch.empty(1, 1, dtype=torch.float64)
    cpu.gemm(torch.tensor([[float("inf")]]), torch.ones(1, 1), spec, out, 1)
    assert out.item() == 2.0**31 - 1 == reference.gemm([[float("inf")]], [[1.0]], spec, seed=1)[0][0]


def test_every_tile_size(monkeypatch):
    """As many outputs a thread as the kernel of a large product has."""
    monkeypatch.setattr(tile_heuristic, "_asked", 0)
    g = torch.Generator().manual_seed(5)
    a, b = torch.randn(150, 35, generator=g), torch.randn(35, 270, generator=g)
    texts = ["e4m3 : e5m10", ":fp32", "e4m3 : bf16/rtz", ":fp64", ":e5m10/sr8", ":kahan(bf16)", ":chunked(8, e5m10)"]
    check([(a, b, GemmSpec.of(text), 6) for text in texts])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_largest_tile_of_every_layout(monkeypatch, dtype):
    """Vectors of operands find their places in shared memory, packed registers of 16 bits included."""
    monkeypatch.setattr(tile_heuristic, "_asked", 0)
    g = torch.Generator().manual_seed(12)
    a, b = torch.randn(144, 48, generator=g).to(dtype), torch.randn(48, 136, generator=g).to(dtype)
    by_lines, by_terms = a.mT.contiguous().mT, b.mT.contiguous().mT
    specs = [GemmSpec.of(text) for text in ("e5m10 : e5m10", "bf16 : bf16", ":e6m9")]
    check([(x, y, spec, 0) for x in (a, by_lines) for y in (b, by_terms) for spec in specs])


def test_layouts_batches_and_output_dtypes():
    g = torch.Generator().manual_seed(6)
    a, b = torch.randn(3, 2, 19, 37, generator=g), torch.randn(2, 37, 21, generator=g)
    spec = GemmSpec.of("e4m3 : e5m10/sr8")
    views_a = [a, a.mT.contiguous().mT, a.repeat(1, 1, 2, 2)[:, :, ::2, :37], a.flip(0).flip(0)]
    views_b = [b, b.mT.contiguous().mT, b.repeat(1, 2, 2)[:, :37, 1::2]]
    for x in views_a:
        for y in views_b:
            y = y.expand(3, 2, 37, 21)
            for dtype in (torch.float32, torch.bfloat16):
                got, want = torch.empty(3, 2, 21, 19, dtype=dtype).mT, torch.empty(3, 2, 19, 21, dtype=dtype)
                host_gemm(x, y, spec, got, 7)
                cpu.gemm(x, y, spec, want, 7)
                assert_bitwise_equal(got.contiguous(), want, context=f"{x.stride()} {y.stride()} {dtype}")


def test_zero_depth_and_empty_sides():
    for text in (":e5m10", ":pairwise(bf16)", ":interleaved(4, bf16)", ":exact(fp32)"):
        out = torch.full((2, 3), 7.0)
        host_gemm(torch.empty(2, 0), torch.empty(0, 3), GemmSpec.of(text), out)
        assert_bitwise_equal(out, torch.zeros(2, 3), context=text)
    host_gemm(torch.empty(0, 4), torch.empty(4, 3), GemmSpec.of(":e5m10"), torch.empty(0, 3))


@pytest.mark.parametrize("init", ["c_first", "c_last"])
@pytest.mark.parametrize("add", ["e5m10", "e5m2/sr8", "bf16/rtz"])
def test_an_addend_enters_as_the_reference_says(init, add):
    rng = random.Random(7)
    spec = GemmSpec.of(f"e4m3 : sequential({add}, init={init})")
    a, b, c = operand(rng, 5, 7, torch.float32), operand(rng, 7, 4, torch.float32), operand(rng, 5, 4, torch.float32)
    got = torch.empty(5, 4, dtype=torch.float64)
    host_gemm(a, b, spec, got, 8, c=c)
    want = reference.gemm(a.double().tolist(), b.double().tolist(), spec, seed=8, c=c.double().tolist())
    assert_bitwise_equal(got, torch.tensor(want, dtype=torch.float64), context=str(spec))


def test_a_palette_gives_each_element_its_member():
    rng = random.Random(8)
    members = ["e5m10", "e4m3/sr8", "kahan(bf16)"]
    a, b = operand(rng, 33, 20, torch.float32, "normal"), operand(rng, 20, 18, torch.float32, "normal")
    select = torch.randint(0, 4, (33, 18), generator=torch.Generator().manual_seed(8), dtype=torch.uint8)
    got = torch.empty(33, 18)
    host_gemm(a, b, GemmSpec.of(f": palette({', '.join(members)})"), got, 9, select=select)
    want = torch.full_like(got, float("nan"))  # index 3 is no member's
    for index, member in enumerate(members):
        alone = torch.empty_like(got)
        cpu.gemm(a, b, GemmSpec.of(f": {member}"), alone, 9)
        want = torch.where(select == index, alone, want)
    assert_bitwise_equal(got, want)


def test_what_has_no_place_or_no_kernel_is_refused():
    a, out = torch.ones(2, 2), torch.empty(2, 2)
    with pytest.raises(UnsupportedSpec, match="The CUDA backend"):
        host_gemm(a, a, GemmSpec.of(":chunked(64, shuffled(e5m10, 1))"), out)
    with pytest.raises(SpecError, match="init=c_first"):
        host_gemm(a, a, GemmSpec.of(":e5m10"), out, c=a)
    with pytest.raises(SpecError, match="select"):
        host_gemm(a, a, GemmSpec.of(":palette(e5m10, bf16)"), out)


@pytest.mark.parametrize(
    "text",
    ["e4m3 : e5m10", "e5m10 : e5m10", "e5m2*e4m3 : bf16", "bf16 : bf16", "e5m10 : chunked(4, e5m10, bf16)"],
)
def test_two_outputs_an_instruction(text):
    """Registers of 16 bits, operands that are such numbers: overflow, subnormals, NaN and zeros as the register has them."""
    rng = random.Random(9)
    calls = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for m, k, n in SHAPES + ALIGNED:
            calls.append((operand(rng, m, k, dtype), operand(rng, k, n, dtype), GemmSpec.of(text), 0))
    assert any(".packed = 1" in source.text for source in sources_of(calls))
    check(calls)


def test_casts_done_beforehand_give_the_same(monkeypatch):
    monkeypatch.setattr(cuda_gemm, "_is_read_often", lambda x, others: True)
    rng = random.Random(10)
    texts = ["e4m3 : e6m9", "e4m3 : e5m10/rtz", "fixed(8,4) : e5m10/sr8", "e8m12 : e8m10", "int8 : int(12, saturate)"]
    check(calls_of([GemmSpec.of(text) for text in texts], rng))


@pytest.mark.parametrize("text", [":e5m10", ":bf16", ":e5m10/rtz", ":mul=e5m10, add=e6m9", ":e5m10, arithmetic=fp32"])
def test_operands_that_lie_on_a_grid_for_some_of_the_terms(text):
    """Chunks of short numbers take the shortest loop, others the next, and each finds the register as the last left it."""
    g = torch.Generator().manual_seed(11)
    a, b = torch.randn(37, 330, generator=g), torch.randn(330, 41, generator=g)
    short_a, short_b = (x.to(torch.float8_e4m3fn).float() for x in (a, b))
    mixed = short_a.clone()
    mixed[:, 100:105] = a[:, 100:105]
    mixed[7, 200] = 2.0**-30
    mixed[8, 230] = 30000.0
    mixed[9, 260] = float("-inf")
    spec = GemmSpec.of(text)
    check([(short_a, short_b, spec, 0), (mixed, short_b, spec, 0), (a, b, spec, 0), (mixed * 2**-12, short_b, spec, 0)])
