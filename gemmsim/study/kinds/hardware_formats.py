"""Which operand formats an instruction takes, and what to write where chips take different ones."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import gemmsim as gs
from gemmsim import hardware
from gemmsim.formats import FloatFormat, FormatError

from ..errors import StudyError
from ..operands import Placement

__all__ = ["Asked", "refused"]


class Asked(NamedTuple):
    """An entry of ``archs`` and the instruction it means; arch is "" for an accumulator.

    head: what stands before ``/format``: "h100/wgmma", "label = hopper/wgmma", or an accumulator whole.
    format: its own format, "" for that of ``dtype``.
    """

    head: str
    arch: str = ""
    op: str = ""
    format: str = ""

    def words(self) -> str:
        """The entry itself."""
        return f"{self.head}/{self.format}" if self.format else self.head

    def formats(self) -> tuple[str, ...]:
        """Operand formats of the op with an f32 register, as instruction names spell them."""
        rows = [one for one in hardware.instructions(self.arch) if hardware.OPS[self.op].takes_in(one)]
        return tuple(dict.fromkeys(one.a for one in rows if one.a == one.b and one.c == one.d == "f32"))

    def takes(self, format: str) -> bool:
        """Whether operands in the format ``format``, if it has none of its own, are what the op takes."""
        if not self.arch:
            return True
        names, given = self.formats(), self.format or format
        return given in names or _parsed(given) in [hardware.OPERANDS[name].format for name in names]

    def instead(self, format: str) -> str | None:
        """What it takes in place of ``format``: what stands for it there, else the narrowest format that holds it."""
        names, own, twin = self.formats(), _values(format), hardware.twin_of(format)
        if twin in names:
            return twin
        wide = (name for name in names if own is not None and _holds(hardware.OPERANDS[name].format, own))
        return min(wide, key=lambda name: hardware.OPERANDS[name].width, default=None)


def refused(entries: Sequence[Asked], dtype: Placement) -> StudyError | None:
    """The error where an instruction does not take its operands' format: which one, what it takes, what to write.

    None where all do. A format that does not exist is left to those who read it.
    """
    wrong = [one for one in entries if not one.takes(dtype.format) and _values(one.format or dtype.format) is not None]
    if not wrong:
        return None
    says = [
        f"{one.head} does not take {one.format or dtype.format}; allowed there: {', '.join(one.formats())}."
        for one in wrong
    ]
    return StudyError("\n".join([*says, f"  {_advice(entries, wrong, dtype)}"]))


def _advice(entries: Sequence[Asked], wrong: Sequence[Asked], dtype: Placement) -> str:
    twin, own = hardware.twin_of(dtype.format) or "", _values(dtype.format)
    other = _values(twin)
    narrower = own is not None and other is not None and other.max < own.max
    if narrower and dtype.scaled != "none":
        # Scaled operands reach the format's largest value, which then has to be the smaller one.
        turned = [one if one.takes(twin) else one._replace(format=dtype.format) for one in entries]
        if all(one.takes(twin) for one in turned):
            command = _command(turned, Placement(twin, dtype.scaled))
            return f"Scale to {twin}, whose largest value is the smaller one: {command}"
    instead = {one: one.instead(one.format or dtype.format) for one in wrong}
    if None in instead.values():
        return "Leave it out, or choose a format that all of them take."
    changed = [one._replace(format=instead[one] or "") if one in instead else one for one in entries]
    beyond = f"\n  Larger values than {other.max:g} are NaN in {twin}." if narrower and other is not None else ""
    return (
        f"Give {'each' if len(wrong) > 1 else 'it'} a format of its own: {_command(changed, dtype)}"
        f"{beyond if twin in instead.values() else ''}"
    )


def _command(entries: Sequence[Asked], dtype: Placement) -> str:
    return f"--dtype {str(dtype).removesuffix('/none')} --archs {shlex.join(one.words() for one in entries)}"


def _parsed(name: str) -> object:
    try:
        return gs.formats.parse_scalar(name)
    except FormatError:
        return None


def _values(name: str) -> FloatFormat | None:
    """The floating-point format of that name, also of those that instructions alone know (xf32)."""
    found = hardware.OPERANDS[name].format if name in hardware.OPERANDS else _parsed(name)
    return found if isinstance(found, FloatFormat) else None


def _holds(wide: FloatFormat, narrow: FloatFormat) -> bool:
    """Whether every finite value of ``narrow`` is one of ``wide``."""
    lowest = wide.quantum_exponent <= narrow.quantum_exponent
    return wide.p >= narrow.p and wide.emax >= narrow.emax and lowest
