"""Words of recipes: published ways to train, which say three products and their scaling, where a spec says one product.

``gemmsim.recipes`` makes them. Here is what their text looks like, so that whatever reads a spec knows a recipe's word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..formats import names
from ..formats.errors import shown
from .errors import SpecError, spec_error

__all__ = ["RECIPES", "RecipeCall", "no_single_spec", "recipe_call"]

#: The published recipes of ``gemmsim.recipes``.
RECIPES = (
    "deepseek_fp8",
    "deepseek_v3",
    "fp16_accumulate",
    "hopper_fp8",
    "hopper_fp8_current",
    "hopper_fp8_delayed",
    "mxfp4_hadamard",
    "mxfp8",
    "mxfp8_pretraining",
    "nvfp4",
    "nvfp4_pretraining",
    "torchao_rowwise",
    "torchao_rowwise_gw_hp",
    "torchao_tensorwise",
)

_CALL = re.compile(r"\s*([A-Za-z]\w*)\s*(?:\(([^()]*)\)\s*)?")
#: The recipe whose first argument is a spec, which may have brackets and commas of its own.
_OF_A_SPEC = re.compile(r"\s*all_products\s*\((.+?)(?:,\s*grad\s*=\s*([^,()]+))?\)\s*", re.IGNORECASE)
_OF_NO_SPEC = re.compile(r"\s*all_products\s*(\(\s*\)\s*)?", re.IGNORECASE)
#: A keyword of a field of a spec, which may have its operands before it.
_KEYWORD = re.compile(r"(?:[^=]*:)?\s*([A-Za-z_]\w*)\s*=")
#: Keywords that a spec has outside brackets.
_OF_SPECS = ("add", "arithmetic", "init", "mul", "seed")
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
        SpecError: for a positional argument after one by name, an argument given twice, and options of ``all_products``
            that it does not have.
    """
    if _OF_NO_SPEC.fullmatch(text) and "all_products" not in names():
        raise spec_error(
            f"recipe {text.strip()!r} without a spec", "a spec in brackets", "Try 'all_products(e4m3 : fp32)'."
        )
    whole = _OF_A_SPEC.fullmatch(text)
    if whole is not None:
        _check_options(text.strip(), whole[1])
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


def _check_options(text: str, spec: str) -> None:
    """``SpecError`` for a keyword among the fields of ``spec`` that no spec has: a misspelt or misplaced option."""
    depth, fields = 0, [""]
    for letter in spec:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            fields.append("")
        else:
            fields[-1] += letter
    for field in fields:
        keyword = _KEYWORD.match(field)
        if keyword is None or keyword[1].lower() in _OF_SPECS:
            continue
        value = field[keyword.end() :].strip().strip("'\"")
        last = f"Write it last: 'all_products(e4m3 : fp32, grad={value})'."
        if keyword[1] == "spec":
            last = f"Write the spec without its name: 'all_products({value})'."
        elif keyword[1] != "grad":
            last = f"Did you mean grad={value}?"
        asked = f"recipe {shown(text)}: {'' if keyword[1] == 'grad' else 'unknown '}option {keyword[1]!r} in the spec"
        raise spec_error(asked, f"grad, after the spec, whose own are {', '.join(_OF_SPECS)}", last)


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
        f"spec {asked} describes three products (fprop, dgrad and wgrad) and their scaling",
        "the spec of one product; qmatmul, qlinear, modules, emulate and convert accept all three",
        f"{do}{_OTHERWISE.get(name or '', '')}.",
    )
