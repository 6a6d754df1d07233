"""What a word that is no format means here: an accumulator, or a chip."""

from __future__ import annotations

import difflib
from dataclasses import MISSING

from ..formats.errors import MEANINGS
from ..hardware.catalogue import ARCHITECTURES, families
from ..hardware.chips import CHIPS, chip_key, no_model_words, without_model
from .accumulator import Accumulator, constructors
from .presets import PRESETS, preset_signature
from .recipe_words import RECIPES

__all__ = ["of_accumulator"]


def of_accumulator(word: str, near: bool = False) -> str:
    """Sentence naming the accumulator or chip that ``word`` is (``near``: resembles), before any bracket; or empty."""
    if not near and any(mark in word for mark in (":", "*", "->")):
        return "That is the spec of a product, as 'bf16 * bf16 : fp32' is, where one format is asked for. "
    written = word.partition("(")[0].strip()
    name, key = written.lower(), chip_key(written)
    if near:
        names = difflib.get_close_matches(name, [*constructors(), *PRESETS, *RECIPES], n=1, cutoff=0.7)
        keys = difflib.get_close_matches(key, [*ARCHITECTURES, *CHIPS], n=1, cutoff=0.7)
        name, key = (names or [""])[0], (keys or [""])[0]
    if "(" in word and not near and (name in constructors() or name in PRESETS):
        return f"{written!r} makes an accumulator, where a format is asked for. "
    if name in constructors():
        return f"Did you mean the accumulator {_call(constructors()[name])}? "
    if name in PRESETS:
        return f"Did you mean the accumulator {preset_signature(name)}? "
    if name in RECIPES:
        return f"Did you mean the recipe {name!r}, which is a spec by itself? "
    arch = CHIPS.get(key, key)
    if arch not in ARCHITECTURES:
        unknown = None if near else without_model(written)
        return "" if unknown is None else f"{written!r} is a chip: {no_model_words(*unknown)}. "
    first = families(arch)[0]
    op = {"tcgen05mma": "tcgen05"}.get(first.unit, first.unit)
    chip = key if near else written
    return f"{chip!r} is a chip: did you mean its instruction, such as hw({key}, {op}, {first.operands[0][0]})? "


def _call(cls: type[Accumulator]) -> str:
    """``kahan(fmt)``: the constructor with the arguments it needs."""
    needed = [field.name for field, _ in cls._arguments() if field.default is MISSING]
    return f"{cls.name}({', '.join(needed)})"


MEANINGS.append(of_accumulator)
