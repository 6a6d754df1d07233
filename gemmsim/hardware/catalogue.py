"""Looking instructions up: by name, by what they do, or all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ..formats import parse_scalar
from ..formats.errors import shown, suggestion
from . import amd, nvidia
from .chips import CHIPS, chip_key, no_model_words, without_model
from .errors import HardwareError, hardware_error
from .instruction import Family, Instruction
from .operands import OPERANDS, operand_for, twin_of

__all__ = ["ARCHITECTURES", "OPS", "Op", "families", "instruction", "instructions", "largest"]

FAMILIES: tuple[Family, ...] = (*nvidia.FAMILIES, *amd.FAMILIES)
#: Oldest first, per vendor.
ARCHITECTURES: tuple[str, ...] = tuple(dict.fromkeys(family.arch for family in FAMILIES))


@dataclass(frozen=True)
class Op:
    """The rows of the tables that an op covers: those of these units, scale format and block.

    Without a scale format and block (None), the rows without scales.

    kind: only the rows of that kind; None for all.

    Example:
        >>> gs.hardware.OPS["mxf4nvf4"].scale, gs.hardware.OPS["mxf4nvf4"].block
        ('ue4m3', 16)
    """

    units: tuple[str, ...]
    scale: str | None = None
    block: int | None = None
    kind: str | None = None

    def takes_in(self, one: Family | Instruction) -> bool:
        """Whether ``one`` belongs to this op.

        Example:
            >>> gs.hardware.OPS["wgmma"].takes_in(gs.hardware.largest("hopper", "wgmma", "fp16"))
            True
        """
        fits = self.kind is None or self.kind == one.kind
        return one.unit in self.units and (one.scale, one.block) == (self.scale, self.block) and fits


_SCALED = ("mma_block_scale", "tcgen05mma_block_scale")
#: Short words for the units, as accumulators and the command line name them; kinds as PTX names them. Kind mxf4nvf4
#: has several scales and blocks, of which this is the default.
OPS: dict[str, Op] = {
    "mma": Op(("mma",)),
    "wgmma": Op(("wgmma",)),
    "tcgen05": Op(("tcgen05mma",)),
    "f8f6f4": Op(("mma", "tcgen05mma"), kind="f8f6f4"),
    "mxf8f6f4": Op(_SCALED, "ue8m0", 32, "mxf8f6f4"),
    "mxf4": Op(_SCALED, "ue8m0", 32, "mxf4"),
    "mxf4nvf4": Op(_SCALED, "ue4m3", 16, "mxf4nvf4"),
    "mfma": Op(("mfma",)),
}


def _architecture(arch: str) -> str:
    """``arch`` as the tables spell it; capitals, blanks, "Ada Lovelace" and names of chips are understood."""
    if not isinstance(arch, str):
        raise TypeError(f"arch must be a string, not {type(arch).__name__}")
    key = chip_key(arch)
    key = CHIPS.get(key, key)
    if key in ARCHITECTURES:
        return key
    unknown = without_model(arch)
    if unknown is None:
        begun = [name for name in CHIPS if key in name][:3] if len(key) > 1 else []
        near = suggestion(key, begun or [*ARCHITECTURES, *CHIPS])
        asked = f"architecture {shown(arch)} is not known. {near}"
    else:
        asked = f"architecture {shown(arch)} is not known: {no_model_words(*unknown)}. "
    chips = ", ".join(next(chip for chip, of in CHIPS.items() if of == one) for one in ARCHITECTURES)
    raise HardwareError(
        f"{asked}Architectures allowed: {', '.join(ARCHITECTURES)}, or a chip of these ({chips}, ...; all: "
        "gemmsim.hardware.CHIPS).\n"
        "  For a chip of your own use fused(n, kept, out), such as 'bf16 : fused(16, 25, fp32/rtz)': a step adds n "
        "products and the accumulator, each truncated kept bits below the largest, and rounds to out."
    )


def families(arch: str | None = None) -> tuple[Family, ...]:
    """The rows of the tables, of one architecture or all. ``HardwareError`` for an unknown architecture.

    Example:
        >>> [(one.unit, one.operands) for one in gs.hardware.families("volta")]
        [('mma', (('f16', 'f16'),))]
    """
    if arch is None:
        return FAMILIES
    key = _architecture(arch)
    return tuple(family for family in FAMILIES if family.arch == key)


@lru_cache(maxsize=1)
def _by_name() -> dict[tuple[str, str], Instruction]:
    table: dict[tuple[str, str], Instruction] = {}
    for family in FAMILIES:
        for one in family.instructions():
            assert (one.arch, one.name) not in table, f"two rows for {one.arch} {one.name}"
            table[one.arch, one.name] = one
    return table


@lru_cache(maxsize=1)
def _without_kind() -> dict[tuple[str, str], Instruction]:
    """By names that leave the kind out: the first row that has one."""
    table: dict[tuple[str, str], Instruction] = {}
    for one in _by_name().values():
        table.setdefault((one.arch, _KIND.sub("", one.name)), one)
    return table


def instructions(arch: str | None = None) -> tuple[Instruction, ...]:
    """All instructions, of one architecture or all. ``HardwareError`` for an unknown architecture.

    Example:
        >>> [one.name for one in gs.hardware.instructions("volta")]
        ['mma.m8n8k4.f32.f16.f16.f32', 'mma.m8n8k4.f16.f16.f16.f16', 'mma.m8n8k4.f32.f16.f16.f16']
    """
    key = None if arch is None else _architecture(arch)
    return tuple(one for one in _by_name().values() if key in (None, one.arch))


_KIND = re.compile(r"\.kind::\w+")
#: m and n of these say nothing about the arithmetic, and they come in many.
_FREE_SHAPE = re.compile(r"^(wgmma|tcgen05mma(?:_block_scale)?)\.m(?:64|128|256)n\d+k")


def instruction(arch: str, name: str) -> Instruction:
    """The instruction ``name`` of ``arch``, such as ``("hopper", "wgmma.m64n8k16.f32.bf16.bf16")``.

    m and n of wgmma and tcgen05 names are free. Without ``.kind::...`` the name means the first such row.

    Raises:
        HardwareError: for other architectures and names; the message suggests the nearest ones.
        TypeError: for a name that is not a string.

    Example:
        >>> found = gs.hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3")
        >>> found.k, found.model.kept, found.source.chips  # 13 fraction bits are kept
        (32, 13, ('H100', 'H200'))
    """
    key = _architecture(arch)
    if not isinstance(name, str):
        raise TypeError(f"instruction must be a string, not {type(name).__name__}")
    text = name.strip().lower()
    if match := _FREE_SHAPE.match(text):
        m = 128 if match[1].endswith("_block_scale") else 64
        text = f"{match[1]}.m{m}n8k{text[match.end() :]}"
    found = _by_name().get((key, text)) or _without_kind().get((key, text))
    if found is not None:
        return found
    raise _no_instruction(key, name)


def _no_instruction(arch: str, name: str) -> HardwareError:
    names = [one.name for one in instructions(arch)]
    elsewhere = [one.arch for one in instructions() if one.name == name.strip().lower()]
    near = suggestion(name.strip().lower(), names)
    if elsewhere:
        near += f"{', '.join(elsewhere)} {'has' if len(elsewhere) == 1 else 'have'} it. "
    units = ", ".join(dict.fromkeys(one.unit for one in instructions(arch)))
    return hardware_error(
        f"{arch} has no instruction {shown(name)} in the tables",
        f"{len(names)} instructions of {units}",
        f"{near}List them with gemmsim.hardware.instructions({arch!r}).",
    )


def largest(arch: str, op: str, a: object, b: object = None, *, out: object = "f32") -> Instruction:
    """The instruction with the largest K of ``op`` for these formats.

    op: mma, wgmma, tcgen05, mfma, or a kind: f8f6f4, or a block-scaled one: mxf8f6f4 and mxf4 (one ue8m0 scale for 32
    elements), mxf4nvf4 (one ue4m3 for 16). a, b, out: names (ours or the vendors') or formats; b defaults to a; out is
    the format of C and D. If several instructions have that K (AMD), the result is the one with most products per step,
    then the first one in the tables.

    Raises:
        HardwareError: if there is none; the message says what the op takes.
        FormatError: if a format does not exist.

    Example:
        >>> gs.hardware.largest("ampere", "mma", "bf16").name
        'mma.m16n8k16.f32.bf16.bf16.f32'
    """
    key = _architecture(arch)
    word = op.strip().lower() if isinstance(op, str) else op
    if word not in _ops(key):
        raise _no_op(key, op)
    rows = _rows(key, word)
    sides = tuple(dict.fromkeys(name for one in rows for name in (one.a, one.b)))
    pair = tuple(_operand(key, word, x, sides) for x in (a, b or a))
    register = operand_for(out, tuple(dict.fromkeys(one.d for one in rows)), f"a register of {key} {word}")
    fits = [one for one in rows if (one.a, one.b) == pair and one.d == register]
    if not fits:
        taken = dict.fromkeys(f"{one.a} * {one.b} + {one.c} -> {one.d}" for one in rows)
        raise hardware_error(
            f"{key} {word} does not take {pair[0]} * {pair[1]} -> {register}", "; ".join(taken), "Choose one of these."
        )
    return max(fits, key=lambda one: (one.k, one.model.products))


def _ops(arch: str) -> tuple[str, ...]:
    """The ops of ``arch``, an architecture as the tables spell it."""
    return tuple(name for name, one in OPS.items() if any(map(one.takes_in, families(arch))))


def _rows(arch: str, op: str) -> list[Instruction]:
    return [one for one in instructions(arch) if OPS[op].takes_in(one) and one.c == one.d]


def _no_op(arch: str, op: object) -> HardwareError:
    """It tells ops of like names, and the architectures that have this one."""
    word = op.strip().lower() if isinstance(op, str) else ""
    owners = [one for one in ARCHITECTURES if one != arch and word in _ops(one)]
    near = f"{', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it. " if owners else ""
    return hardware_error(
        f"{arch} has no op {shown(op)}", ", ".join(_ops(arch)), f"{near or suggestion(word, _ops(arch))}Choose one."
    )


def _operand(arch: str, op: str, format: object, known: tuple[str, ...]) -> str:
    """``operand_for``, whose error tells what stands for the format on this chip, and which ops and chips take it.

    Of ops and architectures that take it, those of the same chip and of the same vendor's come first.
    """
    owner = f"{arch} {op}"
    try:
        return operand_for(format, known, owner)
    except HardwareError:
        pass
    twin = twin_of(format)
    if twin in known:
        held = OPERANDS[twin].format
        hint = f"{twin}, whose largest value is {held.max:g}, stands in its place there."
    else:
        hint = _takers(arch, format)
    return operand_for(format, known, owner, f"{hint} Choose one of these.".lstrip())


def _takers(arch: str, format: object) -> str:
    """Which other ops of ``arch`` take operands in ``format``, or else which architectures; "" if none."""
    here = [op for op in _ops(arch) if _takes(_rows(arch, op), format)]
    if here:
        return f"Of {arch}'s ops {', '.join(here)} {'takes' if len(here) == 1 else 'take'} it."
    found = [one for one in ARCHITECTURES if any(_takes(_rows(one, op), format) for op in _ops(one))]
    return f"Architectures that take it: {', '.join(found)}." if found else ""


def _takes(rows: Iterable[Instruction], format: object) -> bool:
    name = format.strip().lower() if isinstance(format, str) else ""
    values = parse_scalar(format) if isinstance(format, str) and name not in OPERANDS else format
    return any(name in (one.a, one.b) or OPERANDS[one.a].format == values for one in rows)
