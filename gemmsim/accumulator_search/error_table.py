"""The error that each layer makes at each rung alone: by runs of the whole model, or layer by layer on its inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gemmsim as gs

from .batches import Batch, samples_in
from .metrics import tensor_of
from .runs import Runs

__all__ = ["CAPTURED", "WHOLE", "ErrorTable", "make_table", "method_for"]

WHOLE, CAPTURED = "whole", "captured"
#: Multiply-adds of all runs of the whole model above which layers are run by themselves.
_MOST_MACS = 5e10
#: Samples on which a layer is run by itself.
_SAMPLES = 32


@dataclass(frozen=True)
class ErrorTable:
    """``errors``: of the whole model with only that layer at that rung, a row a layer; infinite where it is not finite.

    ``sensitivity``: of each layer the error of the model over that of the layer itself; None where the whole model was
    run for each entry. ``method``: "whole" or "captured".
    """

    errors: tuple[tuple[float, ...], ...]
    method: str
    sensitivity: tuple[float, ...] | None = None


def method_for(runs: Runs, asked: str) -> str:
    """``asked``, and for "auto" what the multiply-adds of a table by the whole model say."""
    if asked != "auto":
        return asked
    macs = sum(layer.macs for layer in runs.layers) * runs.samples * len(runs.layers) * len(runs.rungs)
    return WHOLE if macs <= _MOST_MACS else CAPTURED


def make_table(runs: Runs, method: str, at_most: float) -> ErrorTable:
    """The table by this method. ``at_most``: near which errors the sensitivities are measured."""
    if method == WHOLE:
        layers, rungs = range(len(runs.layers)), range(len(runs.rungs))
        rows = [tuple(runs.measure(runs.alone(layer, rung)).error for rung in rungs) for layer in layers]
        return ErrorTable(tuple(rows), WHOLE)
    local = _local_errors(runs)
    found = [_sensitivity(runs, layer, row, at_most) for layer, row in enumerate(local)]
    rows = [tuple(one * scale if one else 0.0 for one in row) for row, scale in zip(local, found, strict=True)]
    return ErrorTable(tuple(rows), CAPTURED, tuple(found))


def _sensitivity(runs: Runs, layer: int, local: Sequence[float], at_most: float) -> float:
    """The model's error over the layer's: root of the mean square at two rungs, which two runs of the whole model give.

    The first is the rung whose local error is nearest the layer's share of the target; the second the one where, as the
    first says, the model's error is. A run whose outputs are not finite does not count. Infinite without any that does:
    the layer then stays at rungs where it makes no error, if there are some.
    """
    share = at_most / math.sqrt(len(runs.layers))
    left = [rung for rung, error in enumerate(local) if 0 < error < math.inf]
    ratios: list[float] = []
    while left and len(ratios) < 2:
        wanted = share / ratios[0] if ratios and ratios[0] else share
        rung = min(left, key=lambda rung: abs(math.log(local[rung] / wanted)))
        left.remove(rung)
        ratio = runs.measure(runs.alone(layer, rung)).error / local[rung]
        ratios += [ratio] if math.isfinite(ratio) else []
    if not ratios:
        return 0.0 if not any(local) else math.inf
    return math.sqrt(sum(ratio * ratio for ratio in ratios) / len(ratios))


def _local_errors(runs: Runs) -> list[list[float]]:
    """Relative error of the output of each layer's module, with only that layer narrowed, on the inputs it has there.

    One pass over the first samples: behind each module that holds layers a hook runs it again, once for each layer and
    rung, and compares with what it returned. Products outside modules are those of the model itself.
    """
    sums = [[[0.0, 0.0] for _ in runs.rungs] for _ in runs.layers]
    modules = dict(runs.model.named_modules())
    held: dict[int, list[int]] = {}
    for at, layer in enumerate(runs.layers):
        held.setdefault(id(modules.get(layer.path, runs.model)), []).append(at)
    running: list[bool] = []

    def compare(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if running:
            return
        running.append(True)
        try:
            wide = tensor_of(output).double()
            for layer in held[id(module)]:
                for rung in range(len(runs.rungs)):
                    config = runs.config(runs.alone(layer, rung))
                    with gs.emulate(config, seed=runs.seed, root=runs.model, step=0):
                        narrow = tensor_of(module(*args, **kwargs)).double()
                    sums[layer][rung][0] += float((narrow - wide).square().sum())
                    sums[layer][rung][1] += float(wide.square().sum())
        finally:
            running.clear()

    wanted = {id(module): module for module in modules.values() if id(module) in held}
    handles = [module.register_forward_hook(compare, with_kwargs=True) for module in wanted.values()]
    try:
        runs.run(runs.alone(), _first_samples(runs.batches))
    finally:
        for handle in handles:
            handle.remove()
    return [[_relative(off, size) for off, size in row] for row in sums]


def _first_samples(batches: Sequence[Batch]) -> list[Batch]:
    found: list[Batch] = []
    for batch in batches:
        left = _SAMPLES - samples_in(found)
        if left <= 0:
            break
        found.append(batch.first(left))
    return found


def _relative(off: float, size: float) -> float:
    if not math.isfinite(off) or not size:
        return 0.0 if off == 0 else math.inf
    return math.sqrt(off / size)
