"""Training recipes with one part taken away, by an edit of the text of their products or of which layers they cover."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gemmsim as gs

from .errors import StudyError, nearest

__all__ = ["BASELINE", "FULL", "PARTS", "RECIPES", "Part", "Variant", "part_names", "variant", "variants"]

#: What every recipe is compared with, and what computes the layers that a recipe leaves alone.
BASELINE = "all_products(bf16 : fp32)"
#: The name of a recipe with all of its parts.
FULL = "nothing"
_ROLES = ("fprop", "dgrad", "wgrad")
#: Product and its text -> the text without the part.
Edit = Callable[[str, str], str]


@dataclass(frozen=True)
class Part:
    """A part of a recipe.

    Args:
        name: a word of the option ``without``.
        words: what stands in its place.
        edit: of the text of each product; None for the part that keeps some layers in bf16.
    """

    name: str
    words: str
    edit: Edit | None


@dataclass(frozen=True)
class Variant:
    """A recipe without a part: ``formats`` as ``QAffineFormats.of`` reads them, and whether it keeps layers in bf16."""

    recipe: str
    without: str
    formats: str
    keeps_layers: bool

    @property
    def label(self) -> str:
        """As tables and pictures name it."""
        return self.recipe if self.without == FULL else f"{self.recipe} without {self.without}"

    @property
    def stochastic(self) -> bool:
        """Whether a product draws random bits."""
        formats = gs.QAffineFormats.of(self.formats)
        specs = (getattr(formats, role) for role in _ROLES)
        return any(spec is not None and spec.is_stochastic for spec in specs)


def _unwrapped(text: str, name: str) -> str:
    """``name(X)`` or ``name(X, 128)`` in ``text``, replaced by X."""
    start = text.find(f"{name}(")
    if start < 0:
        return text
    at, depth = start + len(name) + 1, 1
    first = at
    comma = -1
    while depth:
        depth += (text[at] == "(") - (text[at] == ")")
        if text[at] == "," and depth == 1:
            comma = at
        at += 1
    return text[:start] + text[first : comma if comma > 0 else at - 1] + text[at:]


def _replaced(*pairs: tuple[str, str], roles: tuple[str, ...] = _ROLES) -> Edit:
    """Each pair (old, new) of texts, in the products ``roles``."""

    def edit(role: str, text: str) -> str:
        for old, new in pairs if role in roles else ():
            text = text.replace(old, new)
        return text

    return edit


def _matched(pattern: str, new: str) -> Edit:
    return lambda role, text: re.sub(pattern, new, text)


def _without_scales(role: str, text: str) -> str:
    return _unwrapped(re.sub(r"@tensor(/least\([^)]*\))?", "", text), "scaled")


def _in_tensors(role: str, text: str) -> str:
    """DeepSeek-V3's promotion after 128 terms stays."""
    return re.sub(r"@128x128|@1x128", "@tensor", text).replace("scaled(", "scaled(promote(").rstrip(")") + "), 128))"


_TENSOR_MX = "e4m3/sat@tensor/divide/pow2 : scaled(hw(blackwell, tcgen05, e4m3))"
_NO_HADAMARD = r"/hadamard\(\d+,\d+\)"
_LAYERS = Part("bf16-layers", "all linear layers in the recipe's formats", None)
_SCALES = Part("scales", "operands are rounded as they are", _without_scales)
_E5M2 = Part("e5m2", "gradients in e4m3", _replaced(("e5m2", "e4m3")))
_SPLIT = Part("promotion", "Hopper's register over the whole sum", lambda role, text: _unwrapped(text, "promote"))
_STOCHASTIC = Part("stochastic", "gradients to nearest even", _replaced(("/sr16", "")))
_HADAMARD = Part("hadamard", "no transforms", _matched(_NO_HADAMARD, ""))

