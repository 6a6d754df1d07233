"""The part of a call that only depends on the spec, and which specs there is one for."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.lowering.accumulators import programs
from gemmsim.lowering.program import Program
from gemmsim.lowering.refusal import Refusal
from gemmsim.lowering.supported import refuses as lowering_refuses

from .ctypes_programs import member_record, permutation
from .ctypes_structs import GemmSpecPart, MemberRecord, cast_record

__all__ = ["Prepared", "prepare", "refuses"]


@dataclass(frozen=True)
class Prepared:
    """The end of GemmArgs, packed, and what it points to."""

    part: bytes
    programs: tuple[Program, ...]
    #: Of a palette; else None.
    members: ctypes.Array[MemberRecord] | None
    #: Where an addend enters.
    init: str
    #: Whether a permutation of the call's K is part of it.
    shuffles: bool
    #: Whether operands are in block formats, so that values or elements must come in their place.
    has_blocks: bool = False

    def of(self, k: int) -> tuple[bytes, object]:
        """The bytes for this K, and what must outlive their use."""
        orders = [None if p.shuffle is None else permutation(p.shuffle, k) for p in self.programs]
        pointers = [0 if order is None else order.data_ptr() for order in orders]
        if self.members is None:  # the field before the last is the one member's permutation
            return self.part[:-16] + pointers[0].to_bytes(8, sys.byteorder) + self.part[-8:], orders
        members = type(self.members).from_buffer_copy(self.members)
        for member, pointer in zip(members, pointers, strict=True):
            member.permutation = pointer
        return self.part[:-8] + ctypes.addressof(members).to_bytes(8, sys.byteorder), (orders, members)


def refuses(spec: GemmSpec) -> Refusal | None:
    """Why this backend does not compute ``spec``, or ``None``."""
    return lowering_refuses(spec, "CPU backend")


def prepare(spec: GemmSpec) -> Prepared:
    """The spec's part of each call.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason.
    """
    refusal = refuses(spec)
    if refusal is not None:
        raise UnsupportedSpec(
            f"The CPU backend cannot run {str(spec)!r}: {refusal}. gemmsim.reference computes every spec (slowly)."
        )
    found = programs(spec.accumulator, spec.group)
    assert not isinstance(found, Refusal)
    args = GemmSpecPart()
    # stochastic operand and output casts are passes of their own (gemm.py)
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
    shuffles = any(one.shuffle is not None for one in found)
    return Prepared(bytes(args), found, members, found[0].init, shuffles, spec.has_blocks)
