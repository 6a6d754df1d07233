"""What a word that is no format means here: an accumulator, or a chip."""

from __future__ import annotations

import difflib
from dataclasses import MISSING

from ..formats.errors import MEANINGS
from ..hardware.catalogue import ARCHITECTURES, families
from ..hardware.chips import CHIPS, chip_key, no_model_words, without_model
from .accumulator import Accumulator, constructors

__all__ = ["of_accumulator"]


def of_accumulator(word: str, near: bool = False) -> str:
    """Sentence naming the accumulator or chip that ``word`` is (``near``: resembles), before any bracket; or empty."""
    name = word.partition("(")[0].strip()
    key = chip_key(name)
    if near:
        names = difflib.get_close_matches(name, constructors(), n=1, cutoff=0.7)
        keys = difflib.get_close_matches(key, [*ARCHITECTURES, *CHIPS], n=1, cutoff=0.7)
        name, key = (names or [""])[0], (keys or [""])[0]
    if name in constructors():
        return f"Did you mean the accumulator {_call(constructors()[name])}? "
    arch = CHIPS.get(key, key)
    if arch not in ARCHITECTURES:
        unknown = None if near else without_model(name)
        return "" if unknown is None else f"{name!r} is a chip: {no_model_words(*unknown)}. "
    first = families(arch)[0]
    op = {"tcgen05mma": "tcgen05"}.get(first.unit, first.unit)
    return f"{key!r} is a chip: did you mean its instruction, such as hw({key}, {op}, {first.operands[0][0]})? "


def _call(cls: type[Accumulator]) -> str:
    """``kahan(fmt)``: the constructor with the arguments it needs."""
    needed = [field.name for field, _ in cls._arguments() if field.default is MISSING]
    return f"{cls.name}({', '.join(needed)})"


MEANINGS.append(of_accumulator)
