"""Splits K over blocks for products of few rows: decides where an order allows it, and into how many slices.

The time of such a product is that of a chain of additions, however wide the GPU is. The orders ``chunked``, ``splitk``,
``interleaved`` and ``pairwise`` say how partial sums of segments are combined. So each segment can have a block of its
own, with the same bits; a second kernel combines the partial sums (split_k.h, split_k_reduce.h). A sequential register
has only one segment. Exact sums have no order at all: any terms make a slice, and blocks write sums that are not
rounded yet.
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

#: Enumerators of gemmsim::SplitOf.
_PART, _JOIN = 1, 2
_ORDERS: Final = (Order.CHUNKED, Order.SPLITK, Order.INTERLEAVED, Order.PAIRWISE)
#: Number of blocks of few rows that run at once on a multiprocessor; each has 100 KB of shared memory.
_AT_ONCE: Final = 2
#: Fewest terms of a slice: two chunks, which cost as much as the start of a block.
_FEWEST: Final = 256
#: The tile of the kernel that combines partial sums.
_JOINING: Final = Tile(1, 1, 1, 128, 1)


@dataclass(frozen=True)
class Slices:
    """``count`` slices of ``each`` segments, or terms of an exact sum; the last slice may have fewer.

    Their partial sums take ``total_bytes`` for an output.
    """

    each: int
    count: int
    total_bytes: int


def _splits(what: Program) -> bool:
    """Whether one order combines the partial sums of segments: one wrapper, whose segments have none."""
    return len(what.wrappers) == 1 and what.wrappers[0].order in _ORDERS


@lru_cache(maxsize=4096)
def slices_of(
    spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile, problem: Problem
) -> Slices | None:
    """Return how K is split for ``tile``, or None where one block is better.

    One block is better with enough tiles, with too few terms, or where partial sums take more than half of the memory
    of ``b``.
    """
    what = program_of(accumulator, operands.group)
    if not tile.loaders or problem.k == 0 or operands.count or operands.events:
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
    """Return the slices of an exact sum: at most ``most``, of whole chunks.

    The memory of their parts, ``part`` bytes each, has the same limit as that of partial sums.
    """
    most = min(most, problem.k * KERNEL_DTYPES[operands.b].bytes // (2 * part * max(problem.m, 1)))
    if most < 2:
        return None
    each = -(-problem.k // (most * tile.depth)) * tile.depth
    count = -(-problem.k // each)
    return Slices(each, count, count * part) if count > 1 else None


@lru_cache(maxsize=4096)
def part_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile) -> GemmKernel:
    """Return the kernel with ``tile`` that writes partial sums instead of the product.

    It writes the sum of each segment of ``accumulator``, or its part of an exact sum.
    """
    plain = replace(operands, out=torch.float32, finish=None)
    return gemm_source(replace(spec, out=None), accumulator, plain, tile, _PART)


@lru_cache(maxsize=4096)
def join_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> GemmKernel:
    """Return the kernel that combines these partial sums to the product."""
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
