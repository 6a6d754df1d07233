"""Words of recipes: published ways to train, which say three products and their scaling, where a spec says one product.

``gemmsim.recipes`` makes them. Here is what their text looks like, so that whatever reads a spec knows a recipe's word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..formats import names
from .errors import SpecError, spec_error

__all__ = ["RECIPES", "RecipeCall", "no_single_spec", "recipe_call"]

#: The published recipes of ``gemmsim.recipes``.
RECIPES = ("deepseek_fp8", "fp16_accumulate", "hopper_fp8", "mxfp8", "nvfp4")

_CALL = re.compile(r"\s*([A-Za-z]\w*)\s*(?:\(([^()]*)\)\s*)?")
#: The recipe whose first argument is a spec, which may have brackets and commas of its own.
_OF_A_SPEC = re.compile(r"\s*all_products\s*\((.+?)(?:,\s*grad\s*=\s*([^,()]+))?\)\s*", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,6}")


class RecipeCall(NamedTuple):
    """A recipe's name and arguments: integers as numbers, anything else as text."""

    name: str
    args: tuple[int | str, ...]
    kwargs: dict[str, int | str]


def recipe_call(text: str) -> RecipeCall | None:
    """The recipe that the whole of ``text`` names, "hopper_fp8" or "hopper_fp8(margin=1)"; None for other text.

    Case and blanks do not matter. A name that ``gemmsim.formats.register`` gave to a format stays that format's.

    Raises:
        SpecError: for a positional argument after one by name, and an argument given twice.
    """
    whole = _OF_A_SPEC.fullmatch(text)
    if whole is not None:
        return RecipeCall(
            "all_products", (_unquoted(whole[1]),), {} if whole[2] is None else {"grad": _unquoted(whole[2])}
        )
    match = _CALL.fullmatch(text)
    name = "" if match is None else match[1].lower()
    if match is None or name not in RECIPES or (match[2] is None and name in names()):
        return None
    args: list[int | str] = []
    kwargs: dict[str, int | str] = {}
    for part in (match[2] or "").split(",") if (match[2] or "").strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if equals and key not in kwargs:
            kwargs[key] = _value(value)
        elif equals or kwargs:
            raise spec_error(f"recipe {text.strip()!r}", "each argument once, those by name last", "Correct it.")
        else:
            args.append(_value(key))
    return RecipeCall(name, tuple(args), kwargs)


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _value(text: str) -> int | str:
    return int(text) if _INTEGER.fullmatch(text) else text


#: What else the name of a recipe may have been meant for.
_OTHERWISE = {
    "fp16_accumulate": ", or write ':fp16_accumulate()' for the accumulator of that name",
    "mxfp8": ", or write 'mxfp8 : fp32' for operands in the block format of that name",
    "nvfp4": ", or write 'nvfp4 : fp32' for operands in the block format of that name",
}


def no_single_spec(asked: str, name: str | None = None) -> SpecError:
    """``SpecError`` for a recipe, or formats like it, where one product's spec is needed; ``name``: the recipe's."""
    do = "Give one of them, its .fprop" if name is None else f"Give one of them, gemmsim.recipes.{name}().fprop"
    if name == "all_products":
        do = "Give the spec alone, without all_products(...)"
    return spec_error(
        f"spec {asked} is of three products, fprop, dgrad and wgrad, and says how they are scaled",
        "the spec of one product; qmatmul, qlinear, modules, emulate and convert take all three",
        f"{do}{_OTHERWISE.get(name or '', '')}.",
    )
