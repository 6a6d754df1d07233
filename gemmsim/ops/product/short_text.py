"""Formats of a product in few letters, as modules and rules show them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from gemmsim.arithmetic.recipe_words import RECIPES

from .affine_formats import QAffineFormats

__all__ = ["cut", "short_formats", "source_of"]

#: Letters of a text that a line of a printed model has place for.
_LONGEST = 48


def source_of(formats: QAffineFormats) -> str | None:
    """The spec or the recipe's word that ``formats`` come from, which ``QAffineFormats.of`` reads; None for others.

    Rules over models leave the sums of biases' gradients to PyTorch: that is no part of what they were given.
    """
    for own in (formats, replace(formats, bias_sum="wgrad")):
        for name in RECIPES:  # by name: recipes are made of the class above
            if own == getattr(import_module("gemmsim.recipes"), name)():
                return name
        if own.fprop is not None and own == QAffineFormats.of(own.fprop):
            return str(own.fprop)
    return None


def short_formats(formats: object) -> str:
    """The beginning of ``repr(formats)``: up to 48 letters, and the name around them.

    Of ``QAffineFormats`` their source, quoted, if they have one, and "None" for PyTorch's own products.
    """
    if isinstance(formats, QAffineFormats):
        if formats.plan.is_native:
            return "None"
        source = source_of(formats)
        if source is not None:
            return repr(cut(source))
    text, start = repr(formats), f"{type(formats).__name__}("
    if not text.startswith(start):
        return cut(text)
    return f"{start}{cut(text.removeprefix(start).removesuffix(')'))})"


def cut(text: str) -> str:
    """The first 48 letters, the last three of them dots where there are more."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
