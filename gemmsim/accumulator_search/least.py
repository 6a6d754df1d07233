"""``search``: the narrowest accumulators, layer by layer, with which a model keeps its answers."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

from torch import nn

from gemmsim.emulation import ConfigError

from .batches import samples_in
from .error_table import WHOLE, make_table, method_for
from .errors import SearchWarning, refusal
from .ladder import LadderLike
from .layers import Products, find_layers
from .metrics import Measurement, MetricLike
from .options import SearchOptions
from .points import front_of, point_of, rows_of
from .prediction import Prediction, measured_inflation
from .result import SearchResult
from .runs import Runs, Setting, evaluating, repeats
from .task import CostLike, Task, costs_of, read_task
from .verification import Verifier

__all__ = ["search"]

#: Points of the front that are verified where the whole model was run for the table anyway.
_VERIFIED = 8
#: Runs of verification and repair, by method.
_RUNS = {WHOLE: 400}
_RUNS_CAPTURED = 40


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
    """The cheapest accumulators found, one per layer, for which a model's ``metric`` is at most ``at_most``.

    A layer is what a rule of ``gs.emulate`` reaches: the forward products of one kind at one module path. The model
    runs in evaluation mode, without gradients, and is unchanged afterwards. The errors that single layers make predict
    those of all settings. The search finds a setting on the predicted Pareto front, measures it on the whole model,
    repairs it until it holds there, and measures it once more on inputs that took no part. Equal arguments give an
    equal result.

    Args:
        model: any module that ``gs.emulate`` takes.
        inputs: calibration inputs: a tensor, a tuple for ``model(*inputs)``, a dict for ``model(**inputs)``, or a list
            of these. Dimension 0 counts samples; hundreds are better than ten. A quarter is held back.
        metric: "logit_err", the norm of the difference of the logits over their norm; "max_err", the largest difference
            over the largest logit; or a function of (output, reference output) of one batch that gives an error from 0.
            Logits are the attribute ``logits`` of the output, or its first floating-point tensor.
        at_most: the largest error allowed. For "logit_err" it limits the upper 95 % confidence bound of the error
            for as many samples as are held back. That bound is above the measured error.
        ladder: the accumulators to choose from: a range of one number ("e5m1:e5m10", "int(12):int(24)"), a list ("e4m3,
            bf16, fp32"), or integers, which are widths of integer accumulators.
        order: the accumulator around the format, which takes the place of {}: "{}", "chunked(64, {})", "kahan({})", or
            a spec with operand formats, "e4m3 : chunked(64, {})".
        cost: "bits*macs", accumulator bits times multiply-adds; "bits", only accumulator bits; or a function of these
            two.
        options: ``SearchOptions``: what is held back, which modules, the reference, the method, seeds.

    Raises:
        SearchError: for a target that the widest setting misses (with the number), models without matched products,
            outputs that are NaN or change from run to run, and arguments that mean nothing.
        ConfigError, SpecError, UnsupportedSpec: for patterns and specs that the model's products do not take.

    NaN, infinities: a setting whose outputs are not all finite has an infinite error.

    It warns with ``SearchWarning`` where the figures are weak: one calibration sample, or nothing held back.

    Source: errors of independent roundings add by squares; knapsack by dynamic programming.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 8, bias=False)
        >>> _ = layer.weight.data.copy_(torch.linspace(-1, 1, 512).view(8, 64))
        >>> gs.search(layer, torch.linspace(0, 1, 4096).view(64, 64), at_most=0.1).config
        <Config of 1 rule: '' 'linear' ':e5m6'>
    """
    started = time.perf_counter()
    task = read_task(model, inputs, metric, at_most, (ladder, order), cost, options)
    with evaluating(model):
        return _search(task, order, started)


def _search(task: Task, order: str, started: float) -> SearchResult:
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
    prediction = Prediction.of(table, costs_of(products.layers, task))
    inflation, settings = measured_inflation(prediction, runs, task.at_most, options.seed)
    prediction = Prediction(table, prediction.costs, inflation, prediction.front)
    most = options.runs or _RUNS.get(method, _RUNS_CAPTURED)
    chosen = Verifier(prediction, runs, task.at_most, most, wide).find()
    front = front_of(prediction, runs, chosen, verified=_VERIFIED if method == WHOLE else 0)
    held = _held_back(task, runs, chosen)
    _warn_of_miss(held, task, runs.samples)
    return SearchResult(
        config=runs.config(chosen),
        chosen=point_of(prediction, runs, chosen),
        front=front,
        table=rows_of(runs, table, chosen),
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


def _products(task: Task) -> Products:
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
            "models that multiply whole numbers, for int(P)",
            "Try a ladder of fixed(P, frac), or of floating-point formats.",
        ) from None


def _check_repeats(runs: Runs, at_most: float) -> None:
    """``SearchError`` for a model that gives other outputs for the same inputs."""
    found = repeats(runs).error
    if not found <= at_most / 100:
        raise refusal(
            f"a model with outputs that differ by {found:.3g} from one run to the next",
            f"differences of at most {at_most / 100:.3g}, a hundredth of at_most",
            "Remove random numbers from its forward pass.",
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
        do += " With SearchOptions(reference='widest') the error does not include the operand formats."
    raise refusal(
        f"at_most={at_most:g}, which the widest setting, {spec!r} in all {len(runs.layers)} layers, misses with {text}",
        "targets that the widest setting reaches",
        do,
    )


def _held_back(task: Task, runs: Runs, chosen: Setting) -> Measurement | None:
    if not task.held:
        return None
    other = Runs(task.model, task.held, runs.layers, runs.rungs, task.metric, runs.base, runs.seed)
    found = other.measure(chosen)
    runs.passes += other.passes
    return found


def _warn_of_miss(held: Measurement | None, task: Task, samples: int) -> None:
    if held is not None and not held.error <= task.at_most:
        said = (
            f"search: {held.error:.3g} on the {samples_in(task.held)} held-back samples, above "
            f"at_most={task.at_most:g}, which holds on the {samples} calibration samples. "
            "Give more of them, or a smaller at_most."
        )
        warnings.warn(said, SearchWarning, stacklevel=4)


def _name(metric: MetricLike) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))
