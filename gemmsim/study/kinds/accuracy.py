"""How accurate is a trained network whose matrix products have this accumulator?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns, digest
from ..networks import digits
from ..networks.digits import Data, Network
from ..parameters import Parameters, at_least, choice, option
from ..templates import Template, formats, register_of, templates
from .accuracy_report import SHOWN, accuracy_finding, accuracy_plot, accuracy_table
from .kind import Kind, macs_per_s

__all__ = ["ORDERS", "Accuracy", "AccuracyParameters", "Pass", "measure_pass", "prepare_pass"]

ORDERS = (
    "sequential = {}",
    "rtz = {}/rtz",
    "sr8 = {}/sr8",
    "chunk16 = chunked(16, {})",
    "pairwise = pairwise({})",
    "kahan = kahan({})",
)
NETWORK = "digits 64-256-10"


@dataclass(frozen=True)
class Pass:
    """What every cell is measured with: images, the trained network, and the logits of the float64 pass."""

    data: Data
    network: Network
    truth: Tensor
    fingerprint: str


@dataclass(frozen=True)
class AccuracyParameters(Parameters):
    """Orders of summation x formats of the register."""

    kind: ClassVar[str] = "accuracy"

    spec: tuple[Template, ...] = option(
        ORDERS,
        templates,
        "Accumulators or specs, 'label = spec'; {} stands for each of --formats.",
        many=True,
        metavar="SPEC",
    )
    formats: tuple[str, ...] = option("e5m10,bf16,e5m5,e5m4,e5m3,e5m2,e5m1", formats, "Formats in the place of {}.")
    seeds: int = option(1, at_least(1, 10**6), "Draws of the random bits of stochastic accumulators.")
    metric: str = option("accuracy", choice(*SHOWN), "What the picture shows.")


class Accuracy(Kind[AccuracyParameters]):
    """Test accuracy and logit error of the shipped digits network, both products of a pass under one accumulator."""

    parameters = AccuracyParameters
    about = "test accuracy of a trained network, by accumulator of its matrix products"
    version = 2
    declared_rate = (1e9, 2.5e8)

    def cells_of(self, part: AccuracyParameters) -> Iterator[Cell]:
        """The float64 pass first, then the formats as given, orders innermost."""
        macs = Data.TEST_IMAGES * Network.MACS_PER_IMAGE
        yield self._cell("truth", "exact", gs.GemmSpec.parse(digits.EXACT), "fp64", 0, macs)
        for number, fmt in enumerate(part.formats):
            for template in part.spec:
                if number and not template.open:
                    continue
                spec = template.spec(fmt)
                for seed in range(part.seeds if spec.is_stochastic else 1):
                    named = fmt if template.open else None
                    yield self._cell("accumulator", template.label, spec, named, seed, macs)

    def _cell(self, what: str, label: str, spec: gs.GemmSpec, fmt: str | None, seed: int, macs: int) -> Cell:
        register = register_of(spec)
        shown = columns(
            what=what,
            network=NETWORK,
            acc_format=fmt or (register[0] if register else None),
            significand_bits=register[1] if register else None,
            M=Data.TEST_IMAGES,
        )
        return Cell(self.name, self.setting, str(spec), seed, shown, spec.is_stochastic, macs, label)

    def prepare(self, folder: Path) -> Pass:
        """Reads images and network, and computes the float64 pass."""
        return prepare_pass(self.setting)

    def evaluate(self, cell: Cell, inputs: Pass) -> Mapping[str, Scalar]:
        """Accuracy on the test images, and the error of the logits against the float64 pass."""
        started = time.perf_counter()
        if dict(cell.columns)["what"] == "truth":
            result = digits.exact_logits(inputs.network, inputs.data.test_images)
        else:
            result = digits.logits(inputs.network, inputs.data.test_images, cell.spec, cell.seed)
        speed = macs_per_s(cell.macs, started)
        backend = gs.last_backend()
        return {
            **measure_pass(result, inputs),
            # How the second product ran; the first one runs the same way.
            "backend": backend.plan if backend is not None else None,
            "macs_per_s": speed,
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """Accuracy and logit error: a line for each format, a column for each order."""
        return accuracy_table(rows, self.title)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The metric from wide to narrow formats, a line for each order."""
        accuracy_plot(rows, self.parts[0].metric, self.finding(rows) or self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """How many significand bits each order needs."""
        return accuracy_finding(rows)


def prepare_pass(setting: str) -> Pass:
    """Images, shipped network and its float64 pass.

    Raises:
        StudyError: without scikit-learn or safetensors.
    """
    data, network = digits.load_data(), digits.shipped_network()
    truth = digits.exact_logits(network, data.test_images)
    return Pass(data, network, truth, digest([setting, network.fingerprint()]))


def measure_pass(result: Tensor, inputs: Pass) -> dict[str, Scalar]:
    """Columns of a forward pass over the test images.

    ================  ==========================================================================
    accuracy          share of images whose largest logit is that of their label
    correct, images   the same as counts
    agree             share of images whose largest logit is that of the exact pass
    logit_err         norm(logits - exact) / norm(exact), Frobenius
    logit_error_mean  mean of abs(logits - exact)
    logit_error_max   largest abs(logits - exact)
    ================  ==========================================================================

    A logit that is NaN counts as the largest of its image, as ``torch.argmax`` has it; errors are then NaN, too.
    """
    error = result.double() - inputs.truth
    predicted = result.argmax(dim=1)
    correct = int((predicted == inputs.data.test_labels).sum())
    return {
        "accuracy": correct / len(inputs.data.test_labels),
        "correct": correct,
        "images": len(inputs.data.test_labels),
        "agree": float((predicted == inputs.truth.argmax(dim=1)).double().mean()),
        "logit_err": float(torch.linalg.norm(error) / torch.linalg.norm(inputs.truth)),
        "logit_error_mean": float(error.abs().mean()),
        "logit_error_max": float(error.abs().max()),
    }
