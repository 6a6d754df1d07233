"""The digits network with integer operands: what each layer multiplies, and a pass in a narrow register."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import torch
from torch import Tensor

import gemmsim as gs

from ..cells import Cell, Scalar
from ..errors import StudyError
from .accuracy import Pass, measure_pass
from .integer_operands import certificate, integers, worst_sums
from .kind import macs_per_s

__all__ = ["IntegerNetwork", "integer_network", "measure_network"]


@dataclass(frozen=True)
class IntegerNetwork:
    """Weights (K, N) as integers of one scale each, how inputs are scaled, and the pass with exact sums as truth."""

    context: Pass
    a_format: str
    weights: tuple[Tensor, Tensor]
    weight_scales: tuple[float, float]
    #: What the inputs of each layer are multiplied by before they are rounded.
    input_factors: tuple[float, float]
    worst: tuple[Tensor, Tensor]


def integer_network(context: Pass, a_format: str, b_format: str) -> IntegerNetwork:
    """The shipped network with weights in ``b_format`` and inputs of its layers in ``a_format``.

    One scale for each weight matrix, its largest magnitude; images go up to 1; the hidden layer's scale is its largest
    value on the training images in float32. Everything is rounded to nearest even and clamped to the format.

    Raises:
        StudyError: unsigned weights.
    """
    if not getattr(gs.formats.parse_scalar(b_format), "signed", True):
        raise StudyError(f"operands = {a_format}*{b_format}: weights have both signs; give a signed second format.")
    network, data = context.network, context.data
    left, right = gs.formats.parse_scalar(a_format), gs.formats.parse_scalar(b_format)
    hidden = torch.relu(data.train_images @ network.w1.mT + network.b1)
    matrices = (network.w1.mT, network.w2.mT)
    weights = (integers(matrices[0], b_format), integers(matrices[1], b_format))
    made = IntegerNetwork(
        context,
        a_format,
        weights,
        tuple(float(matrix.abs().max()) / float(right.max) for matrix in matrices),  # type: ignore[arg-type]
        (float(left.max), float(left.max) / float(hidden.max())),
        (worst_sums(weights[0], a_format), worst_sums(weights[1], a_format)),
    )
    exact, _ = _forward(made, None)
    return dataclasses.replace(made, context=dataclasses.replace(context, truth=exact))


def measure_network(cell: Cell, inputs: IntegerNetwork) -> dict[str, Scalar]:
    """Columns of the pass over the test images; errors are against the same integers with exact sums."""
    at = dict(cell.columns)
    started = time.perf_counter()
    logits, sums = _forward(inputs, cell.spec)
    counts = [gs.count_overflows(a, b, cell.spec) for a, b, _ in sums]
    speed = macs_per_s(cell.macs, started)
    wrong = [(result.double() != a.double() @ b.double()).flatten() for a, b, result in sums]
    over = torch.cat([count.flatten() for count in counts])
    return {
        **measure_pass(logits, inputs.context),
        "overflow_rate": float((over > 0).double().mean()),
        "overflow_rate_layer1": float((counts[0] > 0).double().mean()),
        "overflow_rate_layer2": float((counts[1] > 0).double().mean()),
        "overflows_mean": float(over.double().mean()),
        "equal_share": 1 - float(torch.cat(wrong).double().mean()),
        **certificate(inputs.weights, inputs.worst, str(at["operands"]), int(at["P"])),  # type: ignore[arg-type]
        "macs_per_s": speed,
    }


def _forward(inputs: IntegerNetwork, spec: str | None) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
    """Logits in float64, and operands and result of both products; with exact sums where ``spec`` is None."""
    network, data = inputs.context.network, inputs.context.data
    # In float64, so that pixels (multiples of 1/16) times a whole number are exact and ties are ties.
    x, found = data.test_images.double(), []
    for weight, bias, weight_scale, factor, last in (
        (inputs.weights[0], network.b1, inputs.weight_scales[0], inputs.input_factors[0], False),
        (inputs.weights[1], network.b2, inputs.weight_scales[1], inputs.input_factors[1], True),
    ):
        whole = gs.quantize(x * factor, inputs.a_format).float()
        result = whole.double() @ weight.double() if spec is None else gs.qmatmul(whole, weight, spec)
        found.append((whole, weight, result))
        x = result.double() * (weight_scale / factor) + bias.double()
        x = x if last else torch.relu(x)
    return x, found
