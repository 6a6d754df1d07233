"""The Pareto front of all settings under a model in which costs and squares of errors add up.

Dynamic programming over the layers: after each, the settings of the layers so far that no other one beats in both cost
and squared error. It is exact up to ``MOST`` such settings; beyond, of those whose squared errors agree to within a
bucket of a logarithmic grid only the cheapest is kept, with its true error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["MOST", "Option", "Point", "pareto_front"]

#: Settings that are kept after each layer, at most.
MOST = 20_000

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


class Option(NamedTuple):
    """What a layer may be: a rung, its cost, and the square of the error that it makes."""

    rung: int
    cost: float
    square: float


class Point(NamedTuple):
    """A setting, one rung a layer, with the sums of its costs and squared errors."""

    cost: float
    square: float
    setting: tuple[int, ...]


def pareto_front(layers: Sequence[Sequence[Option]], most: int = MOST) -> list[Point]:
    """The settings that no other one beats, the cheapest first; options with an infinite error take no part.

    Empty where a layer has no finite option.
    """
    cost: _Floats = np.zeros(1)
    square: _Floats = np.zeros(1)
    steps: list[tuple[_Ints, _Ints]] = []
    for options in layers:
        finite = [option for option in options if math.isfinite(option.square)]
        if not finite:
            return []
        costs = np.add.outer(np.array([option.cost for option in finite]), cost).ravel()
        squares = np.add.outer(np.array([option.square for option in finite]), square).ravel()
        kept = _thinned(costs, squares, _undominated(costs, squares), most)
        choice, parent = np.divmod(kept, len(cost))
        steps.append((np.array([option.rung for option in finite])[choice], parent))
        cost, square = costs[kept], squares[kept]
    settings = _settings(steps, len(cost))
    return [Point(float(c), float(s), setting) for c, s, setting in zip(cost, square, settings, strict=True)]


def _undominated(costs: _Floats, squares: _Floats) -> _Ints:
    """Indices of the settings that no other one beats, by rising cost; of equal ones the first."""
    order = np.lexsort((squares, costs))
    best = np.minimum.accumulate(squares[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = best[1:] < best[:-1]
    return order[first]


def _thinned(costs: _Floats, squares: _Floats, kept: _Ints, most: int) -> _Ints:
    """At most about ``most`` of the kept: the cheapest of each bucket, the last one too."""
    if len(kept) <= most:
        return kept
    found = squares[kept]
    least = found[found > 0].min(initial=found.max() if found.max() > 0 else 1.0)
    logs = np.log2(np.maximum(found, least))
    buckets = np.floor((logs - logs.min()) / max(float(np.ptp(logs)), 1e-300) * (most - 2)).astype(np.int64)
    first = np.ones(len(kept), dtype=bool)
    first[1:] = buckets[1:] != buckets[:-1]
    first[-1] = True
    return kept[first]


def _settings(steps: Sequence[tuple[_Ints, _Ints]], count: int) -> list[tuple[int, ...]]:
    """The rungs of each setting, found by going back through the layers."""
    at = np.arange(count)
    columns = []
    for rungs, parents in reversed(steps):
        columns.append(rungs[at])
        at = parents[at]
    return [tuple(int(rung) for rung in row) for row in np.stack(columns[::-1], axis=1)]
