"""Prepares the part of a call that depends only on the spec, and decides which specs the CPU backend supports."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.lowering.accumulators import programs
from gemmsim.lowering.program import Program
from gemmsim.lowering.refusal import Refusal
from gemmsim.lowering.supported import refuses as lowering_refuses

from .ctypes_programs import member_record, permutation, schedule_record
from .ctypes_structs import GemmSpecPart, MemberRecord, cast_record
from .shared_library import library

__all__ = ["Prepared", "prepare", "refuses"]


@dataclass(frozen=True)
class Prepared:
    """The packed end of GemmArgs, the function that takes GemmArgs, and the objects that the arguments point to."""

    part: bytes
    call: Callable[[bytes], int]
    programs: tuple[Program, ...]
    #: The records of a palette's members; None for other accumulators.
    members: ctypes.Array[MemberRecord] | None
    #: Where an addend enters.
    init: str
    #: Whether it includes a permutation or a schedule, which depend on the call's K.
    shuffles: bool
    #: Whether operands are in block formats, so that callers must pass their values or elements instead.
    has_blocks: bool = False

    def of(self, k: int) -> tuple[bytes, object]:
        """Return the bytes for this K, and the objects that must outlive their use."""
        orders = [None if p.shuffle is None else permutation(p.shuffle, k) for p in self.programs]
        pointers = [0 if order is None else order.data_ptr() for order in orders]
        if self.members is None:  # before the last field, the single member ends with its permutation and its schedule
            (one,) = self.programs
            made = None if one.scheduled is None else schedule_record(one.scheduled, k)
            ends = struct.pack("@2Q", pointers[0], 0 if made is None else made.address)
            return self.part[:-24] + ends + self.part[-8:], (orders, made)
        members = type(self.members).from_buffer_copy(self.members)
        for member, pointer in zip(members, pointers, strict=True):
            member.permutation = pointer
        return self.part[:-8] + ctypes.addressof(members).to_bytes(8, sys.byteorder), (orders, members)


def refuses(spec: GemmSpec) -> Refusal | None:
    """Return why this backend does not compute ``spec``, or ``None``."""
    return lowering_refuses(spec, "CPU backend")


def prepare(spec: GemmSpec) -> Prepared:
    """Return the spec's part of each call.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason.
        LibraryError: if the library cannot be loaded.
    """
    refusal = refuses(spec)
    if refusal is not None:
        raise UnsupportedSpec(
            f"The CPU backend cannot run {str(spec)!r}: {refusal}. gemmsim.reference computes every spec (slowly)."
        )
    found = programs(spec.accumulator, spec.group)
    assert not isinstance(found, Refusal)
    args = GemmSpecPart()
    # gemm.py applies stochastic operand and output casts in separate passes
    for field, cast in (("cast_a", spec.cast_a), ("cast_b", spec.cast_b), ("cast_out", spec.out)):
        if cast is not None and not cast.is_stochastic:
            setattr(args, field, cast_record(cast))
    args.arithmetic = int(spec.arithmetic == "fp32")
    members = None
    if spec.accumulator.name == "palette":
        members = (MemberRecord * len(found))(*map(member_record, found))
        args.members, args.member_count = ctypes.addressof(members), len(found)
    else:
        args.member = member_record(found[0])
    shuffles = any(one.shuffle is not None or one.scheduled is not None for one in found)
    return Prepared(bytes(args), library().gemmsim_gemm, found, members, found[0].init, shuffles, spec.has_blocks)
