"""The tiles for which kernels exist, by the registers of a thread; ``tile_heuristic`` chooses one for a product."""

from __future__ import annotations

from functools import lru_cache, partial

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.formats import FP32, RoundingMode
from gemmsim.lowering.abi_constants import CastFlag, Method
from gemmsim.lowering.carriers import Carrier
from gemmsim.lowering.casts import cast_numbers
from gemmsim.lowering.orders import Order
from gemmsim.lowering.program import Program

from .gemm_operands import ANY_STRIDES, Operands, both_facts, carrier_for, is_packed_run, is_small_run, program_of
from .tile_heuristic import Tile

__all__ = ["DEPTH", "slots_of", "tiles_of"]

#: Number of terms of a chunk (cutlass_kernels/gemm/simt/config.h).
DEPTH = 16
#: Largest number of outputs of a thread in each direction where products are looked up. It is enough to hide a load,
#: and has room for more threads.
_MOST_LOOKED_UP = 4
#: Largest number of outputs of a thread in each direction where events are counted: each has four counts in registers.
#: It is one where partial sums are combined in pairs.
_MOST_COUNTED = 2


def _in_pairs(what: Program) -> bool:
    """Whether a thread has several partial sums of each output."""
    return what.scheduled is not None or any(w.order == Order.PAIRWISE or w.pairs for w in what.wrappers)


def _is_heavy(spec: GemmSpec, what: Program, operands: Operands, carrier: Carrier) -> int:
    """Return the largest number of outputs of a thread in each direction that registers and instruction cache allow."""
    random = [c for c in (what.add, what.mul) if c is not None and c.is_stochastic]
    if is_small_run(spec, what, operands):
        return 8 if carrier == Carrier.FLOAT and not what.wrappers else 4
    if what.method == Method.HARDWARE and not what.wrappers:
        return 2
    if carrier == Carrier.INTEGERS or what.method >= Method.LONG:
        return 1
    if _in_pairs(what):
        return 2 if not random else 1
    if what.method != Method.REGISTER:
        return 1 if random else 4 if carrier == Carrier.FLOAT else 2
    if random:
        return 4 if len(random) == 1 and carrier == Carrier.FLOAT else 2
    if any(w.cast is not None and w.cast.is_stochastic for w in what.wrappers):
        return 2
    if carrier == Carrier.DOUBLE:
        return 4 if len(what.wrappers) <= 1 else 2
    return 8 if not what.wrappers else 4


