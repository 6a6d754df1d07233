"""The tile that a product takes: a function of M, N, K and the GPU, and what it leaves idle."""

from __future__ import annotations

import pytest
import torch

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.cuda.simt import tile_heuristic
from gemmsim.backends.cuda.simt.gemm_operands import Operands
from gemmsim.backends.cuda.simt.tile_candidates import slots_of, tiles_of
from gemmsim.backends.cuda.simt.tile_heuristic import (
    MULTIPROCESSORS,
    Problem,
    Tile,
    cheapest,
    cycles,
    multiprocessors_of,
)

OPERANDS = Operands(*[torch.bfloat16] * 2, torch.float32, None, False, True, True, 1, 1)


def candidates(text: str = "e4m3 : e6m9") -> tuple[Tile, ...]:
    spec = GemmSpec.of(text)
    return tiles_of(spec, spec.accumulator, OPERANDS)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("e4m3 : e6m9", 3.0),
        ("e4m3 : e5m10", 0.5),
        ("fixed(8,0) : int(24)", 1.1),
        ("fixed(8,0) : int(12, overflow=saturate)", 3.0),
        (":int(24)", 20.0),
    ],
)
def test_instructions_of_a_product_are_those_of_its_loop(text, slots):
    """As the baseline of kernels counts them; integers of 128 bits are long code."""
    spec = GemmSpec.of(text)
    assert slots_of(spec, spec.accumulator, OPERANDS) == slots


def useful(tile: Tile, m: int, n: int) -> float:
    """Share of its tiles that lies in the matrix."""
    return m * n / (Problem(m, n, 1).tiles(tile) * tile.height * tile.width)


def busy(tile: Tile, m: int, n: int) -> float:
    """Share of an H100 that has a tile, were they dealt out evenly and each took the same time."""
    count = Problem(m, n, 1).tiles(tile)
    return count / MULTIPROCESSORS / -(-count // MULTIPROCESSORS)


def test_a_large_product_takes_the_largest_tile():
    for text in ("e4m3 : e6m9", "e4m3 : e5m10", ":fp32", ":hw(hopper, wgmma, e4m3)"):
        found = candidates(text)
        assert cheapest(found, Problem(4096, 4096, 4096)) == found[0]


def test_products_whose_large_tiles_leave_a_gpu_idle_take_smaller_ones():
    """1536^2: 144 tiles of 128x128 for 132 multiprocessors."""
    tile = cheapest(candidates(), Problem(1536, 1536, 1536))
    assert busy(tile, 1536, 1536) >= 0.87 and busy(Tile(8, 8), 1536, 1536) < 0.56


@pytest.mark.parametrize(("m", "n", "share"), [(1, 32000, 0.06), (16, 4096, 0.49), (16400, 1, 0.06), (8192, 10, 0.6)])
def test_a_thin_product_takes_a_thin_tile(m, n, share):
    assert useful(cheapest(candidates(), Problem(m, n, 4096)), m, n) >= share > 3 * useful(Tile(8, 8), m, n)


def test_more_multiprocessors_never_take_longer():
    for tile in candidates():
        for m, n in ((1, 32000), (300, 300), (1536, 1536), (4096, 4096)):
            few, many = (cycles(tile, Problem(m, n, 512, multiprocessors=count)) for count in (66, 132))
            assert many <= few


def test_each_way_of_doing_nothing_is_as_good():
    found = candidates()
    assert cheapest(found, Problem(0, 0, 0)) == found[0]
    assert cycles(found[0], Problem(0, 5, 5)) == 0


def test_tests_may_ask_for_a_tile(monkeypatch):
    found = candidates()
    for position in range(len(found) + 2):
        monkeypatch.setattr(tile_heuristic, "_asked", position)
        assert cheapest(found, Problem(4096, 4096, 4096)) == found[min(position, len(found) - 1)]


def test_what_is_no_gpu_is_planned_for_as_one():
    assert multiprocessors_of(torch.device("cpu")) == multiprocessors_of(torch.device("meta")) == MULTIPROCESSORS
