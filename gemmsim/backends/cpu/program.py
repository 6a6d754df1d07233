"""Accumulators as the library runs them: runs of terms inside wrappers that say which totals meet in which order."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

from gemmsim.arithmetic import Accumulator, Palette, Sequential
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.compensated import Compensated, FastTwoSum, Kahan, Neumaier, TwoSum
from gemmsim.arithmetic.exact_sum import Binned, Exact
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.arithmetic.integer import Fixed, Integer
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.formats import Cast
from gemmsim.hardware import FlooredSum, FmaChain, FusedBlock, PairwiseTree, ScaledGroups

from .params import cast_record
from .records import MAX_WRAPPERS, HardwareRecord, MemberRecord, RegisterRecord

__all__ = [
    "FIXED",
    "INTEGER",
    "MAX_WRAPPERS",
    "Program",
    "Wrapped",
    "member_record",
    "permutation",
    "program",
    "programs",
]

#: gemmsim::Order in cutlass_kernels/cpu/tile.h.
CHUNKED, PAIRWISE, INTERLEAVED, SPLITK, SHUFFLED = 1, 2, 3, 4, 5
#: gemmsim::SCALED in scales.h.
SCALED = 6

#: gemmsim::Method there.
_METHODS: dict[type[Accumulator], int] = {Kahan: 1, Neumaier: 2, TwoSum: 3, FastTwoSum: 4}

LONG, INTEGER, FIXED, HARDWARE, BINNED = 5, 6, 7, 8, 9
_LEAVES = (Sequential, Compensated, Exact, Binned, Integer, Fixed, Hardware)
#: gemmsim::HardwareKind of a chain of fused multiply-adds there.
FMA_CHAIN = 5
#: gemmsim::HardwareOut there.
_OUTS = {"rz23": 0, "e8m13": 1, "rne10": 2, "rne23": 3}

#: gemmsim::Init in cutlass_kernels/cpu/member.h.
_INITS = ("zero", "c_first", "c_last")


@dataclass(frozen=True)
class Wrapped:
    """One wrapper: which order, its size, the rounding of each combination (none for a permutation)."""

    order: int
    n: int
    cast: Cast | None
    pairs: bool = False


@dataclass(frozen=True)
class Program:
    """Wrappers from the outside in; method and roundings of the runs; the permutation, if any."""

    wrappers: tuple[Wrapped, ...]
    method: int
    add: Cast
    mul: Cast | None
    init: str
    shuffle: Shuffled | None
    #: gemmsim::Register there; of BINNED the first number is the carry.
    register: tuple[int, int, int, int, int, int] = (1, 0, 0, 1, 0, 0)
    hardware: HardwareRecord | None = None


def programs(accumulator: Accumulator, group: int | None = None) -> tuple[Program, ...] | str:
    """The programs of a palette's members, or the one of any other accumulator; or why this backend has none.

    ``group``: terms that share a pair of scales, where the accumulator takes them apart.
    """
    found = []
    for member in accumulator.members if isinstance(accumulator, Palette) else (accumulator,):
        one = program(member, group)
        if isinstance(one, str):
            return one
        found.append(one)
    return tuple(found)


def program(accumulator: Accumulator, group: int | None = None) -> Program | str:
    """The program of ``accumulator``, or why this backend has none."""
    wrappers: list[Wrapped] = []
    shuffle: Shuffled | None = None
    while not isinstance(accumulator, _LEAVES):
        if isinstance(accumulator, (Chunked, Promote)):
            wrappers.append(Wrapped(CHUNKED, accumulator.n, accumulator.add_cast))
        elif isinstance(accumulator, Scaled):
            assert group is not None
            wrappers.append(Wrapped(SCALED, group, accumulator.outer))
        elif isinstance(accumulator, Pairwise):
            wrappers.append(Wrapped(PAIRWISE, accumulator.leaf, accumulator.add_cast))
        elif isinstance(accumulator, Interleaved):
            cast, pairs = accumulator.add_cast, accumulator.combine == "pairwise"
            wrappers.append(Wrapped(INTERLEAVED, accumulator.lanes, cast, pairs))
        elif isinstance(accumulator, SplitK):
            wrappers.append(Wrapped(SPLITK, accumulator.slices, accumulator.reduce))
        elif isinstance(accumulator, Shuffled):
            if wrappers or shuffle is not None:
                return f"{accumulator} inside another accumulator: a permutation comes outermost and once here"
            shuffle = accumulator
            wrappers.append(Wrapped(SHUFFLED, 0, None))
        else:
            return f"accumulator {accumulator} is not made of sequential runs"
        accumulator = accumulator.inner
    if len(wrappers) > MAX_WRAPPERS:
        return f"{len(wrappers)} nested orders: at most {MAX_WRAPPERS} here"
    if isinstance(accumulator, Hardware):
        add, record = accumulator.add_cast, _hardware(accumulator)
        method = 0 if record.kind == FMA_CHAIN else HARDWARE
        return Program(tuple(wrappers), method, add, None, "zero", shuffle, hardware=record)
    if isinstance(accumulator, Exact):
        return Program(tuple(wrappers), LONG, accumulator.out, None, "zero", shuffle)
    if isinstance(accumulator, Binned):
        register = (accumulator.carry, 0, 0, 1, 0, 0)
        return Program(tuple(wrappers), BINNED, accumulator.out, None, "zero", shuffle, register)
    if isinstance(accumulator, Integer):
        saturate, at_end = int(accumulator.overflow == "saturate"), int(accumulator.when == "end")
        register = (accumulator.P, saturate, at_end, int(accumulator.signed), accumulator.shift, 0)
        return Program(tuple(wrappers), INTEGER, accumulator.add_cast, None, "zero", shuffle, register)
    if isinstance(accumulator, Fixed):
        register = (accumulator.P, int(accumulator.overflow == "saturate"), 0, 1, 0, accumulator.frac)
        mul = accumulator.product_cast
        return Program(tuple(wrappers), FIXED, accumulator.add_cast, mul, "zero", shuffle, register)
    if isinstance(accumulator, Sequential):
        return Program(tuple(wrappers), 0, accumulator.add, accumulator.mul, accumulator.init, shuffle)
    return Program(tuple(wrappers), _METHODS[type(accumulator)], accumulator.fmt, accumulator.mul, "zero", shuffle)


def member_record(found: Program) -> MemberRecord:
    """The record of a program; the permutation belongs to a K and comes with the call."""
    record = MemberRecord(
        fused=int(found.mul is None),
        init=_INITS.index(found.init),
        add=cast_record(found.add),
        method=found.method,
        integer=RegisterRecord(*found.register),
        wrapper_count=len(found.wrappers),
    )
    if found.mul is not None:
        record.mul = cast_record(found.mul)
    for place, wrapper in zip(record.wrappers, found.wrappers, strict=False):
        place.order, place.pairs, place.n = wrapper.order, int(wrapper.pairs), wrapper.n
        if wrapper.cast is not None:
            place.cast = cast_record(wrapper.cast)
    if found.hardware is not None:
        record.hardware = found.hardware
    return record


def _hardware(accumulator: Hardware) -> HardwareRecord:
    """gemmsim::HardwareModel there."""
    one = accumulator.instruction
    model = one.model
    if isinstance(model, FmaChain):
        return HardwareRecord(kind=FMA_CHAIN, products=1, k=one.k)
    a, b = one.operands[:2]
    record = HardwareRecord(products=model.products, out=_OUTS[model.out], k=one.k, window=-1)
    record.a_emin, record.b_emin = a.storage.emin, b.storage.emin
    if isinstance(model, FusedBlock):
        record.kind, record.kept = 1, model.kept
    if isinstance(model, ScaledGroups):
        record.kind, record.group = 2, model.group
    elif isinstance(model, PairwiseTree):
        record.kind, record.flush = 3, int(model.flush)
    elif isinstance(model, FlooredSum):
        record.kind, record.kept, record.halves = 4, model.kept, int(model.halves)
        record.total_bits, record.addend_bits = model.total_bits, model.addend_bits
        record.window = -1 if model.window is None else model.window
    return record


@lru_cache(maxsize=64)
def permutation(shuffle: Shuffled, k: int) -> ctypes.Array[ctypes.c_int64]:
    """Original index of the term at each position, as the library reads it."""
    return (ctypes.c_int64 * k)(*shuffle.order(k))
