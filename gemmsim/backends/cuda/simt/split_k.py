"""Products of few rows whose K is split over blocks: where an order lets totals meet later, and into how many slices.

A chain of additions is what such a product takes, however wide the GPU is. Orders that say how totals of runs meet
(``chunked``, ``splitk``, ``interleaved``, ``pairwise``) leave each run to a block of its own, with the same bits; a
second kernel adds the totals (split_k.h, split_k_reduce.h). A sequential register has one run. Exact sums
have no order at all: any terms make a slice, and blocks leave sums that are not rounded yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.lowering.orders import Order, lengths
from gemmsim.lowering.program import Program

from ...dtypes import KERNEL_DTYPES
from ..jit.source import KernelSource
from .gemm_operands import Operands, program_of
from .gemm_source import GemmKernel, carrier_bytes, gemm_config, gemm_source, kernel_name, part_bytes
from .tile_heuristic import Problem, Tile

__all__ = ["Slices", "join_source", "part_source", "slices_of"]

#: gemmsim::SplitOf.
_PART, _JOIN = 1, 2
_ORDERS: Final = (Order.CHUNKED, Order.SPLITK, Order.INTERLEAVED, Order.PAIRWISE)
#: Blocks of few rows that a multiprocessor holds at once: 100 KB of shared memory each.
_AT_ONCE: Final = 2
#: Fewest terms of a slice, two chunks: what starts a block costs as much as that.
_FEWEST: Final = 256
#: A block of the kernel that joins totals.
_JOINING: Final = Tile(1, 1, 1, 128, 1)


@dataclass(frozen=True)
class Slices:
    """``count`` slices of ``each`` runs, or terms of an exact sum (the last one of fewer), whose totals take
    ``total_bytes`` for an output."""

    each: int
    count: int
    total_bytes: int


def _splits(what: Program) -> bool:
    """Whether totals of runs meet as one order says: one wrapper, whose runs have none."""
    return len(what.wrappers) == 1 and what.wrappers[0].order in _ORDERS


@lru_cache(maxsize=4096)
def slices_of(
    spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile, problem: Problem
) -> Slices | None:
    """How K is split for ``tile``, or None where one block does better: with enough tiles, with too few terms, or where
    totals take more than half of the memory that ``b`` does."""
    what = program_of(accumulator, operands.group)
    if not tile.loaders or problem.k == 0 or operands.count or operands.watch:
        return None
    most = min(_AT_ONCE * problem.multiprocessors // max(problem.tiles(tile), 1), problem.k // _FEWEST)
    part = part_bytes(spec, what, operands)
    if part is not None:
        return _slices_of_sum(most, part, operands, tile, problem)
    if not _splits(what):
        return None
    order = what.wrappers[0]
    runs = sum(count for count, size in lengths(order.order, order.n, problem.k) if size)
    most = min(most, runs)
    totals = runs * carrier_bytes(spec, what, operands)
    if most < 2 or 2 * totals * problem.m > problem.k * KERNEL_DTYPES[operands.b].bytes:
        return None
    each = -(-runs // most)
    return Slices(each, -(-runs // each), totals)


def _slices_of_sum(most: int, part: int, operands: Operands, tile: Tile, problem: Problem) -> Slices | None:
    """Of an exact sum: at most ``most`` slices, of whole chunks, whose parts of ``part`` bytes are as few as totals."""
    most = min(most, problem.k * KERNEL_DTYPES[operands.b].bytes // (2 * part * max(problem.m, 1)))
    if most < 2:
        return None
    each = -(-problem.k // (most * tile.depth)) * tile.depth
    count = -(-problem.k // each)
    return Slices(each, count, count * part) if count > 1 else None


@lru_cache(maxsize=4096)
def part_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile) -> GemmKernel:
    """The kernel with ``tile`` that writes the total of each run of ``accumulator``, or its part of an exact sum,
    instead of the product."""
    plain = replace(operands, out=torch.float32, finish=None)
    return gemm_source(replace(spec, out=None), accumulator, plain, tile, _PART)


@lru_cache(maxsize=4096)
def join_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> GemmKernel:
    """The kernel that makes the product of these totals."""
    what = program_of(accumulator, operands.group)
    config, part = gemm_config(spec, what, operands, _JOINING, _JOIN), part_bytes(spec, what, operands)
    same = "" if part is None else f"static_assert(sizeof(gemmsim::RunOf<kConfig>::type::Part) == {part});\n"
    text = (
        '#include "gemm/simt/split_k_reduce.h"\n'
        f"constexpr gemmsim::GemmConfig kConfig{config};\n{same}"
        f'extern "C" __global__ void __launch_bounds__({_JOINING.threads}) '
        "gemmsim_kernel(const gemmsim::GemmArgs args) {\n"
        "    gemmsim::join_body<kConfig>(args, (int)threadIdx.x, blockIdx.x, gridDim.x);\n"
        "}\n"
    )
    name = f"joined {kernel_name(spec, accumulator, operands, _JOINING)}"
    source = KernelSource("gemm", name, text, _JOINING.threads, hot="loop")
    return GemmKernel(source, _JOINING.height, _JOINING.width)
