"""The ladder of registers that a search chooses from: a range, a list, or integer widths, in an order of the sum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gemmsim.arithmetic import Accumulator, GemmSpec, Integer, SpecError, parse_accumulator
from gemmsim.formats import FormatError

from .errors import SearchError, refusal

__all__ = ["LadderLike", "Rung", "read_ladder", "register_bits"]

#: A range or list in one text ("e5m1:e5m10", "e4m3, bf16, fp32"), or a sequence of registers; an int is a width.
LadderLike: TypeAlias = str | Sequence[str | int]

PLACE = "{}"
_ALLOWED = "a range of one number such as 'e5m1:e5m10' or 'int(12):int(24)', or a list such as 'e4m3, bf16, fp32'"
_NUMBER = re.compile(r"\d+")
#: Rungs at most; a ladder is measured rung by rung.
_MOST = 64


@dataclass(frozen=True)
class Rung:
    """One register of the ladder: its text, the spec that it makes in the order of the sum, and its width in bits."""

    register: str
    spec: str
    bits: int


def read_ladder(ladder: LadderLike, order: str) -> tuple[Rung, ...]:
    """The rungs of ``ladder`` in ``order``, the narrowest first; registers of equal width stay in the order given.

    Raises:
        SearchError: for an order without "{}", a ladder that is no range and no list, fewer than two rungs, and
            registers or orders that mean nothing.
    """
    if not isinstance(order, str) or PLACE not in order:
        raise refusal(
            f"order {order!r}",
            "a spec or accumulator with {} in place of a format, such as 'chunked(64, {})' or 'e4m3 : kahan({})'",
            "Write order='{}' for one plain sum.",
        )
    registers = list(dict.fromkeys(_registers(ladder)))
    if not 2 <= len(registers) <= _MOST:
        raise refusal(
            f"ladder {ladder!r} of {len(registers)} format{'s' * (len(registers) != 1)}",
            f"2 to {_MOST} formats",
            f"Write {_ALLOWED}.",
        )
    rungs = [Rung(register, _spec(order, register), register_bits(register)) for register in registers]
    return tuple(sorted(rungs, key=lambda rung: rung.bits))


def register_bits(register: str) -> int:
    """Width of the register that an accumulator's text names: all bits of its format, of the widest if it has several.

    Raises:
        SearchError: for text that names no accumulator.
    """
    try:
        accumulator: Accumulator = parse_accumulator(register)
    except (SpecError, FormatError) as error:
        raise SearchError(f"search: ladder: {error}") from None
    if isinstance(accumulator, Integer):
        return accumulator.P
    found = [cast.format.bits for cast in accumulator.casts()]
    if not found:
        raise refusal(
            f"ladder: {register!r}, whose accumulator has no width",
            "formats, int(P) and fixed(P, frac)",
            "Name only the accumulator's format; the order of the sum belongs in order=.",
        )
    return max(found)


def _registers(ladder: LadderLike) -> list[str]:
    """The registers as texts, in the order given."""
    if isinstance(ladder, str):
        ends = [end.strip() for end in ladder.split(":")]
        return _range(ladder, *ends) if len(ends) == 2 else _list(ladder) if len(ends) == 1 else _bad(ladder)
    is_listed = isinstance(ladder, Sequence) and not isinstance(ladder, (bytes, bytearray))
    if not is_listed or not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in ladder):
        return _bad(ladder)
    return [f"int({one})" if isinstance(one, int) else one.strip() for one in ladder]


def _bad(ladder: object) -> list[str]:
    raise refusal(f"ladder {ladder!r}", _ALLOWED, "Leave it out for 'e5m1:e5m10'.")


def _range(ladder: str, low: str, high: str) -> list[str]:
    """Registers between two that differ in one number: e5m1, e5m2, ..., e5m10.

    Raises:
        SearchError: for ends that differ in more or in none, or whose second number is the smaller one.
    """
    first, last = _NUMBER.findall(low), _NUMBER.findall(high)
    differing = [i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b]
    if _NUMBER.sub("#", low) != _NUMBER.sub("#", high) or len(differing) != 1:
        return _bad(ladder)
    at = differing[0]
    start, stop = int(first[at]), int(last[at])
    if stop <= start:
        raise refusal(f"ladder {ladder!r}, which ends with the narrower format", _ALLOWED, f"Write '{high}:{low}'.")
    place = list(_NUMBER.finditer(low))[at]
    return [f"{low[: place.start()]}{n}{low[place.end() :]}" for n in range(start, min(stop, start + _MOST) + 1)]


def _list(text: str) -> list[str]:
    """Parts between the commas that stand outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _spec(order: str, register: str) -> str:
    """The canonical spec of this register in this order.

    Raises:
        SearchError: for one that means nothing, with the reason.
    """
    text = order.replace(PLACE, register)
    try:
        return str(GemmSpec.parse(text if ":" in text else f": {text}"))
    except (SpecError, FormatError) as error:
        raise SearchError(f"search: order {order!r} with format {register!r}: {error}") from None
