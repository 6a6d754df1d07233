"""How many significand bits does an accumulator need? A small network on real handwritten digits.

Data: scikit-learn's bundled digits (1,797 images of 8 x 8 pixels, UCI ML hand-written digits test set), every third one
for testing. Network: 64-256-10 with ReLU, trained in plain float32 by torch alone; no emulation touches the training.
Then both matrix products of the forward pass run on the test images under every accumulator of the grid, operands as
given (float32), bias and ReLU in float32. Beside it stands the same pass in float64, which is exact for this purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs

from .base import Row, Study
from .cells import Cell, Scalar, columns, digest
from .digits_network import Data, Network, load_data, trained_network
from .grid import accumulator_grid

FORMATS = ("e5m10", "bf16", "e5m5", "e5m4", "e5m3", "e5m2", "e5m1")
ROUNDINGS = ("rne", "sr8", "rtz")
#: Stochastic accumulators are drawn with each of these seeds; the others need one.
SEEDS = (0, 1, 2)

#: Change it when the data, the network or the training below changes: old rows are then no longer the same cells.
SETTING = {"data": "sklearn digits, every third image tests", "network": "64-256-10 relu", "training": 1}

SUBJECT = f"handwritten digits, 64-256-10 network trained in float32, {Data.TEST_IMAGES} test images"

TRUTH_SPEC = ":fp64"


@dataclass(frozen=True)
class DigitsContext:
    """What every cell is measured with: data, trained network, and the logits of the float64 pass."""

    data: Data
    network: Network
    truth: Tensor
    fingerprint: str


class DigitsStudy(Study):
    """Test accuracy and logit error of the digits network under 7 accumulator formats x 3 roundings."""

    name = "digits"
    title = "accuracy of a 64-256-10 network on handwritten digits, by accumulator format and rounding"

    def cells(self) -> list[Cell]:
        """The float64 pass first, then the grid from wide to narrow."""
        setting = digest(SETTING)
        macs = Data.TEST_IMAGES * Network.MACS_PER_IMAGE
        truth = columns(what="truth", format="fp64", rounding="rne", significand_bits=53)
        cells = [Cell(self.name, setting, str(gs.GemmSpec.parse(TRUTH_SPEC)), 0, truth, macs=macs)]
        for point in accumulator_grid(FORMATS, ROUNDINGS, seeds=SEEDS):
            shown = columns(
                what="accumulator",
                format=point.format,
                rounding=point.rounding,
                significand_bits=point.significand_bits,
            )
            cells.append(
                Cell(self.name, setting, point.spec, point.seed, shown, stochastic=point.stochastic, macs=macs)
            )
        return cells

    def prepare(self, folder: Path) -> DigitsContext:
        """Trains the network, or reads it back from ``folder``."""
        data = load_data()
        network = trained_network(data, folder / "network.npz", digest(SETTING))
        truth = exact_logits(network, data.test_images)
        return DigitsContext(data, network, truth, network.fingerprint())

    def evaluate(self, cell: Cell, context: DigitsContext) -> dict[str, Scalar]:
        """Accuracy on the test images, and the error of the logits against the float64 pass."""
        data = context.data
        if dict(cell.columns)["what"] == "truth":
            result = exact_logits(context.network, data.test_images)
        else:
            result = logits(context.network, data.test_images, cell.spec, cell.seed)
        backend = gs.last_backend()
        error = (result.double() - context.truth).abs()
        predicted = result.argmax(dim=1)
        correct = int((predicted == data.test_labels).sum())
        return {
            "accuracy": correct / len(data.test_labels),
            "correct": correct,
            "images": len(data.test_labels),
            "same_answer_as_truth": float((predicted == context.truth.argmax(dim=1)).double().mean()),
            "logit_error_mean": float(error.mean()),
            "logit_error_max": float(error.max()),
            # How the second product ran; the first one runs the same way.
            "backend": backend.plan if backend is not None else None,
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """One line per format, one column per rounding."""
        from .table import accuracy_table

        return accuracy_table(rows, title="Test accuracy on handwritten digits, and mean logit error")

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Accuracy against the accumulator's significand bits."""
        from .plot import accuracy_plot

        accuracy_plot(rows, path, subject=SUBJECT, guessing=0.1)


def logits(network: Network, images: Tensor, spec: str, seed: int) -> Tensor:
    """Forward pass of ``network`` with both matrix products under ``spec``; each layer draws its own random bits."""
    hidden = torch.relu(gs.qmatmul(images, network.w1.mT, spec, seed=2 * seed) + network.b1)
    return gs.qmatmul(hidden, network.w2.mT, spec, seed=2 * seed + 1) + network.b2


def exact_logits(network: Network, images: Tensor) -> Tensor:
    """The same pass with everything in float64: its error is about 1e-15, far below anything compared with it."""
    return logits(network.to(torch.float64), images.double(), TRUTH_SPEC, seed=0)
