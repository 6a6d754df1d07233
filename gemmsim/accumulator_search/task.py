"""The arguments of a search, checked once: what is searched, on which inputs, at which cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from gemmsim.emulation import arithmetic_of

from .batches import Batch, divided, read_batches, samples_in
from .errors import SearchWarning, refusal
from .ladder import LadderLike, Rung, read_ladder
from .layers import Layer
from .metrics import MetricLike, read_metric
from .options import SearchOptions

__all__ = ["CostLike", "Task", "costs_of", "read_task"]

#: A cost by name, or a function of a register's bits and a layer's multiply-adds a sample.
CostLike: TypeAlias = str | Callable[[int, float], float]

_COSTS: dict[str, Callable[[int, float], float]] = {
    "bits*macs": lambda bits, macs: bits * macs,
    "bits": lambda bits, macs: float(bits),
}


@dataclass(frozen=True)
class Task:
    """What was asked for, checked."""

    model: nn.Module
    metric: MetricLike
    at_most: float
    rungs: tuple[Rung, ...]
    cost: Callable[[int, float], float]
    options: SearchOptions
    batches: list[Batch]
    held: list[Batch]


def read_task(
    model: nn.Module,
    inputs: Any,
    metric: MetricLike,
    at_most: float,
    ladder: tuple[LadderLike, str],
    cost: CostLike,
    options: SearchOptions | None,
) -> Task:
    """The arguments, checked; ``SearchError`` for those that mean nothing."""
    if not isinstance(model, nn.Module):
        raise refusal(f"model of type {type(model).__name__}", "a module", "Wrap a function in a torch.nn.Module.")
    if any(arithmetic_of(module) is not None for module in model.modules()):
        raise refusal(
            "a model that gemmsim.convert converted",
            "models that were not converted",
            "Call gemmsim.emulation.undo(model), search, and convert it with the resulting config.",
        )
    number = isinstance(at_most, (int, float)) and not isinstance(at_most, bool)
    if not number or not 0 < at_most < math.inf:
        raise refusal(f"at_most={at_most!r}", "a number above 0, such as 0.05", "No narrower register has no error.")
    if not callable(cost) and cost not in _COSTS:
        raise refusal(
            f"cost={cost!r}",
            f"{', '.join(map(repr, _COSTS))}, or a function of (bits, multiply-adds)",
            "Leave it out for 'bits*macs'.",
        )
    options = SearchOptions() if options is None else options
    if not isinstance(options, SearchOptions):
        raise refusal(
            f"options of type {type(options).__name__}",
            "a gemmsim.accumulator_search.SearchOptions",
            "Write options=SearchOptions(held_back=0.3).",
        )
    rungs, metric = read_ladder(*ladder), read_metric(metric)
    batches, held = read_batches(inputs), []
    if options.share is None:
        held = read_batches(options.held_back, "held_back")
    else:
        batches, held = divided(batches, options.share, options.seed)
    function = cost if callable(cost) else _COSTS[cost]
    _warn_of_few(samples_in(batches), samples_in(held))
    return Task(model, metric, float(at_most), rungs, function, options, batches, held)


def _warn_of_few(samples: int, held: int) -> None:
    if samples == 1:
        what = "1 calibration sample: its errors say little about other inputs"
    elif not held:
        what = f"0 held-back samples of {samples}: no other inputs confirm the result"
    else:
        return
    warnings.warn(f"search: {what}. Give hundreds of samples, along dimension 0.", SearchWarning, stacklevel=4)


def costs_of(layers: Sequence[Layer], task: Task) -> tuple[tuple[float, ...], ...]:
    """The cost of each layer at each rung.

    Raises:
        SearchError: for a cost that is no number from 0.
    """
    found = tuple(tuple(float(task.cost(rung.bits, layer.macs)) for rung in task.rungs) for layer in layers)
    for value in (value for row in found for value in row):
        if not (math.isfinite(value) and value >= 0):
            raise refusal(f"cost that returned {value:g}", "finite numbers from 0", "Return a larger one for more.")
    return found
