"""Verification on the whole model, repair of a setting that misses its target, and what can be narrowed after that.

Only a run of the whole model says that a setting holds. Table and front say where to look: a wrong table costs runs,
and perhaps a dearer setting, and never gives one that does not hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from .prediction import Prediction
from .runs import Runs

__all__ = ["Verifier"]

#: Layers up to which every single step and exchange is tried, whatever the prediction says of it.
_FEW = 8
#: Predicted over allowed error above which a step is not tried where there are more layers.
_HOPELESS = 1.1
#: Steps along the front with a corrected prediction.
_WALKS = 5

_Whole = tuple[int, ...]


class Verifier:
    """Finds a cheap setting that holds: whose error's limit, measured on the whole model, is at most the target.

    ``spent``: runs so far. ``wide``: a setting that holds, where repair ends at the latest.
    """

    def __init__(self, prediction: Prediction, runs: Runs, at_most: float, most_runs: int, wide: _Whole) -> None:
        self.prediction, self.runs, self.at_most = prediction, runs, at_most
        self.most_runs, self.wide = most_runs, wide
        self.spent = 0

    def holds(self, setting: _Whole) -> bool:
        """Whether a run of the whole model says so."""
        self.spent += self.runs.known(setting) is None
        return self.runs.measure(setting).limit <= self.at_most

    def find(self) -> _Whole:
        """The setting: repaired until it holds, then narrowed and exchanged while it does."""
        start = self.prediction.cheapest(self.at_most) or self.wide
        return self._narrowed(self._walked(self._repaired(start)))

    @property
    def _left(self) -> bool:
        return self.spent < self.most_runs

    def _repaired(self, setting: _Whole) -> _Whole:
        """Widens the layers with the most squared error per cost: one, two, four ... of them, until it holds."""
        count = 1
        while not self.holds(setting):
            if not self._left:
                return self.wide
            order = sorted(
                (layer for layer, rung in enumerate(setting) if rung < self.wide[layer]),
                key=lambda layer: -self._gain(setting, layer),
            )
            if not order:
                return self.wide
            chosen = set(order[:count])
            setting = tuple(rung + (layer in chosen) for layer, rung in enumerate(setting))
            count *= 2
        return setting

    def _gain(self, setting: _Whole, layer: int) -> float:
        """Squared error that widening this layer by a rung saves for what it costs; infinite for what it must leave."""
        errors, costs, rung = self.prediction.table.errors[layer], self.prediction.costs[layer], setting[layer]
        if not math.isfinite(errors[rung]):
            return math.inf
        saved = errors[rung] ** 2 - min(errors[rung + 1], errors[rung]) ** 2
        return saved / max(costs[rung + 1] - costs[rung], 1e-300)

    def _walked(self, setting: _Whole) -> _Whole:
        """The front's cheapest setting that holds, as predictions say that are corrected by what was measured."""
        for _ in range(_WALKS):
            square = self.prediction.square(setting)
            if not self._left or not 0 < square < math.inf:
                return setting
            ratio = self.runs.measure(setting).limit / math.sqrt(square)
            found = self.prediction.cheapest(self.at_most, ratio)
            if found is None or self.prediction.cost(found) >= self.prediction.cost(setting) or not self.holds(found):
                return setting
            setting = found
        return setting

    def _narrowed(self, setting: _Whole) -> _Whole:
        """Takes steps that lower the cost and hold, until none is left: single layers first, then exchanges."""
        failed: set[_Whole] = set()
        while True:
            for moves in (self._single(setting), self._exchanges(setting)):
                better = next((move for move in moves if move not in failed and self._try(move, failed)), None)
                if better is not None or not self._left:
                    break
            if better is None:
                return setting
            setting = better

    def _try(self, setting: _Whole, failed: set[_Whole]) -> bool:
        if not self._left:
            return False
        if not self.holds(setting):
            failed.add(setting)
            return False
        return True

    def _single(self, setting: _Whole) -> Iterator[_Whole]:
        """Settings with one layer at its next cheaper rung, those that save most first."""
        moves = (_moved(setting, {layer: -self._down(setting, layer)}) for layer in range(len(setting)))
        yield from self._promising(setting, moves)

    def _down(self, setting: _Whole, layer: int) -> int:
        """By how many rungs a layer goes down to be cheaper; more than there are where none is."""
        costs, rung = self.prediction.costs[layer], setting[layer]
        return next((by for by in range(1, rung + 1) if costs[rung - by] < costs[rung]), rung + 1)

    def _exchanges(self, setting: _Whole) -> Iterator[_Whole]:
        """Settings with one layer narrower by up to three rungs and another one wider by up to three."""
        pairs = itertools.permutations(range(len(setting)), 2)
        steps = range(1, 4) if len(setting) <= _FEW else (1,)
        moves = (_moved(setting, {low: -down, high: up}) for low, high in pairs for down in steps for up in steps)
        yield from self._promising(setting, moves)

    def _promising(self, setting: _Whole, moves: Iterator[_Whole | None]) -> Iterator[_Whole]:
        """The possible moves that lower the cost, the cheapest first.

        Of many layers only those whose error, predicted from the one measured at ``setting``, may hold.
        """
        cost, square = self.prediction.cost(setting), self.prediction.square(setting)
        here = self.runs.measure(setting).limit ** 2
        ratio = here / square if 0 < square < math.inf else 1.0
        found = []
        for move in moves:
            if move is None or any(rung > self.wide[layer] for layer, rung in enumerate(move)):
                continue
            saved = cost - self.prediction.cost(move)
            predicted = math.sqrt(max(here + ratio * (self.prediction.square(move) - square), 0.0))
            if saved > 0 and (len(setting) <= _FEW or predicted <= _HOPELESS * self.at_most):
                found.append((-saved, predicted, move))
        yield from (move for _, _, move in sorted(found))


def _moved(setting: _Whole, by: dict[int, int]) -> _Whole | None:
    """The setting with these layers moved; None where a rung would be below the ladder."""
    found = tuple(rung + by.get(layer, 0) for layer, rung in enumerate(setting))
    return found if min(found) >= 0 else None