#: Recipe -> its parts that can be taken away.
PARTS: dict[str, tuple[Part, ...]] = {
    "hopper_fp8_current": (_SCALES, _E5M2, _SPLIT),
    "deepseek_v3": (
        Part("blocks", "one scale a tensor; promotion after 128 terms stays", _in_tensors),
        Part("square-weights", "1 x 128 blocks of weights", _replaced(("@128x128", "@1x128"))),
        Part(
            "promotion",
            "blocks over the whole sum, which one register of 13 fraction bits takes",
            _replaced(("@1x128", "@1xall"), ("@128x128", "@128xall")),
        ),
        Part("stored", "wgrad quantises inputs from full precision", _matched(r"/stored\([^)]*\)", "")),
    ),
    "mxfp8_pretraining": (
        Part("blocks", "one power of two a tensor", lambda role, text: _TENSOR_MX),
        Part("round-up", "scales rounded down, as OCP MX 1.0 does", _replaced(("/rceil", ""))),
        Part(
            "e4m3-gradients",
            "gradients in e5m2",
            lambda role, text: text if role == "fprop" else str(getattr(gs.recipes.mxfp8("e5m2"), role)),
        ),
        _LAYERS,
    ),
    "nvfp4_pretraining": (
        _HADAMARD,
        _STOCHASTIC,
        Part("square-weights", "1 x 16 blocks of weights", _replaced(("@16x16", "@1x16"))),
        _LAYERS,
    ),
    "mxfp4_hadamard": (
        _HADAMARD,
        Part("stochastic", "both operands to nearest even", _replaced(("/sr16", ""))),
        Part("gain", "no factor of 3/4", _replaced(("/gain(0.75)", ""))),
        Part("all-three", "plain MXFP4: no transform, no factor, to nearest even", _matched(
            rf"/sr16|{_NO_HADAMARD}|/gain\(0.75\)", ""
        )),
    ),
    "torchao_tensorwise": (_SCALES, _E5M2, _SPLIT),
    "torchao_rowwise": (Part("rows", "one power of two a tensor", _replaced(("@row", "@tensor"))),),
    "torchao_rowwise_gw_hp": (
        Part("bf16-wgrad", "wgrad in e4m3 by rows, too", lambda role, text: _fp8_wgrad(role, text)),
    ),
}  # fmt: skip
#: The recipes that the study knows.
RECIPES = tuple(PARTS)


def _fp8_wgrad(role: str, text: str) -> str:
    return str(gs.recipes.torchao_rowwise().wgrad) if role == "wgrad" else text


def part_names() -> tuple[str, ...]:
    """The names of all parts, each once."""
    return tuple(dict.fromkeys(part.name for parts in PARTS.values() for part in parts))


def variants(recipe: str, without: tuple[str, ...]) -> Iterator[Variant]:
    """The recipe, and the recipe without each of those of its parts that ``without`` names.

    Raises:
        StudyError: a recipe that the study does not know.
    """
    yield variant(recipe, FULL)
    for part in PARTS[recipe]:
        if part.name in without:
            yield variant(recipe, part.name)


def variant(recipe: str, without: str) -> Variant:
    """The recipe without one part; ``FULL`` for none.

    Raises:
        StudyError: an unknown recipe or part; it tells the nearest name.
    """
    if recipe not in PARTS:
        raise StudyError(f"recipe {recipe!r}; allowed: {', '.join(RECIPES)}.{nearest(recipe, RECIPES)}")
    formats: gs.QAffineFormats = getattr(gs.recipes, recipe)()
    if without == FULL:
        return Variant(recipe, without, str(formats), True)
    known = {part.name: part for part in PARTS[recipe]}
    if without not in known:
        raise StudyError(
            f"{recipe} has no part {without!r}; allowed: {', '.join(known)}.{nearest(without, list(known))}"
        )
    edit = known[without].edit
    if edit is None:
        return Variant(recipe, without, str(formats), False)
    edited: dict[str, Any] = {role: edit(role, str(getattr(formats, role))) for role in _ROLES}
    return Variant(recipe, without, str(replace(formats, **edited)), True)
