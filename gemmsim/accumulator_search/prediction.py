"""The model of errors: roots of sums of squares of the table, times an inflation that random settings measure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from .error_table import ErrorTable
from .knapsack import Option, Point, pareto_front
from .runs import Runs

__all__ = ["Prediction", "measured_inflation"]

#: Random settings whose runs give the inflation, and the quantile of measured over predicted that it is.
SETTINGS, QUANTILE = 10, 0.95


@dataclass(frozen=True)
class Prediction:
    """Costs and predicted errors of settings. ``costs``: of each layer at each rung."""

    table: ErrorTable
    costs: tuple[tuple[float, ...], ...]
    inflation: float = 1.0
    front: tuple[Point, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, table: ErrorTable, costs: tuple[tuple[float, ...], ...]) -> Prediction:
        """The prediction without inflation, with its Pareto front."""
        options = [
            [Option(rung, cost, error * error) for rung, (cost, error) in enumerate(zip(row, errors, strict=True))]
            for row, errors in zip(costs, table.errors, strict=True)
        ]
        return cls(table, costs, 1.0, tuple(pareto_front(options)))

    def cost(self, setting: Sequence[int]) -> float:
        """The sum of the layers' costs."""
        return math.fsum(row[rung] for row, rung in zip(self.costs, setting, strict=True))

    def square(self, setting: Sequence[int]) -> float:
        """The sum of the layers' squared errors, without inflation."""
        return math.fsum(row[rung] ** 2 for row, rung in zip(self.table.errors, setting, strict=True))

    def error(self, setting: Sequence[int]) -> float:
        """The predicted error, inflated."""
        return self.inflation * math.sqrt(self.square(setting))

    def cheapest(self, at_most: float, inflation: float | None = None) -> tuple[int, ...] | None:
        """The cheapest setting of the front whose predicted error is at most this; None where there is none."""
        scale = self.inflation if inflation is None else inflation
        return next((one.setting for one in self.front if scale * math.sqrt(one.square) <= at_most), None)


def measured_inflation(prediction: Prediction, runs: Runs, at_most: float, seed: int) -> tuple[float, int]:
    """(95 % value of measured over predicted error, number of settings): of random settings near the target.

    Each begins at the front's cheapest setting for a random target from a half to twice ``at_most``; then each layer
    goes up or down by one rung or stays, by chance. Linear interpolation between the ratios; 1 without any.
    """
    generator = random.Random(seed)
    top = len(runs.rungs) - 1
    ratios: dict[tuple[int, ...], float] = {}
    for _ in range(8 * SETTINGS):
        if len(ratios) == SETTINGS or not prediction.front:
            break
        start = prediction.cheapest(at_most * 2 ** generator.uniform(-1, 1)) or prediction.front[-1].setting
        setting = tuple(min(max(rung + generator.choice((-1, 0, 1)), 0), top) for rung in start)
        predicted = prediction.error(setting)
        if setting in ratios or not 0 < predicted < math.inf:
            continue
        measured = runs.measure(setting).error
        ratios[setting] = measured / predicted
    finite = sorted(ratio for ratio in ratios.values() if 0 < ratio < math.inf)
    return (_quantile(finite), len(finite)) if finite else (1.0, 0)


def _quantile(values: Sequence[float]) -> float:
    place = QUANTILE * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])
