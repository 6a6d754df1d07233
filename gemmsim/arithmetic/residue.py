"""The terms that come first where K is no multiple of a tile: ``first`` of ``hw`` and ``fused``."""

from __future__ import annotations

from typing import Protocol

from .argument_kinds import IntKind
from .errors import spec_error

__all__ = ["FIRST", "check_first", "fill_words"]

#: Terms of a tile.
FIRST = IntKind(1, 2**20)


class _WithFirst(Protocol):
    @property
    def first(self) -> int | None: ...

    @property
    def name(self) -> str: ...


def check_first(one: _WithFirst, step: int) -> None:
    """``SpecError`` unless a tile is a whole number of steps, or instructions, of ``step`` products."""
    if one.first is not None and one.first % step:
        raise spec_error(
            f"{one.name}: first={one.first} with {step} products in one step",
            f"a multiple of {step}, the terms of a tile",
            f"Give first={-(-one.first // step) * step}.",
        )


def fill_words(first: int | None, step: int) -> str:
    """Words for where zeros fill up K."""
    if first is None:
        return f"K is padded with zeros to a multiple of {step}"
    return f"the first K mod {first} terms are padded with zeros to {first}, then the rest"
