"""Points of the front and rows of the table, made of what a search knows of its settings."""

from __future__ import annotations

from .error_table import ErrorTable
from .findings import FrontPoint, LayerRow
from .prediction import Prediction
from .runs import Runs

__all__ = ["front_of", "point_of", "rows_of"]

#: Points of the front that a result shows.
_SHOWN = 64


def point_of(prediction: Prediction, runs: Runs, setting: tuple[int, ...]) -> FrontPoint:
    total = sum(layer.macs for layer in runs.layers)
    bits = sum(runs.rungs[rung].bits * layer.macs for layer, rung in zip(runs.layers, setting, strict=True)) / total
    known = runs.known(setting)
    measured = None if known is None else known.error
    registers = tuple(runs.rungs[rung].register for rung in setting)
    return FrontPoint(prediction.cost(setting), bits, prediction.error(setting), measured, registers)


def front_of(prediction: Prediction, runs: Runs, chosen: tuple[int, ...], verified: int) -> tuple[FrontPoint, ...]:
    """Evenly spaced points of the front and the chosen one, by rising cost; ``verified`` of them are run."""
    settings = [point.setting for point in prediction.front]
    shown = _evenly(settings, _SHOWN)
    for setting in _evenly(shown, verified):
        runs.measure(setting)
    known = [setting for setting in settings if runs.known(setting) is not None]
    points = [point_of(prediction, runs, setting) for setting in dict.fromkeys([*shown, *known, chosen])]
    return tuple(sorted(points, key=lambda point: (point.cost, point.predicted)))


def _evenly(values: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    if len(values) <= count:
        return values
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def rows_of(runs: Runs, table: ErrorTable, chosen: tuple[int, ...]) -> tuple[LayerRow, ...]:
    found = []
    for at, (layer, rung) in enumerate(zip(runs.layers, chosen, strict=True)):
        sensitivity = None if table.sensitivity is None else table.sensitivity[at]
        one = runs.rungs[rung]
        found.append(
            LayerRow(
                layer.path,
                layer.kind,
                layer.K,
                layer.macs,
                one.spec,
                one.register,
                one.bits,
                table.errors[at][rung],
                sensitivity,
            )
        )
    return tuple(found)
