"""Products of few rows whose K is split over blocks have the CPU backend's bits: every order whose totals meet later, exact sums, slices of
whole and ragged runs, random bits of terms and of totals, batches, last steps."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, cuda_gemm, host_gemm, sources_of
from support.cuda_tiles import asked_tile

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.backends.cuda.simt import launch_cache
from gemmsim.backends.cuda.simt.split_k import Slices, slices_of
from gemmsim.backends.cuda.simt.tile_candidates import tiles_of
from gemmsim.backends.cuda.simt.tile_heuristic import Problem, Tile
from gemmsim.backends.epilogue import Finish

#: Runs shorter and longer than a chunk of 128 terms, that end in the middle of 16 bytes; more runs than the second kernel
#: reads at once; packed registers; draws of terms, of exact totals, of workspaces and of combinations.
SPECS = [
    ":chunked(48, e5m10, fp32)", "e4m3 : chunked(301, e5m10)", ":chunked(9, bf16/sr8, e5m10/sr8)",
    ":splitk(5, e6m9, bf16/sr8)", ":interleaved(6, bf16/sr8)", ":interleaved(7, e5m10, combine=pairwise)",
    ":pairwise(e5m10/sr16, 16)", ":chunked(90, exact(e5m10/sr8), fp32)", ":chunked(100, kahan(bf16), e5m10)",
    ":chunked(70, fixed(16, 8), fp32)",
    ":exact(fp32)", ":exact(e5m10/sr8)", "e4m3 : exact(e4m3/sat)", ":exact(fp64)",
    "int8 : int(12)", "int8 : int(24, saturate, when=end)", "int8 : int(40)",
]  # fmt: skip
SIZES = [(1, 773, 70), (3, 1032, 33), (2, 520, 40)]
Operands = tuple[torch.Tensor, torch.Tensor]


def operands(m: int, k: int, n: int, batches: int = 2, whole: bool = False) -> Operands:
    g = torch.Generator().manual_seed(m + k)
    if whole:
        left, right = (torch.randint(-128, 128, (batches, *shape), generator=g) for shape in ((m, k), (k, n)))
        return left.float(), right.float()
    a, b = torch.randn(batches, m, k, generator=g), torch.randn(batches, k, n, generator=g)
    a[..., k // 2 :: 101] *= 300
    b[-1, k // 3, n // 2], a[0, -1, k - 2] = float("nan"), float("inf")
    return a, b


def positions(text: str) -> list[int]:
    """Of the tiles with threads that only load."""
    spec, (a, b) = GemmSpec.of(text), operands(*SIZES[0])
    known = cuda_gemm.operands_of(a, b, a @ b, spec.accumulator, None, None, (False, False))
    return [at for at, tile in enumerate(tiles_of(spec, spec.accumulator, known)) if tile.loaders]


@pytest.mark.kept
@pytest.mark.parametrize("text", SPECS)
def test_bits(text, monkeypatch):
    monkeypatch.setattr(launch_cache, "_ready", {})
    spec = GemmSpec.of(text)
    whole = text.startswith("int8")
    calls = [(operands(*size, whole=whole), at) for size, at in zip(SIZES, positions(text) * 2, strict=False)]
    wanted = []
    for (a, b), at in calls:
        with asked_tile(at):
            found = sources_of([(a, b, spec, 5)])
        assert [source.name.split()[0] for source in found if source.family == "gemm"] == ["parts", "joined"]
        wanted += found
    compile_on_host(wanted)
    launch_cache._ready.clear()
    for (a, b), at in calls:
        got, want = (torch.full((2, a.shape[1], b.shape[2]), 7.0, dtype=torch.float64) for _ in range(2))
        cpu.gemm(a, b, spec, want, 5)
        for _ in range(2):  # chosen; looked up
            with asked_tile(at):
                host_gemm(a, b, spec, got, 5)
            assert_bitwise_equal(got, want, context=f"{text} {tuple(a.shape)} tile {at}")


@pytest.mark.kept
def test_an_operand_that_is_no_integer_makes_its_own_outputs_nan(monkeypatch):
    """Whichever slice it lies in."""
    monkeypatch.setattr(launch_cache, "_ready", {})
    text, size = "int8 : int(24)", SIZES[1]
    spec, (a, b) = GemmSpec.of(text), operands(*size, whole=True)
    want, got = (torch.full((2, size[0], size[2]), 7.0) for _ in range(2))
    cpu.gemm(a, b, spec, want, 0)
    for batch, k, column in ((0, 3, 5), (1, size[1] - 1, 32)):
        b[batch, k, column], want[batch, :, column] = torch.nan, torch.nan
    with asked_tile(positions(text)[0]):
        host_gemm(a, b, spec, got)
    assert_bitwise_equal(got, want, nan_is_nan=True)


@pytest.mark.kept
def test_last_steps(monkeypatch):
    """Output cast, bias and dtype are those of the kernel that joins."""
    monkeypatch.setattr(launch_cache, "_ready", {})
    spec, (a, b) = GemmSpec.of(":chunked(48, e5m10, fp32) -> bf16"), operands(1, 773, 70)
    bias = torch.linspace(-3, 3, 70)
    got, want, plain = (torch.empty(2, 1, 70) for _ in range(3))
    with asked_tile(positions(str(spec))[0]):
        host_gemm(a, b, spec, got, finish=Finish(bias, torch.float32, None))
    cpu.gemm(a, b, spec, plain, 0)
    torch.add(plain, bias, out=want)
    assert_bitwise_equal(got, want, nan_is_nan=True)


def plan(text: str, m: int, k: int, n: int, **more: int) -> Slices | None:
    spec = GemmSpec.of(text)
    known = cuda_gemm.operands_of(torch.empty(m, k), torch.empty(k, 64), torch.empty(m, 64), spec.accumulator, None, None, (False, False))  # fmt: skip
    tile = tiles_of(spec, spec.accumulator, known)[-2]
    assert tile.loaders
    return slices_of(spec, spec.accumulator, known, tile, Problem(m, n, k, **more))


def test_where_k_is_split():
    assert plan(":chunked(128, e5m10, fp32)", 1, 4096, 4096) == Slices(each=16, count=2, total_bytes=128)
    assert plan(":chunked(128, e5m10, fp32)", 1, 4096, 1024) == Slices(each=4, count=8, total_bytes=128)
    assert plan(":splitk(4, bf16, fp32)", 1, 4096, 64) == Slices(each=1, count=4, total_bytes=16)
    assert plan(":chunked(128, e5m10, fp32)", 1, 4096, 1024, multiprocessors=16) is None, "enough tiles"
    assert plan(":chunked(128, e5m10, fp32)", 1, 500, 64) is None, "a slice has two chunks"
    assert plan(":chunked(2, e5m10, fp32)", 16, 4096, 64) is None, "more totals than numbers of b"
    assert plan(":exact(fp32)", 1, 4096, 64) == Slices(each=256, count=16, total_bytes=1920)
    assert plan(":exact(fp32)", 1, 4096, 4096) == Slices(each=2048, count=2, total_bytes=240)
    assert plan(":exact(fp32)", 16, 4096, 64) == Slices(each=1024, count=4, total_bytes=480), "parts are long"
    assert plan(":exact(fp32)", 1, 4096, 1024, multiprocessors=16) is None, "enough tiles"
    assert plan("int8 : int(24)", 1, 4096, 1024) == Slices(each=512, count=8, total_bytes=64)
    assert plan("int8 : int(24, saturate)", 1, 4096, 64) is None, "each addition saturates"
    assert plan(":int(24)", 1, 4096, 64) is None, "operands of any kind"
    assert plan(":e5m10", 1, 4096, 64) is None, "a sequence is one run"
    assert plan(":chunked(512, pairwise(e5m10, 8), fp32)", 1, 4096, 64) is None, "orders in orders"
    tile = Tile(2, 2)
    spec = GemmSpec.of(":chunked(128, e5m10, fp32)")
    known = cuda_gemm.operands_of(*(torch.empty(64, 64) for _ in range(3)), spec.accumulator, None, None, (False, False))  # fmt: skip
    assert slices_of(spec, spec.accumulator, known, tile, Problem(1, 64, 4096)) is None, "threads that load"
