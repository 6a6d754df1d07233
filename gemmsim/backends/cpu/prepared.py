"""The part of a call that only depends on the spec, and which specs there is one for."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import Cast, CodebookFormat, FixedFormat, FloatFormat
from gemmsim.formats.errors import shown

from .params import cast_record
from .program import FIXED, Program, member_record, permutation, programs
from .records import GemmSpecPart, MemberRecord

__all__ = ["Prepared", "prepare", "supported"]


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
        pointers = [0 if order is None else ctypes.addressof(order) for order in orders]
        if self.members is None:  # the field before the last is the one member's permutation
            return self.part[:-16] + pointers[0].to_bytes(8, sys.byteorder) + self.part[-8:], orders
        members = type(self.members).from_buffer_copy(self.members)
        for member, pointer in zip(members, pointers, strict=True):
            member.permutation = pointer
        return self.part[:-8] + ctypes.addressof(members).to_bytes(8, sys.byteorder), (orders, members)


def _cast_reason(role: str, cast: Cast, register: bool) -> str | None:
    fmt = cast.format
    if isinstance(fmt, CodebookFormat):
        return f"{role} {shown(str(cast))}: a list of values, which is looked up outside the kernels"
    if isinstance(fmt, FloatFormat) and not fmt.fits_float64:
        return f"{role} {cast}: its values do not fit float64, the widest carrier of the CPU backend"
    if isinstance(fmt, FixedFormat) and not fmt.clamp and register:
        return f"{role} {cast}: a register needs bounds; give it bits, fixed(bits,frac) with bits <= 53"
    return None


def _fp32_reason(role: str, cast: Cast) -> str | None:
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and (fmt.p > 24 or fmt.emin < -126 or fmt.emax > 127):
        return f'{role} {cast} is wider than fp32, which arithmetic="fp32" computes in; use arithmetic="exact"'
    return None


def supported(spec: GemmSpec) -> str | None:
    """None if this backend computes ``spec``, else the reason why not."""
    found = programs(spec.accumulator, spec.group)
    if isinstance(found, str):
        return found
    roles: list[tuple[str, Cast | None, bool]] = [
        ("operand a", spec.cast_a, False),
        ("operand b", spec.cast_b, False),
        ("output", spec.out, False),
    ]
    for one in found:
        roles += [("product", one.mul, one.method != FIXED), ("accumulator", one.add, True)]
        roles += [("totals", wrapper.cast, True) for wrapper in one.wrappers]
    for role, cast, register in roles:
        if cast is None:
            continue
        reason = _cast_reason(role, cast, register)
        if reason is None and spec.arithmetic == "fp32" and register:
            reason = _fp32_reason(role, cast)
        if reason is not None:
            return reason
    return None


def prepare(spec: GemmSpec) -> Prepared:
    """The spec's part of each call.

    Raises:
        UnsupportedSpec: if ``supported(spec)`` gives a reason.
    """
    reason = supported(spec)
    if reason is not None:
        raise UnsupportedSpec(
            f"The CPU backend cannot run {str(spec)!r}: {reason}. gemmsim.reference computes every spec (slowly)."
        )
    found = programs(spec.accumulator, spec.group)
    assert not isinstance(found, str)
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
