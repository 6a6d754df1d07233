"""Packs programs into the records that the C library reads."""

from __future__ import annotations

import ctypes
from dataclasses import astuple
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.lowering.abi_constants import INITS
from gemmsim.lowering.program import Program
from gemmsim.lowering.schedule import Schedule, innermost, levels, schedule

from ..permutation import permutation as permutation_of
from .ctypes_structs import HardwareRecord, MemberRecord, RegisterRecord, ScheduleRecord, cast_record

__all__ = ["ScheduleOnCpu", "member_record", "permutation", "schedule_record"]


class ScheduleOnCpu(NamedTuple):
    """The record of a schedule, its address, and the objects that it points to."""

    record: ScheduleRecord
    address: int
    keeps: Schedule


def member_record(found: Program) -> MemberRecord:
    """Return the record of a program without its permutation, which depends on K and comes with the call."""
    record = MemberRecord(
        fused=int(found.mul is None),
        init=INITS[found.init],
        add=cast_record(found.add),
        method=found.method,
        integer=RegisterRecord(*astuple(found.register)),
        wrapper_count=len(found.wrappers),
    )
    if found.mul is not None:
        record.mul = cast_record(found.mul)
    for place, wrapper in zip(record.wrappers, found.wrappers, strict=False):
        place.order, place.pairs, place.n = wrapper.order, int(wrapper.pairs), wrapper.n
        if wrapper.cast is not None:
            place.cast = cast_record(wrapper.cast)
    if found.hardware is not None:
        record.hardware = HardwareRecord(*astuple(found.hardware))
    return record


@lru_cache(maxsize=64)
def schedule_record(scheduled: Accumulator, k: int) -> ScheduleOnCpu:
    """Return the record of the schedule of ``scheduled`` for ``k`` terms."""
    found = schedule(scheduled, k)
    ops, _ = found.operations.buffer_info()
    terms = 0 if found.terms is None else found.terms.buffer_info()[0]
    count = len(found.operations) // 4
    deep = levels(scheduled, innermost(scheduled))
    record = ScheduleRecord(ops, count, terms, found.depth, found.longest, found.shortest, deep)
    return ScheduleOnCpu(record, ctypes.addressof(record), found)


@lru_cache(maxsize=16)
def permutation(shuffle: Shuffled, k: int) -> Tensor:
    """Return the original index of the term at each position, as the library reads it; int64 (k,)."""
    return permutation_of(shuffle.seed, k, torch.device("cpu"))
