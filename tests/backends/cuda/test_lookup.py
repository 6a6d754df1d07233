"""Products from tables of codes: the GPU's kernels, run on the host, give the CPU backend's bits."""

from __future__ import annotations

import importlib
import math
import random
from contextlib import ExitStack

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import _launching, _run, compile_on_host
from support.device_tables import FakeCuda

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.arithmetic.lookup import ProductTable, table
from gemmsim.backends import codebook_products, cpu, cuda
from gemmsim.backends.cuda.errors import CudaError
from gemmsim.backends.cuda.simt import tile_heuristic
from gemmsim.backends.cuda.simt.table_facts import TableFacts, table_facts
from gemmsim.backends.device_tables import Tables

cuda_lookup = importlib.import_module("gemmsim.backends.cuda.simt.lookup")

INF, NAN = math.inf, math.nan


def whole(step: int, scale: int = 1) -> list[list[int]]:
    """Products of int8 codes without their low bits, as approximate multipliers give them."""
    signed = [x - 256 * (x >= 128) for x in range(256)]
    return [[x * y // step * step * scale for y in signed] for x in signed]


def floats(rows: int, columns: int, seed: int, bits: int, top: int) -> list[list[float]]:
    """Random numbers of so many bits; zeros of both signs, infinities and NaN among them."""
    rng = random.Random(seed)

    def one() -> float:
        if rng.random() < 0.02:
            return rng.choice([0.0, -0.0, INF, -INF, NAN])
        return math.ldexp(rng.randrange(-(1 << bits), 1 << bits), rng.randrange(-4, top) - bits)

    return [[one() for _ in range(columns)] for _ in range(rows)]


SHORT = table(whole(16), "int8")  # entries of 16 bits
LONG = table(whole(1, 33), "int8")  # of 32
EDGE = table([[-32768, 32767], [3, -5]], "codebook(1, 2)")  # -32768 is an entry, not NaN
MIXED = table(floats(256, 16, 1, 8, 8), "e4m3", "e2m1")  # float numbers, in shared memory
WIDE = table(floats(256, 256, 2, 40, 60), "e4m3", "e5m2")  # double numbers
NARROW = table(floats(16, 16, 4, 40, 60), "e2m1")  # double numbers, in shared memory
LISTED = table(floats(8, 16, 3, 12, 3), "codebook(-3, -1.5, 0, 0.1, 0.7, 2, 5, 9)", "int4")

CASES: list[tuple[ProductTable, list[str]]] = [
    (SHORT, ["int(32)", "int(20, saturate)", "int(12, wrap)", "int(40, wrap, signed=False)", "int(24, wrap, shift=3)",
             "int(16, saturate, when=end)", "chunked(4, int(12, saturate), fp32)", "e5m10", "exact(fp32)"]),
    (LONG, ["int(24)", "int(22, saturate)", "bf16/sr8"]),
    (EDGE, ["int(32)"]),
    (MIXED, ["e5m10", "e6m9/rtz", "e5m2/sr8", "e4m3/sat", "fp32", "fp64", "fixed(16, 8)", "kahan(bf16)",
             "neumaier(e5m10/sr8)", "two_sum(e5m2)", "fast_two_sum(e6m9)", "chunked(3, e5m10)",
             "pairwise(e5m10/sr8, 3)", "interleaved(5, e5m10/sr8, combine=pairwise)",
             "shuffled(chunked(4, e5m10/sr8), 5)", "splitk(3, e5m10, e6m9/sr20)", "fixed(16, 8)/sr8", "exact(fp32)",
             "fixed(16, 8, rounding=rtz)", "fixed(16, 8, rounding=sr8)", "fixed(24, 12, overflow=wrap)",
             "sequential(e5m10, mul=e4m3)", "sequential(e6m9/sr8, mul=e5m2/sr8)", "fast_two_sum(e5m10, mul=e4m3/sr20)",
             "chunked(4, exact(bf16/sr8), e5m10)", "binned(e5m2/sr8, carry=2)", "binned(fp32)", "e5m10/srb8",
             "e5m10 -> bf16", "fp32 -> e4m3/sr"]),
    (WIDE, ["fp32", "e11m40/ro", "exact(fp64)", "binned(fp64)", "kahan(fp32)"]),
    (NARROW, ["fp64", "e5m10"]),
    (LISTED, ["fp32", "fixed(20, 10)", "binary8p1"]),
]  # fmt: skip
SHAPES = [(1, 5, 3), (3, 17, 21)]
#: Codes that lie in whole vectors.
ALIGNED = [(SHORT, ["int(32)", "e5m10"]), (MIXED, ["e5m10"])]


def spec_of(products: ProductTable, text: str) -> GemmSpec:
    inner, _, out = text.partition(" -> ")
    return GemmSpec.of(f":lookup({products}, {inner})" + (f" -> {out}" if out else ""))


def codes(rng: random.Random, rows: int, columns: int, count: int, nan: bool = True) -> torch.Tensor:
    """All codes, and that of NaN."""
    drawn = [rng.randrange(count + (nan and rng.random() < 0.02)) for _ in range(rows * columns)]
    return torch.tensor(drawn, dtype=torch.int16).view(rows, columns)


@pytest.fixture(autouse=True)
def own_tables(monkeypatch):
    monkeypatch.setattr(cuda_lookup, "_tables", Tables(64))


def on_host(function, *arguments, launch=_run):
    """A function of the CUDA backend with its kernels run on the host."""
    with ExitStack() as stack:
        stack.enter_context(_launching(launch))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(cuda_lookup, "launch", launch)
        return function(*arguments)


def compiled(calls, function=cuda.lookup_gemm) -> None:
    """Compiles all kernels of these calls together."""
    found = []
    for call in calls:
        on_host(function, *call, launch=lambda source, *rest: found.append(source))
    compile_on_host(found)


def checked(calls) -> None:
    """``calls``: codes of both operands, spec, output, seed."""
    compiled(calls)
    for a, b, spec, out, seed in calls:
        want = torch.full_like(out, 7.0)
        cpu.lookup_gemm(a, b, spec, want, seed)
        on_host(cuda.lookup_gemm, a, b, spec, out, seed)
        assert_bitwise_equal(out, want, context=f"{spec}, {tuple(a.shape)}, seed {seed}")


def made(products: ProductTable, texts: list[str], shapes, rng: random.Random):
    for text in texts:
        spec = spec_of(products, text)
        for m, k, n in shapes:
            x = codes(rng, m, k, products.shape[0], nan="int(" not in text)
            y = codes(rng, k, n, products.shape[1], nan="int(" not in text)
            yield x, y, spec, torch.full((m, n), 7.0, dtype=torch.float64), rng.randrange(1 << 62)


def test_every_accumulator_has_the_cpus_bits():
    rng = random.Random(5)
    calls = [call for products, texts in CASES for call in made(products, texts, SHAPES, rng)]
    calls += [call for products, texts in ALIGNED for call in made(products, texts, [(16, 24, 8)], rng)]
    checked(calls)


def test_tiles_of_large_products(monkeypatch):
    """Blocks of 16 outputs a thread, several tiles each."""
    monkeypatch.setattr(tile_heuristic, "_asked", 0)
    rng = random.Random(6)
    chosen = ((SHORT, ["int(20, saturate)", "e5m10"]), (MIXED, ["e6m9/rtz", "kahan(bf16)", "chunked(3, e5m10)"]))
    checked([call for products, texts in chosen for call in made(products, texts, [(70, 19, 130)], rng)])


def test_products_themselves_are_added():
    """The reference's sums of 1 times each product."""
    rng = random.Random(7)
    for text in ("e5m10", "fp32", "kahan(bf16)", "exact(fp32)"):
        x, y = codes(rng, 3, 9, 256), codes(rng, 9, 2, 16)
        got = torch.empty(3, 2, dtype=torch.float64)
        on_host(cuda.lookup_gemm, x, y, spec_of(MIXED, text), got)
        lost = (256, 16)
        for i in range(3):
            for j in range(2):
                pairs = [(int(x[i, k]), int(y[k, j])) for k in range(9)]
                q = [[NAN if p == lost[0] or r == lost[1] else MIXED.product(p, r)] for p, r in pairs]
                want = reference.gemm([[1.0] * 9], q, GemmSpec.of(f":{text}"))
                assert_bitwise_equal(got[i : i + 1, j : j + 1], torch.tensor(want, dtype=torch.float64), context=text)


def test_strides_batches_and_dtypes():
    rng = random.Random(8)
    spec, short = spec_of(MIXED, "e5m10/sr8"), spec_of(SHORT, "int(20, saturate)")
    left, right = codes(rng, 24, 40, 256).view(4, 6, 40), codes(rng, 40, 18, 16).view(40, 3, 6)
    calls = []
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.full((2, 4, 13, 6), 7.0, dtype=dtype).transpose(0, 1)
        a = left.mT[:, ::3, ::2].transpose(1, 2).mT[:, None, :13]  # 4, 1, 13, 3
        b = right[:3, :2].transpose(0, 1)[None]  # 1, 2, 3, 6
        calls.append((a.expand(4, 2, 13, 3), b.expand(4, 2, 3, 6), spec, out, 3))
    wide = codes(rng, 16, 8, 256, nan=False)
    calls.append((wide, wide.t(), short, torch.empty(16, 16), 0))
    calls.append((wide[:, 1:], wide.t()[:7], short, torch.empty(16, 16), 0))
    calls.append((wide[:, :0], wide.t()[:0], short, torch.empty(16, 16), 0))
    calls.append((wide[:0], wide.t(), short, torch.empty(0, 16), 0))
    checked(calls)


def test_nan_in_an_integer_register_is_nan():
    """The CPU raises for it; nothing waits for a GPU."""
    for products, text in ((SHORT, "int(20, saturate)"), (LONG, "int(24)"), (SHORT, "int(24, wrap, shift=3)")):
        spec = spec_of(products, text)
        x = torch.tensor([[1, 256, 3], [4, 5, 6]], dtype=torch.int16)
        got = torch.empty(2, 2, dtype=torch.float64)
        on_host(cuda.lookup_gemm, x, x.t(), spec, got)
        want = torch.empty(1, 1, dtype=torch.float64)
        cpu.lookup_gemm(x[1:], x[1:].t(), spec, want)
        assert got.isnan().tolist() == [[True, True], [True, False]]
        assert got[1, 1] == want[0, 0]


def test_overflows_are_counted():
    rng = random.Random(9)
    calls = []
    for products, text in (
        (SHORT, "int(12, wrap)"),
        (LONG, "int(20, saturate)"),
        (MIXED, "fixed(12, 8, rounding=rtz)"),
    ):
        x, y = (codes(rng, *shape, nan=False) for shape in ((5, 30, products.shape[0]), (30, 7, products.shape[1])))
        calls.append((x, y, spec_of(products, text), torch.full((5, 7), 2, dtype=torch.int64)))
    compiled(calls, cuda.count_lookup_overflows)
    for x, y, spec, counts in calls:
        counts.fill_(2)
        want = counts.clone()
        cpu.count_lookup_overflows(x, y, spec, want)
        on_host(cuda.count_lookup_overflows, x, y, spec, counts)
        assert counts.tolist() == want.tolist(), spec
        assert int(counts.max()) > 2
    with pytest.raises(UnsupportedSpec, match="cannot count overflows"):
        cuda.count_lookup_overflows(x, y, spec_of(MIXED, "fp32"), counts)


def test_a_product_of_tensors(monkeypatch):
    """From operands to the result as ``qmatmul`` goes, on the other backend."""
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 5, 40, generator=g) * 3, torch.randn(40, 6, generator=g)
    a[0, 0, 0] = NAN
    for spec in (spec_of(MIXED, "e5m10"), spec_of(LISTED, "fp32"), spec_of(MIXED, "fp32 -> e5m2/sr8")):
        want = gs.qmatmul(a, b, spec, seed=4)
        with monkeypatch.context() as patch:
            patch.setattr(codebook_products, "backend_of", lambda x: cuda)
            got = on_host(lambda spec=spec: gs.qmatmul(a, b, spec, seed=4))
        assert_bitwise_equal(got, want, context=str(spec))
        assert not got[1].isnan().all()


def test_tables_that_differ_little_share_kernels():
    a, b = table_facts(SHORT), table_facts(table(whole(2), "int8"))
    assert a == b == TableFacts(257, 257, 16, 0, 16, True)
    assert table_facts(LONG) != a and not table_facts(EDGE).is_short
    x, y = torch.zeros(2, 3, dtype=torch.int16), torch.zeros(3, 2, dtype=torch.int16)
    names = set()
    for products in (SHORT, table(whole(2), "int8")):
        run = on_host(
            cuda.lookup_gemm, x, y, spec_of(products, "int(32)"), torch.empty(2, 2), launch=lambda *rest: None
        )
        names.add(str(run))
    assert len(names) == 1


def test_where_entries_lie():
    """What fits 40 KiB is copied into shared memory."""
    assert table_facts(MIXED).is_shared(torch.float32)
    assert not table_facts(SHORT).is_shared(torch.int16)
    assert TableFacts(65, 65, 53, -100, 100, False).is_shared(torch.float64)


@pytest.mark.kept(by="nothing")
def test_a_captured_graph_needs_the_table_beforehand(monkeypatch):
    gpu = FakeCuda(monkeypatch)
    where = torch.device("meta")
    gpu.capturing = True
    with pytest.raises(CudaError, match="Run the product once before capturing"):
        cuda_lookup._entries(SHORT, torch.int16, where)
    gpu.capturing = False
    held = cuda_lookup._entries(SHORT, torch.int16, where)
    gpu.capturing = True
    assert cuda_lookup._entries(SHORT, torch.int16, where) is held
    assert gpu.of_graphs() == {held.tensors[0].data_ptr()}


def test_what_is_said_of_it():
    spec = spec_of(SHORT, "int(32)")
    assert cuda.lookup_refuses(spec) is None
    lines = gs.explain(spec).splitlines()
    assert any(line.startswith("cuda: yes, by table lookup") for line in lines), lines
    assert any(line.startswith("cpu: yes, by table lookup") for line in lines), lines
