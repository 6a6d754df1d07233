"""Tiles of few rows, in which some threads compute and the others keep several chunks on their way, have the CPU
backend's bits: chunks beyond the stages, ragged ends, every layout, orders, random bits, sums beyond the range."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, cuda_gemm, host_gemm, sources_of
from support.cuda_tiles import asked_tile, gemm_sources, tile_of

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.backends.cuda.simt.tile_candidates import tiles_of
from gemmsim.backends.cuda.simt.tile_heuristic import FEW_ROWS, Problem, Tile, cheapest

#: Registers with and without formats' proofs, packed, with random bits; orders; runs that are none of these.
SPECS = [
    "e4m3 : e6m9", ":e5m10", "e4m3 : e5m10", ":e5m10/sr8", ":chunked(48, e5m10)", ":interleaved(4, bf16)", ":fp32",
    "bf16 : kahan(bf16)", ":fixed(16, 8)",
]  # fmt: skip
#: Chunks have 128 terms and four are on their way: more than five of them, and fewer, with ragged ends.
SIZES = [(1, 773, 70), (16, 900, 33), (5, 131, 64)]
Operands = tuple[torch.Tensor, torch.Tensor]


def operands(m: int, k: int, n: int, dtype: torch.dtype, lines: bool) -> Operands:
    """With lines that can be read 16 bytes at a time where sizes allow it, large numbers late in a chain, and NaN."""
    g = torch.Generator().manual_seed(m + k)
    a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
    a[:, k // 2 :: 101] *= 300
    b[k // 3, n // 2], a[-1, k - 2] = float("nan"), float("inf")
    a, b = a.to(dtype), b.to(dtype)
    return a, (b if lines else b.mT.contiguous().mT)


def thin(text: str, a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """Positions of the tiles with threads that only load."""
    spec = GemmSpec.of(text)
    out = torch.empty(a.shape[0], b.shape[1])
    known = cuda_gemm.operands_of(a, b, out, spec.accumulator, None, None, (False, False))
    return [at for at, tile in enumerate(tiles_of(spec, spec.accumulator, known)) if tile.loaders]


def calls(text: str) -> list[tuple[int, Operands]]:
    found = []
    for number, (m, k, n) in enumerate(SIZES):
        for dtype in (torch.float32, torch.bfloat16)[: 1 if text == ":e5m10/sr8" else 2]:
            a, b = operands(m, k, n, dtype, lines=number == 1)
            found += [(position, (a, b)) for position in thin(text, a, b)]
    return found


@pytest.mark.parametrize("text", SPECS)
def test_bits(text):
    spec, wanted = GemmSpec.of(text), []
    for position, (a, b) in calls(text):
        with asked_tile(position):
            wanted += sources_of([(a, b, spec, 5)])
    names = {tile_of(source) for source in wanted if source.family == "gemm" and "joined" not in source.name}
    assert "16x32" in names and names & {"1x32", "2x32"} and names <= {"1x32", "2x32", "16x32"}
    compile_on_host(wanted)
    for position, (a, b) in calls(text):
        got, want = (torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64) for _ in range(2))
        with asked_tile(position):
            host_gemm(a, b, spec, got, 5)
        cpu.gemm(a, b, spec, want, 5)
        assert_bitwise_equal(got, want, context=f"{text} {tuple(a.shape)} {a.dtype} tile {position}")


def test_they_are_for_few_rows():
    """A row of a decoder's layer takes one warp for 32 columns; more rows than 16 take other tiles."""
    row, few = Tile(1, 1, 1, 32, 128, 128, 4), Tile(4, 1, 4, 32, 128, 128, 4)
    others = Tile(8, 16, 16, 8), Tile(4, 4), Tile(2, 2)
    assert cheapest([*others, row, few], Problem(1, 4096, 4096)) == row
    assert cheapest([*others, row, few], Problem(FEW_ROWS, 4096, 4096)) == few
    assert cheapest([*others, row, few], Problem(FEW_ROWS + 1, 4096, 4096)) in others


def test_scales_and_chips_have_none():
    from support.cuda_tiles import Shape

    for text in ("mxfp8_e4m3 : scaled(fp32)", ":hw(hopper, wgmma, e4m3)"):
        with asked_tile(7):
            assert not any("1x32" in tile_of(source) for source in gemm_sources(text, Shape(1, 64, 64)))
