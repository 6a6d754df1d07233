"""Chooses the tile of outputs of a block: the cheapest for M, N, K and a GPU in a model of its time.

Every tile gives the same bits, because the order over k is the spec's. Tiles differ in how much of them lies inside the
matrix, how evenly they fill the multiprocessors, and how many instructions a product has. All figures come from machine
code and manuals; none was fitted to a time measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Final

import torch

__all__ = ["FEW_ROWS", "MULTIPROCESSORS", "Problem", "Tile", "cheapest", "cycles", "multiprocessors_of"]

#: Multiprocessors of an H100 or H200. Tiles are chosen for these where no product runs (tests, explanations).
MULTIPROCESSORS: Final = 132
#: Largest number of rows for tiles with threads that only load. With more rows, an operand is read too often.
FEW_ROWS: Final = 16
#: Schedulers, lanes, threads, registers and bytes of shared memory of a multiprocessor.
_SCHEDULERS, _LANES, _THREADS, _REGISTERS, _SHARED = 4, 128, 2048, 65536, 227 << 10
#: Cycles from an operation to the next one that needs its result.
_LATENCY = 4
#: Cycles that a warp waits for shared memory in each term, unless other warps have work meanwhile.
_WAIT = 6
#: Instructions of a thread: to load, convert, measure and store an element; for a chunk's barrier, choice of loop and
#: branches;
#: for an output's rounding and store; to find a tile and start it.
_ELEMENT, _CHUNK, _OUTPUT, _START = 6, 110, 14, 600
#: Cycles until the first of several chunks in the pipeline has passed through two places in shared memory.
_FILL = 1500
#: Index among a kernel's tiles of the one to use, whatever it costs (the last one where there are fewer). ``None``
#: means the cheapest. It is read whenever a kernel is chosen, so that tests can use tiles of large products for small
#: ones.
_asked: int | None = None


@dataclass(frozen=True)
class Tile:
    """The outputs of a block: each of ``down`` x ``across`` threads has ``rows`` x ``cols`` of them.

    ``depth``: terms of a chunk in shared memory. ``loaders``: additional threads that only load, with ``stages`` chunks
    in the pipeline to them. ``copied``: chunks have the same layout in shared memory as in global memory.
    """

    rows: int
    cols: int
    down: int = 16
    across: int = 16
    depth: int = 16
    loaders: int = 0
    stages: int = 0
    copied: bool = False

    @property
    def height(self) -> int:
        return self.rows * self.down

    @property
    def width(self) -> int:
        return self.cols * self.across

    @property
    def threads(self) -> int:
        return self.down * self.across + self.loaders

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


@dataclass(frozen=True)
class Problem:
    """A batch of products (``m``, ``k``) by (``k``, ``n``), on a GPU with ``multiprocessors`` multiprocessors.

    ``slots``: instructions of a product, without loads.
    """

    m: int
    n: int
    k: int
    batches: int = 1
    slots: float = 3.0
    multiprocessors: int = MULTIPROCESSORS

    def tiles(self, tile: Tile) -> int:
        return self.batches * -(-self.m // tile.height) * -(-self.n // tile.width)


def _resident(tile: Tile) -> int:
    """Return the number of blocks that run at once on a multiprocessor.

    Accumulators, operands and addresses take registers.
    """
    outputs = tile.rows * tile.cols
    registers = min(255, 40 + 3 * outputs // 2 + 2 * (tile.rows + tile.cols))
    shared = 4 * tile.depth * (2 * (tile.height + tile.width + 8) + tile.stages * tile.width)  # of floats
    return max(1, min(_THREADS // tile.threads, _REGISTERS // (tile.threads * registers), _SHARED // shared))


def _at_once(tile: Tile, problem: Problem, blocks: int) -> float:
    """Return the cycles in which a multiprocessor computes ``blocks`` tiles that run at once."""
    if not blocks:
        return 0.0
    outputs = tile.rows * tile.cols
    reads = -(-tile.rows // 4) - (-tile.cols // 4)
    elements = (tile.height + tile.width) * tile.depth / tile.threads
    term = outputs * problem.slots + reads + (_ELEMENT * elements + _CHUNK) / tile.depth
    if tile.loaders:  # threads that load do not wait for threads that compute
        term = outputs * problem.slots + reads + _CHUNK / tile.depth
        elements = (tile.height + tile.width) * blocks / _LANES  # elements of a term, for each lane
        each = max(ceil(blocks * tile.down * tile.across / 128) * term + _ELEMENT * elements, _LATENCY * problem.slots)
        warps = ceil(blocks * tile.down * tile.across / 128)
    else:
        warps = ceil(blocks * tile.threads / 32 / _SCHEDULERS)
        each = max(warps * term, term + _WAIT, _LATENCY * problem.slots + _WAIT)
    terms = -(-problem.k // tile.depth) * tile.depth
    return terms * each + warps * (_START + _OUTPUT * outputs) + (_FILL if tile.loaders else 0)


def cycles(tile: Tile, problem: Problem) -> float:
    """Return the computed cycles of the multiprocessor with the most tiles. Tiles that do not fit at once run in
    sequence.
    """
    most, resident = ceil(problem.tiles(tile) / problem.multiprocessors), _resident(tile)
    rounds, rest = divmod(most, resident)
    return rounds * _at_once(tile, problem, resident) + _at_once(tile, problem, rest)


def cheapest(tiles: Sequence[Tile], problem: Problem) -> Tile:
    """Return the tile with the fewest ``cycles``, the first one of several; or the one that a test requires."""
    if _asked is not None:
        return tiles[min(_asked, len(tiles) - 1)]
    fitting = [tile for tile in tiles if not tile.loaders or problem.m <= FEW_ROWS]
    return min(fitting, key=lambda tile: cycles(tile, problem))


@lru_cache(maxsize=64)
def _multiprocessors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def multiprocessors_of(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; ``MULTIPROCESSORS`` for any other device."""
    if device.type != "cuda":
        return MULTIPROCESSORS
    return _multiprocessors(torch.cuda.current_device() if device.index is None else device.index)
