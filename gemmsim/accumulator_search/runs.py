"""Runs of the whole model under settings of its layers, each measured once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn

import gemmsim as gs
from gemmsim.emulation import Config, Rule

from .batches import Batch, samples_in
from .errors import refusal
from .ladder import Rung
from .layers import Layer
from .metrics import Answer, Measurement, MetricLike, measured, tensor_of

__all__ = ["Runs", "Setting", "evaluating", "repeats"]

#: Of each layer the number of its rung, the narrowest 0; None: PyTorch's own products.
Setting: TypeAlias = tuple[int | None, ...]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode and without gradients; afterwards each module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class Runs:
    """Measures settings of a model's layers on batches.

    ``base``: the rung of layers that a run leaves alone, None for native PyTorch products; the reference is a run with
    all layers there. ``others``: for how many other samples limits are.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        layers: Sequence[Layer],
        rungs: Sequence[Rung],
        metric: MetricLike,
        base: int | None,
        seed: int,
        others: int = 0,
    ) -> None:
        self.model, self.batches, self.metric = model, batches, metric
        self.layers, self.rungs, self.base, self.seed = layers, rungs, base, seed
        self.others = others
        self.samples = samples_in(batches)
        self.passes = 0
        self._rules: dict[tuple[int, int], Rule] = {}
        self._known: dict[Setting, Measurement] = {}
        self.reference = self._checked(self.answers(self.alone()))

    def alone(self, layer: int = 0, rung: int | None = None) -> Setting:
        """The setting with only this layer at this rung; without a rung the setting of the reference."""
        found = [self.base] * len(self.layers)
        if rung is not None:
            found[layer] = rung
        return tuple(found)

    def config(self, setting: Setting) -> Config:
        """The rules that a setting means."""
        chosen = [(layer, rung) for layer, rung in enumerate(setting) if rung is not None]
        return Config([self._rule(layer, rung) for layer, rung in chosen])

    def measure(self, setting: Setting) -> Measurement:
        """The error of the whole model at this setting; known settings are not run again."""
        if setting not in self._known:
            self._known[setting] = measured(self.metric, self.answers(setting), self.reference, self.others)
        return self._known[setting]

    def known(self, setting: Setting) -> Measurement | None:
        """What ``measure`` found for this setting, None before."""
        return self._known.get(setting)

    def answers(self, setting: Setting) -> list[Answer]:
        """What the model returns for each batch."""
        self.passes += 1
        return [Answer(output, batch.samples) for batch, output in zip(self.batches, self.run(setting), strict=True)]

    def run(self, setting: Setting, batches: Sequence[Batch] | None = None) -> list[Any]:
        """Outputs of the model for these batches, by default its own. Contexts around the search have no effect."""
        batches = self.batches if batches is None else batches
        with gs.emulate(self.config(setting), seed=self.seed, root=self.model, step=0):
            return [self.model(*batch.args, **batch.kwargs) for batch in batches]

    def _rule(self, layer: int, rung: int) -> Rule:
        if (layer, rung) not in self._rules:
            self._rules[layer, rung] = self.layers[layer].rule(self.rungs[rung].spec)
        return self._rules[layer, rung]

    def _checked(self, answers: list[Answer]) -> list[Answer]:
        """The answers of the reference.

        Raises:
            SearchError: for those that are not finite or all 0, where the metric is not the user's own.
        """
        if not isinstance(self.metric, str):
            return answers
        tensors = [tensor_of(answer.output) for answer in answers]
        bad = sum(int((~one.isfinite()).sum()) for one in tensors)
        total = sum(one.numel() for one in tensors)
        if bad:
            raise refusal(
                f"a reference run with {bad} NaN or infinite of {total} outputs",
                "finite outputs",
                "Check model and inputs; with reference='widest' the widest accumulator may overflow.",
            )
        if math.isclose(max(float(one.abs().max()) for one in tensors), 0.0):
            raise refusal(
                f"a reference run whose {total} outputs are all 0",
                "outputs that are not 0",
                "A relative error needs outputs that are not 0; give a function as metric.",
            )
        return answers


def repeats(runs: Runs) -> Measurement:
    """The error of the reference against itself, run again."""
    return measured(runs.metric, runs.answers(runs.alone()), runs.reference)
