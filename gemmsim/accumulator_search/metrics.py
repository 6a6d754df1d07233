"""How far a model's answers are from those of the reference: named metrics, and the user's own function."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .errors import refusal

__all__ = ["METRICS", "Answer", "Measurement", "MetricLike", "measured", "read_metric", "tensor_of"]

#: The name of a metric, or a function of one batch's output and reference output, as the model returned them.
MetricLike: TypeAlias = str | Callable[[Any, Any], Any]

#: Name -> what it is.
METRICS = {
    "logit_err": "relative error of the logits: norm(logits - reference) / norm(reference), over all samples",
    "max_err": "largest error of a logit over the largest logit of the reference",
}
#: One-sided 95 % of a normal distribution.
_Z = 1.645


class Measurement(NamedTuple):
    """An error on some samples. ``limit``: below which that of other samples lies, with 95 % confidence.

    Where one sample or a metric without samples tells no spread, the limit is the error. Both are infinite for answers
    that are not finite.
    """

    error: float
    limit: float


@dataclass(frozen=True)
class Answer:
    """What the model returned for a batch of so many samples."""

    output: Any
    samples: int


def read_metric(metric: MetricLike) -> MetricLike:
    """``metric`` itself.

    Raises:
        SearchError: for a name that no metric has, and for anything but a name or a function.
    """
    if callable(metric) or (isinstance(metric, str) and metric in METRICS):
        return metric
    near = difflib.get_close_matches(metric, METRICS, n=1) if isinstance(metric, str) else []
    allowed = f"{', '.join(map(repr, METRICS))}, or a function of (output, reference output)"
    raise refusal(f"metric {metric!r}", allowed, f"Try {near[0] if near else 'logit_err'!r}.")


def measured(
    metric: MetricLike, answers: Sequence[Answer], references: Sequence[Answer], others: int = 0
) -> Measurement:
    """The error of ``answers`` against ``references``, batch by batch in the same order.

    ``others``: for how many other samples the limit is; 0: for as many.

    Raises:
        SearchError: for a function that returns no number, or one below 0, and for outputs without logits.
    """
    pairs = list(zip(answers, references, strict=True))
    if not isinstance(metric, str):
        return _of_function(metric, pairs)
    tensors = [(tensor_of(one.output).double(), tensor_of(other.output).double()) for one, other in pairs]
    if not all(bool(ours.isfinite().all()) for ours, _ in tensors):
        return Measurement(math.inf, math.inf)
    if metric == "max_err":
        most = max(float((ours - theirs).abs().max()) for ours, theirs in tensors)
        error = most / max(float(theirs.abs().max()) for _, theirs in tensors)
        return Measurement(error, error)
    samples = [one.samples for one, _ in pairs]
    off = torch.cat([_by_sample(ours - theirs, n) for (ours, theirs), n in zip(tensors, samples, strict=True)])
    size = torch.cat([_by_sample(theirs, n) for (_, theirs), n in zip(tensors, samples, strict=True)])
    return _with_limit(off, size, others or len(off))


def _with_limit(off: Tensor, size: Tensor, others: int) -> Measurement:
    """Of squares by sample: root of the ratio of their sums, with the limit for other samples (delta method)."""
    n, square = len(off), float(off.sum() / size.sum())
    error = math.sqrt(square)
    if n < 2 or not square:
        return Measurement(error, error)
    variance = float((off - square * size).square().sum()) * n / (n - 1)
    spread = math.sqrt(variance) / (2 * square * float(size.sum()))  # relative, of the root
    return Measurement(error, error * (1 + _Z * math.sqrt(1 + n / others) * spread))


def _by_sample(values: Tensor, samples: int) -> Tensor:
    """Sums of squares, of each sample where dimension 0 counts samples, else of all."""
    squares = values.square()
    return squares.reshape(samples, -1).sum(1) if values.dim() and len(values) == samples else squares.sum().reshape(1)


def _of_function(metric: Callable[[Any, Any], Any], pairs: Sequence[tuple[Answer, Answer]]) -> Measurement:
    """The mean over batches, weighted by samples."""
    total = 0.0
    for one, other in pairs:
        value = metric(one.output, other.output)
        try:
            found = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise refusal(
                f"metric that returned a {type(value).__name__}",
                "a number from 0, smaller for better",
                "Return one number for a batch.",
            ) from None
        if found < 0:
            raise refusal(
                f"metric that returned {found:g}",
                "a number from 0, smaller for better",
                "Return an error, not a score: 1 - accuracy, not accuracy.",
            )
        total += math.inf if math.isnan(found) else found * one.samples
    error = total / sum(one.samples for one, _ in pairs)
    return Measurement(error, error)


def tensor_of(output: Any) -> Tensor:
    """The logits in what a model returned: its attribute ``logits``, else its first tensor of floating-point numbers.

    Raises:
        SearchError: where there is none.
    """
    found = _first(getattr(output, "logits", None))
    found = _first(output) if found is None else found
    if found is None:
        raise refusal(
            f"a model that returns a {type(output).__name__} without floating-point tensors",
            "outputs with logits",
            "Give a function as metric, or wrap the model.",
        )
    return found


def _first(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.numel() else None
    if isinstance(value, (Mapping, tuple, list)):
        parts = value.values() if isinstance(value, Mapping) else value
        return next((found for part in parts if (found := _first(part)) is not None), None)
    return None
