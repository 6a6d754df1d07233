"""``search``: the narrowest accumulators, layer by layer, with which a model keeps its answers."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from gemmsim.emulation import ConfigError, arithmetic_of

from .batches import Batch, divided, read_batches, samples_in
from .error_table import WHOLE, ErrorTable, make_table, method_for
from .errors import SearchWarning, refusal
from .findings import FrontPoint, LayerRow
from .ladder import LadderLike, Rung, read_ladder
from .layers import Layer, Products, find_layers
from .metrics import Measurement, MetricLike, read_metric
from .options import SearchOptions
from .prediction import Prediction, measured_inflation
from .result import SearchResult
from .runs import Runs, Setting, evaluating, repeats
from .verification import Verifier

__all__ = ["CostLike", "search"]

#: A cost by name, or a function of a register's bits and a layer's multiply-adds a sample.
CostLike: TypeAlias = str | Callable[[int, float], float]

_COSTS: dict[str, Callable[[int, float], float]] = {
    "bits*macs": lambda bits, macs: bits * macs,
    "bits": lambda bits, macs: float(bits),
}
#: Points of the front that a result shows, and of these how many are verified where the whole model was run anyway.
_SHOWN, _VERIFIED = 64, 8
#: Runs of verification and repair, by method.
_RUNS = {WHOLE: 400}
_RUNS_CAPTURED = 40


@dataclass(frozen=True)
class _Task:
    """What was asked for, checked."""

    model: nn.Module
    metric: MetricLike
    at_most: float
    rungs: tuple[Rung, ...]
    cost: Callable[[int, float], float]
    options: SearchOptions
    batches: list[Batch]
    held: list[Batch]


def search(
    model: nn.Module,
    inputs: Any,
    *,
    metric: MetricLike = "logit_err",
    at_most: float = 0.05,
    ladder: LadderLike = "e5m1:e5m10",
    order: str = "{}",
    cost: CostLike = "bits*macs",
    options: SearchOptions | None = None,
) -> SearchResult:
    """The cheapest accumulators found, one for each layer, with which ``metric`` of the whole model is ``at_most``.

    A layer is what a rule of ``gs.emulate`` reaches: the forward products of one kind at one module path. The model
    runs in evaluation mode, without gradients, and is as it was afterwards. The errors that single layers make predict
    those of all settings; the setting is found on the predicted Pareto front, measured on the whole model, repaired
    until it holds there, and measured once more on inputs that took no part. Equal arguments give an equal result.

    Args:
        model: any module that ``gs.emulate`` takes.
        inputs: calibration inputs: a tensor, a tuple for ``model(*inputs)``, a dict for ``model(**inputs)``, or a list
            of these. Dimension 0 counts samples; hundreds are better than ten. A quarter is held back.
        metric: "logit_err", the norm of the difference of the logits over their norm; "max_err", the largest
            difference over the largest logit; or a function of (output, reference output) of one batch that gives an
            error from 0. Logits are the attribute ``logits`` of the output, or its first floating-point tensor.
        at_most: the largest error allowed. Of "logit_err" it bounds the 95 % limit for as many samples as are held
            back, which lies above the measured error.
        ladder: the registers to choose from: a range of one number ("e5m1:e5m10", "int(12):int(24)"), a list
            ("e4m3, bf16, fp32"), or integers, which are widths of integer registers.
        order: the accumulator around the register, which takes the place of {}: "{}", "chunked(64, {})", "kahan({})",
            or a spec with operand formats, "e4m3 : chunked(64, {})".
        cost: "bits*macs", register bits times multiply-adds; "bits", register bits alone; or a function of these two.
        options: ``SearchOptions``: what is held back, which modules, the reference, the method, seeds.

    Raises:
        SearchError: for a target that the widest setting misses (with the number), models without matched products,
            outputs that are NaN or change from run to run, and arguments that mean nothing.
        ConfigError, SpecError, UnsupportedSpec: for patterns and specs that the model's products do not take.

    NaN, infinities: a setting whose outputs are not all finite has an infinite error.

    Warns with ``SearchWarning`` where one calibration sample, or nothing held back, makes the figures weak.

    Source: errors of independent roundings add by squares; knapsack by dynamic programming.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 8, bias=False)
        >>> _ = layer.weight.data.copy_(torch.linspace(-1, 1, 512).view(8, 64))
        >>> gs.search(layer, torch.linspace(0, 1, 4096).view(64, 64), at_most=0.1).config
        <Config of 1 rule: '' 'linear' ':e5m6'>
    """
    started = time.perf_counter()
    task = _task(model, inputs, metric, at_most, (ladder, order), cost, options)
    with evaluating(model):
        return _search(task, order, started)


def _task(
    model: nn.Module,
    inputs: Any,
    metric: MetricLike,
    at_most: float,
    ladder: tuple[LadderLike, str],
    cost: CostLike,
    options: SearchOptions | None,
) -> _Task:
    """The arguments, checked; ``SearchError`` for those that mean nothing."""
    if not isinstance(model, nn.Module):
        raise refusal(f"model of type {type(model).__name__}", "a module", "Wrap a function in a torch.nn.Module.")
    if any(arithmetic_of(module) is not None for module in model.modules()):
        raise refusal(
            "a model that gemmsim.convert converted",
            "models that compute as PyTorch does",
            "Call gemmsim.emulation.undo(model), search, and convert it with the config that is found.",
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
    return _Task(model, metric, float(at_most), rungs, function, options, batches, held)


def _warn_of_few(samples: int, held: int) -> None:
    if samples == 1:
        what = "1 calibration sample: its errors say little about other inputs"
    elif not held:
        what = f"0 samples held back of {samples}: no other inputs confirm what is found"
    else:
        return
    warnings.warn(f"search: {what}. Give hundreds of samples, along dimension 0.", SearchWarning, stacklevel=4)


def _search(task: _Task, order: str, started: float) -> SearchResult:
    options, rungs = task.options, task.rungs
    products = _products(task)
    base = None if options.reference == "native" else len(rungs) - 1
    runs = Runs(
        task.model, task.batches, products.layers, rungs, task.metric, base, options.seed, samples_in(task.held)
    )
    _check_repeats(runs, task.at_most)
    wide = _widest(runs, task.at_most)
    method = method_for(runs, options.method)
    table = make_table(runs, method, task.at_most)
    prediction = Prediction.of(table, _costs(products.layers, task))
    inflation, settings = measured_inflation(prediction, runs, task.at_most, options.seed)
    prediction = Prediction(table, prediction.costs, inflation, prediction.front)
    most = options.runs or _RUNS.get(method, _RUNS_CAPTURED)
    chosen = Verifier(prediction, runs, task.at_most, most, wide).find()
    front = _front(prediction, runs, chosen, verified=_VERIFIED if method == WHOLE else 0)
    held = _held_back(task, runs, chosen)
    _warn_of_miss(held, task, runs.samples)
    return SearchResult(
        config=runs.config(chosen),
        chosen=_point(prediction, runs, chosen),
        front=front,
        table=_rows(runs, table, chosen),
        at_most=task.at_most,
        metric=_name(task.metric),
        order=order,
        ladder=tuple(rung.register for rung in rungs),
        measured=runs.measure(chosen),
        held_back=held,
        samples=runs.samples,
        samples_held_back=samples_in(task.held),
        widest=runs.measure(wide).error,
        method=method,
        reference=options.reference,
        inflation=inflation,
        random_settings=settings,
        passes=runs.passes,
        seconds=time.perf_counter() - started,
        native_macs=products.other_macs,
        native_places=products.others,
        specs={rung.register: rung.spec for rung in rungs},
    )


def _products(task: _Task) -> Products:
    """The layers, found by a run at the widest rung.

    Raises:
        SearchError: for none, and for operands that an integer register cannot add.
    """
    try:
        return find_layers(task.model, task.batches, task.rungs[-1].spec, task.options)
    except ConfigError:
        raise
    except ValueError as error:
        if "adds whole numbers" not in str(error):
            raise
        raise refusal(
            f"{task.rungs[-1].spec!r}: {str(error).splitlines()[0].rstrip('.')}",
            "models of whole numbers for int(P)",
            "Try a ladder of fixed(P, frac), or of floating-point formats.",
        ) from None


def _check_repeats(runs: Runs, at_most: float) -> None:
    """``SearchError`` for a model that gives other outputs for the same inputs."""
    found = repeats(runs).error
    if not found <= at_most / 100:
        raise refusal(
            f"a model whose outputs differ by {found:.3g} from one run to the next",
            f"differences of at most {at_most / 100:.3g}, a hundredth of at_most",
            "Take random numbers out of its forward pass.",
        )


def _widest(runs: Runs, at_most: float) -> tuple[int, ...]:
    """The setting of all layers at the widest rung.

    Raises:
        SearchError: where it misses the target, with the number.
    """
    wide = (len(runs.rungs) - 1,) * len(runs.layers)
    found = runs.measure(wide)
    if found.limit <= at_most:
        return wide
    spec = runs.rungs[-1].spec
    text = f"an error of {found.error:.3g}" if math.isfinite(found.error) else "outputs that are NaN or infinite"
    if found.error <= at_most:
        text += f", which for other samples may be {found.limit:.3g}"
    do = "Allow more, or widen the ladder."
    if math.isinf(found.error):
        do = "Widen the range of exponents of the ladder, scale the inputs, or give a format with more range."
    if runs.base is None and ":" in spec and spec.partition(":")[0].strip():
        do += " With SearchOptions(reference='widest') the operand formats are no part of the error."
    raise refusal(
        f"at_most={at_most:g}, which the widest setting, {spec!r} in all {len(runs.layers)} layers, misses with {text}",
        "targets that the widest setting reaches",
        do,
    )


def _costs(layers: Sequence[Layer], task: _Task) -> tuple[tuple[float, ...], ...]:
    """The cost of each layer at each rung.

    Raises:
        SearchError: for a cost that is no number from 0.
    """
    found = tuple(tuple(float(task.cost(rung.bits, layer.macs)) for rung in task.rungs) for layer in layers)
    for value in (value for row in found for value in row):
        if not (math.isfinite(value) and value >= 0):
            raise refusal(f"cost that returned {value:g}", "finite numbers from 0", "Return a larger one for more.")
    return found


def _point(prediction: Prediction, runs: Runs, setting: tuple[int, ...]) -> FrontPoint:
    total = sum(layer.macs for layer in runs.layers)
    bits = sum(runs.rungs[rung].bits * layer.macs for layer, rung in zip(runs.layers, setting, strict=True)) / total
    known = runs.known(setting)
    measured = None if known is None else known.error
    registers = tuple(runs.rungs[rung].register for rung in setting)
    return FrontPoint(prediction.cost(setting), bits, prediction.error(setting), measured, registers)


def _front(prediction: Prediction, runs: Runs, chosen: tuple[int, ...], verified: int) -> tuple[FrontPoint, ...]:
    """Evenly spaced points of the front and the chosen one, by rising cost; ``verified`` of them are run."""
    settings = [point.setting for point in prediction.front]
    shown = _evenly(settings, _SHOWN)
    for setting in _evenly(shown, verified):
        runs.measure(setting)
    known = [setting for setting in settings if runs.known(setting) is not None]
    points = [_point(prediction, runs, setting) for setting in dict.fromkeys([*shown, *known, chosen])]
    return tuple(sorted(points, key=lambda point: (point.cost, point.predicted)))


def _evenly(values: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    if len(values) <= count:
        return values
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def _held_back(task: _Task, runs: Runs, chosen: Setting) -> Measurement | None:
    if not task.held:
        return None
    other = Runs(task.model, task.held, runs.layers, runs.rungs, task.metric, runs.base, runs.seed)
    found = other.measure(chosen)
    runs.passes += other.passes
    return found


def _warn_of_miss(held: Measurement | None, task: _Task, samples: int) -> None:
    if held is not None and not held.error <= task.at_most:
        said = (
            f"search: {held.error:.3g} on the {samples_in(task.held)} samples held back, above "
            f"at_most={task.at_most:g}, which holds on the {samples} calibration samples. "
            "Give more of them, or a smaller at_most."
        )
        warnings.warn(said, SearchWarning, stacklevel=4)


def _rows(runs: Runs, table: ErrorTable, chosen: tuple[int, ...]) -> tuple[LayerRow, ...]:
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


def _name(metric: MetricLike) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))
