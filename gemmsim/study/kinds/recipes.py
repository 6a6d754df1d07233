"""Which part of a published training recipe matters? A small GPT and a small convolutional network, beside bf16."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..capture import ROLES
from ..cast_losses import ProductLosses
from ..cells import Cell, Row, Scalar, columns
from ..errors import StudyError, nearest
from ..parameters import Parameters, at_least, choice, option, some_of
from ..recipe_claims import judged
from ..recipe_parts import BASELINE, FULL, PARTS, RECIPES, Variant, part_names, variants
from ..recipe_training import NETWORKS, Network, Training, network, train_recipe
from .kind import Kind
from .recipes_shown import draw, found, tables

__all__ = ["Recipes", "RecipesParameters"]

#: Points of a curve, each a mean over as many steps.
POINTS = 20


def _parts(given: Any, name: str) -> tuple[str, ...]:
    """``all``, ``none``, or names of parts."""
    known = part_names()
    listed = given.split(",") if isinstance(given, str) else list(given)
    words = [str(word).strip() for word in listed]
    if words == ["none"]:
        return ("none",)
    if words == ["all"]:
        return known
    if not words:
        raise StudyError(f"{name} lists no part. Give all, none, or some of {', '.join(known)}.")
    for word in words:
        if word not in known:
            hint = nearest(word, [*known, "all", "none"])
            raise StudyError(f"{name} has {word!r}; allowed: all, none, or some of {', '.join(known)}.{hint}")
    return tuple(part for part in known if part in words)


@dataclass(frozen=True)
class RecipesParameters(Parameters):
    """Networks x recipes x parts taken away x seeds."""

    kind: ClassVar[str] = "recipes"

    recipes: tuple[str, ...] = option(
        "hopper_fp8_current,deepseek_v3,mxfp8_pretraining,nvfp4_pretraining,mxfp4_hadamard",
        some_of(*RECIPES),
        f"Some of {', '.join(RECIPES)}.",
    )
    networks: tuple[str, ...] = option("gpt,conv", some_of(*NETWORKS), "gpt: characters; conv: handwritten digits.")
    without: tuple[str, ...] = option(
        "all", _parts, f"Parts taken away, one at a time: all, none, or some of {', '.join(part_names())}."
    )
    steps: int = option(100, at_least(1, 100_000), "Training steps: 8 texts of 32 characters, or 32 images, each.")
    seeds: int = option(3, at_least(1, 10**6), "Number of seeds of initial weights, batches and random bits.")
    looks: int = option(
        3, at_least(1, 1000), "Number of steps with products compared with float64, the last one included."
    )
    metric: str = option("train_loss", choice("train_loss", "test_loss"), "Loss by which recipes are compared.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.looks > self.steps:
            raise StudyError(f"looks = {self.looks}; allowed: 1 to the number of steps, {self.steps}.")
        there = {part.name: None for recipe in self.recipes for part in PARTS[recipe]}
        absent = [part for part in self.without if part not in there]
        if absent and self.without not in (part_names(), ("none",)):
            raise StudyError(
                f"without has {absent[0]!r}, which is not part of {', '.join(self.recipes)}; "
                f"allowed: {', '.join(there)}."
            )


@dataclass(frozen=True)
class Networks:
    """What cells train."""

    networks: Mapping[str, Network]
    fingerprint: str


class Recipes(Kind[RecipesParameters]):
    """Losses of two small networks under training recipes, whole and with one part taken away."""

    parameters = RecipesParameters
    about = "losses of two small networks under published training recipes, complete and without one part"
    declared_rate = (7e8, 3e8)

    def cells_of(self, part: RecipesParameters) -> Iterator[Cell]:
        """Of each network and seed bf16 first, then each recipe, followed by what it is without its parts."""
        baseline = Variant("bf16", FULL, BASELINE, True)
        for name in part.networks:
            for seed in range(part.seeds):
                yield self._cell(part, name, baseline, seed)
                for recipe in part.recipes:
                    for one in variants(recipe, part.without):
                        yield self._cell(part, name, one, seed)

    def _cell(self, part: RecipesParameters, name: str, one: Variant, seed: int) -> Cell:
        net = NETWORKS[name]
        kept = net.kept_of(one.recipe) if one.keeps_layers else ()
        shown = columns(
            what="truth" if one.recipe == "bf16" else "recipe",
            network=name,
            recipe=one.recipe,
            without=one.without,
            formats=one.formats,
            kept=",".join(kept),
            steps=part.steps,
            looks=part.looks,
        )
        macs = net.macs * net.size * part.steps
        return Cell(self.name, self.setting, "", seed, shown, one.stochastic, macs, one.label)

    def prepare(self, folder: Path) -> Networks:
        """Reads text and images."""
        names = dict.fromkeys(name for part in self.parts for name in part.networks)
        return Networks({name: network(name) for name in names}, self.setting)

    def evaluate(self, cell: Cell, inputs: Networks) -> Mapping[str, Scalar]:
        """One training.

        =======================  ======================================================================
        first_loss               of the first step, nats a character or image
        train_loss               mean over the last quarter of the steps; None if a loss is not finite
        test_loss, accuracy      on the test set, after training, products as in training
        diverged                 whether a loss was infinite or NaN
        curve                    means over as many steps as make twenty points, separated by blanks
        fprop_zero, ...          share of elements of operands, not zero, that became zero
        fprop_saturated, ...     share that lay beyond the largest number of format and scale
        fprop_bias, ...          mean of e sign(t) over mean of |t|, against float64; mean over products
        fprop_error, ...         norm(e) / norm(t)
        =======================  ======================================================================
        """
        at: dict[str, Any] = dict(cell.columns)
        kept = at["kept"].split(",") if at["kept"] else []
        net = inputs.networks[at["network"]]
        done = train_recipe(net, at["formats"], kept, steps=at["steps"], seed=cell.seed, looks=at["looks"])
        lost = {f"{role}_{name}": value for role in ROLES for name, value in _lost(done.lost[role])}
        return {**_losses(done), **lost}

    def table(self, rows: Sequence[Row]) -> Any:
        """Losses, what products lose, and what became of the published statements."""
        return tables(rows, self.title, self.parts[0].metric)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Losses of bf16 and of the recipes, and of each recipe and its parts the loss above bf16's."""
        draw(rows, self.finding(rows) or self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """How many published statements are confirmed, and which part costs most."""
        metric = self.parts[0].metric
        return found(rows, judged(rows, metric), metric)


def _losses(done: Training) -> dict[str, Scalar]:
    losses = done.losses
    finite = all(math.isfinite(loss) for loss in losses)
    every = max(1, len(losses) // POINTS)
    means = [sum(losses[at : at + every]) / len(losses[at : at + every]) for at in range(0, len(losses), every)]
    last = losses[-max(1, len(losses) // 4) :]
    return {
        "first_loss": losses[0],
        "train_loss": sum(last) / len(last) if finite else None,
        "test_loss": done.test_loss if math.isfinite(done.test_loss) else None,
        "accuracy": done.accuracy,
        "diverged": not finite,
        "every": every,
        "curve": " ".join(f"{loss:.6g}" for loss in means),
    }


def _lost(products: Sequence[ProductLosses]) -> Iterator[tuple[str, Scalar]]:
    """Shares over all operands together, means over products."""
    nonzero = sum(product.operands.nonzero for product in products)
    yield "zero", sum(product.operands.zeros for product in products) / nonzero if nonzero else None
    yield "saturated", sum(product.operands.saturated for product in products) / nonzero if nonzero else None
    for name in ("bias", "error"):
        values = [getattr(product, name) for product in products]
        known = [value for value in values if value is not None]
        yield name, sum(known) / len(known) if len(known) == len(values) and known else None