@lru_cache(maxsize=4096)
def tiles_of(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> tuple[Tile, ...]:
    """Return the tiles for which kernels exist.

    Squares come first, those with the most outputs of a thread before others. Tiles of few rows or columns follow.
    """
    what = program_of(accumulator, operands.group)
    packed, most, depth = is_packed_run(spec, what, operands), _most(spec, what, operands), _depth(what)
    least = 2 if packed else 1  # packed outputs come in pairs
    found = [Tile(n, n, depth=depth) for n in (8, 4, 2, 1) if least <= n <= max(most, least)][:3]
    if most == 8:
        found[0] = _largest(spec, what, operands)
    if most >= 4:
        found.append(Tile(most, least, depth=depth))
    return tuple(found + _few_rows(what, operands, packed, most))


def _few_rows(what: Program, operands: Operands, packed: bool, most: int) -> list[Tile]:
    """Return tiles of 32 columns and few rows, for products with a large K; most threads of a block only load."""
    scaled = operands.scale_a is not None or operands.scale_b is not None
    if what.method == Method.HARDWARE or scaled or operands.gathered or operands.select or operands.table is not None:
        return []
    few = partial(Tile, depth=8 * DEPTH, loaders=128, stages=4)
    if packed:
        return [few(1, 2, 2, 16), few(2, 2, 8, 16)]
    return [few(1, 1, 1, 32), few(min(4, most), 1, 4, 32)]


def _largest(spec: GemmSpec, what: Program, operands: Operands) -> Tile:
    """Return the tile of large products, of 128 threads, so that two blocks fit a multiprocessor.

    A thread has as many outputs as fit its registers together with what its steps need for the operands. With fewer
    outputs, chunks are deep.
    """
    wide = operands.layout_a != ANY_STRIDES and operands.layout_b != ANY_STRIDES
    if _is_copied(spec, what, operands):
        return Tile(8, 16 if _is_narrow(what) else 8, 16, 8, depth=2 * DEPTH, copied=True)
    if is_packed_run(spec, what, operands) or _is_lean(spec, what, operands):
        return Tile(8, 16, 16, 8)
    modes = {cast.rounding.mode for cast in (what.add, what.mul) if cast is not None}
    away, directed = RoundingMode.RNA in modes, bool(modes & {RoundingMode.RU, RoundingMode.RD})
    deep = wide and not operands.gathered and (directed or not away)
    if directed or (away and not wide):  # 64 registers and those of the steps are too many
        return Tile(8, 4, 16, 16, depth=2 * DEPTH if deep else DEPTH)
    return Tile(8, 8, 16, 8, depth=2 * DEPTH if deep else DEPTH)


def _is_copied(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """Whether operands are copied to shared memory unchanged.

    They must be float32 without gaps, which nothing rounds, for a register in float32. There must be no addend, which
    takes as many registers as the outputs.
    """
    if what.method != Method.REGISTER or what.wrappers or operands.gathered or operands.c is not None:
        return False
    if operands.table is not None or operands.events or ANY_STRIDES in (operands.layout_a, operands.layout_b):
        return False
    casts = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b)
    plain = operands.a == operands.b == torch.float32 and casts == (None, None)
    return plain and carrier_for(spec, what, operands) == Carrier.FLOAT


def _is_narrow(what: Program) -> bool:
    """Whether a thread has room for 128 outputs in addition to the registers of its steps.

    This is true for float32 itself. It is also true for nearest registers of at most 11 bits with -0, whose range is
    well inside that of float32.
    """
    if what.mul is not None or what.add.rounding.mode is not RoundingMode.RNE:
        return False
    add = cast_numbers(what.add)
    return what.add.format == FP32 or (add.p <= 11 and add.emin > FP32.emin and add.has(CastFlag.NEG_ZERO))


def _is_lean(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """Whether formats prove that every product is a multiple of the register's quantum, and loads round nothing."""
    if what.method != Method.REGISTER or what.mul is not None or operands.gathered or operands.c is not None:
        return False
    casts = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b)
    if any(cast is not None for cast in casts) or operands.code_a is not None or operands.code_b is not None:
        return False
    add, (a, b) = cast_numbers(what.add), both_facts(spec, operands)
    nearest = what.add.rounding.mode is RoundingMode.RNE and add.p <= 11
    return nearest and a.p + b.p <= 24 and a.quantum + b.quantum >= add.quantum


def _most(spec: GemmSpec, what: Program, operands: Operands) -> int:
    """Return the largest number of outputs of a thread in each direction."""
    most = _is_heavy(spec, what, operands, carrier_for(spec, what, operands))
    if operands.table is not None:
        most = min(most, _MOST_LOOKED_UP)
    if operands.events:
        most = min(most, 1 if _in_pairs(what) else _MOST_COUNTED)
    return most


def _depth(what: Program) -> int:
    """Return the number of terms of a chunk; a chip's instruction takes up to 64 at once."""
    if what.method == Method.HARDWARE and what.hardware is not None:
        return 64 if what.hardware.products > 32 else 32
    return DEPTH


@lru_cache(maxsize=4096)
def slots_of(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> float:
    """Return the approximate number of instructions of a product, for the choice of a tile.

    It is that of the loop for well-behaved numbers.
    """
    what = program_of(accumulator, operands.group)
    if is_packed_run(spec, what, operands):
        return 0.5
    small = is_small_run(spec, what, operands)
    if small and operands.table is None:  # a multiply-add, and two more where each addition saturates
        return 3.0 if what.register.saturate and not what.register.at_end else 1.1
    return 3.0 if (small or what.method == Method.REGISTER) and not operands.events else 20.0
