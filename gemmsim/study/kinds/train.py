"""Does a network still learn when the sums of its training are narrow, and in which of the three products?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.table import Table
from torch import Tensor

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve
from ..errors import StudyError
from ..networks.digits import Data, load_data
from ..parameters import Parameters, accumulators, at_least, choice, option, real
from ..plots.lines import Line, Picture, draw_lines
from .kind import Kind
from .pivot import mean_of

__all__ = [
    "ROLES",
    "Train",
    "TrainParameters",
    "Training",
    "roles",
    "train_digits",
]

#: The three products of a layer: outputs, gradients of inputs, gradients of weights.
ROLES = ("fprop", "dgrad", "wgrad")
#: What computes the roles that are not studied: the same bits on every machine.
PLAIN = ":fp32"
LAYERS = ((64, 256), (256, 10))
_WORDS = {"train_loss": "mean loss of the last epoch, nats", "accuracy": "test accuracy after the last epoch"}


def roles(given: Any, name: str) -> tuple[str, ...]:
    """``all,fprop,dgrad+wgrad``: for each entry the products that the accumulator computes.

    Raises:
        StudyError: an unknown product, none at all.
    """
    listed = given.split(",") if isinstance(given, str) else list(given)
    found = []
    for entry in listed:
        parts = ROLES if str(entry).strip() == "all" else tuple(part.strip() for part in str(entry).split("+"))
        for part in parts:
            if part not in ROLES:
                raise StudyError(f"{name} has {part!r}; allowed: all, {', '.join(ROLES)}, or some joined by +.")
        named = [role for role in ROLES if role in parts]
        found.append("all" if len(named) == len(ROLES) else "+".join(named))
    if not found:
        raise StudyError(f"{name} lists no product. Give some, such as all,fprop,dgrad,wgrad.")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class TrainParameters(Parameters):
    """Accumulators x the products they compute x seeds."""

    kind: ClassVar[str] = "train"

    task: str = option("digits", choice("digits"), "What is trained: a 64-256-10 network on handwritten digits.")
    spec: tuple[Curve, ...] = accumulators(
        "e5m3 = e5m3", "rtz = e5m3/rtz", "chunk16 = chunked(16, e5m3)", "sr = e5m3/sr8"
    )
    roles: tuple[str, ...] = option(
        "all,fprop,wgrad", roles, "Products with that accumulator; the others have fp32 sums."
    )
    epochs: int = option(8, at_least(1, 10_000), "Passes over the 1,198 training images.")
    batch: int = option(50, at_least(1, Data.TRAIN_IMAGES), "Images of a step.")
    rate: float = option(0.1, real(0.0, 100.0), "Learning rate; momentum is 0.9.")
    seeds: int = option(1, at_least(1, 10**6), "Number of seeds of initial weights, image orders and random bits.")
    metric: str = option("train_loss", choice("train_loss", "accuracy"), "What the table shows.")


@dataclass(frozen=True)
class Images:
    """What every cell trains and tests on."""

    data: Data
    fingerprint: str


@dataclass(frozen=True)
class Training:
    """Mean loss of each epoch in nats, accuracy on the test images after it, and whether all losses were finite."""

    losses: list[float]
    accuracies: list[float]
    finite: bool


class Train(Kind[TrainParameters]):
    """Loss curves and accuracy of a small network, by accumulator and by the products that have it."""

    parameters = TrainParameters
    about = "loss curves of a small network, by accumulator of its forward and backward products"
    declared_rate = (3e8, 1.5e8)

    def cells_of(self, part: TrainParameters) -> Iterator[Cell]:
        """Of each seed the training with fp32 sums first."""
        macs = part.epochs * Data.TRAIN_IMAGES * (2 * 64 * 256 + 3 * 256 * 10)
        for seed in range(part.seeds):
            yield self._cell(part, Curve("fp32", PLAIN), "none", seed, macs)
            for curve in part.spec:
                for role in part.roles:
                    yield self._cell(part, curve, role, seed, macs)

    def _cell(self, part: TrainParameters, curve: Curve, role: str, seed: int, macs: int) -> Cell:
        shown = columns(
            what="truth" if role == "none" else "accumulator",
            task=part.task,
            roles=role,
            epochs=part.epochs,
            batch=part.batch,
            rate=part.rate,
        )
        label = curve.label if role == "none" else f"{curve.label} {role}"
        return Cell(self.name, self.setting, curve.spec, seed, shown, curve.stochastic, macs, label)

    def prepare(self, folder: Path) -> Images:
        """Reads the images."""
        return Images(load_data(), self.setting)

    def evaluate(self, cell: Cell, inputs: Images) -> Mapping[str, Scalar]:
        """Losses in nats and accuracies of one training.

        ===================  ==========================================================================
        first_loss           mean loss over the first epoch
        train_loss           mean loss over the last epoch; None if it is not finite
        accuracy             share of right answers on the test images after the last epoch
        best_accuracy        the best of all epochs
        diverged             whether a loss was infinite or NaN
        curve, accuracies    losses and accuracies of the epochs, numbers separated by blanks
        ===================  ==========================================================================
        """
        at: dict[str, Any] = dict(cell.columns)
        chosen = ROLES if at["roles"] == "all" else at["roles"].split("+")
        fprop, dgrad, wgrad = (cell.spec if role in chosen else PLAIN for role in ROLES)
        formats = gs.QAffineFormats(fprop=fprop, dgrad=dgrad, wgrad=wgrad)
        done = train_digits(inputs.data, formats, at["epochs"], at["batch"], at["rate"], cell.seed)
        return {
            "first_loss": done.losses[0],
            "train_loss": done.losses[-1],
            "accuracy": done.accuracies[-1],
            "best_accuracy": max(done.accuracies),
            "diverged": not done.finite,
            "curve": " ".join(f"{loss:.5g}" for loss in done.losses),
            "accuracies": " ".join(f"{value:.4f}" for value in done.accuracies),
            "images": len(inputs.data.test_labels),
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each accumulator, a column for the products that have it."""
        metric = self.parts[0].metric
        table = Table(title=self.title, caption=_WORDS[metric], title_justify="left", caption_justify="left")
        table.add_column("accumulator")
        roles = list(dict.fromkeys(row["roles"] for row in rows if row["what"] != "truth"))
        for role in roles or ["none"]:
            table.add_column(f"in {role}", justify="right")
        truth = mean_of([row for row in rows if row["what"] == "truth"], metric)
        if truth is not None:
            table.add_row("fp32 everywhere", f"{truth:.3f}", *[""] * (len(roles) - 1), end_section=True)
        others = [row for row in rows if row["what"] != "truth"]
        for name in dict.fromkeys(_accumulator(row) for row in others):
            groups = ([row for row in others if (_accumulator(row), row["roles"]) == (name, role)] for role in roles)
            table.add_row(name, *(_shown(group, metric) for group in groups))
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Loss against epochs."""
        finding = self.finding(rows) or self.title
        lines = []
        accumulators = list(dict.fromkeys(_accumulator(row) for row in rows))
        roles = list(dict.fromkeys(row["roles"] for row in rows if row["what"] != "truth"))
        for label in dict.fromkeys(row["label"] for row in rows):
            group = [row for row in rows if row["label"] == label]
            runs = [[float(text) for text in row["curve"].split()] for row in group]
            epochs = list(zip(*runs, strict=False))
            points = [(epoch + 1.0, sum(values) / len(values)) for epoch, values in enumerate(epochs)]
            spread = [(min(values), max(values)) for values in epochs]
            role = group[0]["roles"]
            dash = roles.index(role) if role in roles else 0
            lines.append(Line(label, points, spread, colour=accumulators.index(_accumulator(group[0])), dash=dash))
        first = rows[0]
        picture = Picture(
            finding=finding,
            subject=f"network 64-256-10 on handwritten digits, batches of {first['batch']}, rate {first['rate']:g}",
            x="epoch",
            y="training loss, mean of the epoch (nats)",
            log_x=False,
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """Test accuracies at the end, beside that with fp32 sums."""
        labels = list(dict.fromkeys(row["label"] for row in rows))
        found = {label: mean_of([row for row in rows if row["label"] == label], "accuracy") for label in labels}
        known = [(value, label) for label, value in found.items() if value is not None]
        if len(known) < 2:
            return ""
        (worst, last), truth = min(known), mean_of([row for row in rows if row["what"] == "truth"], "accuracy")
        close = [label for value, label in known if truth is not None and label != "fp32" and value >= truth - 0.01]
        start = f"Accuracy {100 * truth:.1f} % with fp32 sums" if truth is not None else "Accuracy"
        near = f"; within a point of it: {', '.join(close)}" if close else ""
        return f"{start}{near}; worst: {last}, {100 * worst:.1f} %"


def train_digits(data: Data, formats: gs.QAffineFormats, epochs: int, batch: int, rate: float, seed: int) -> Training:
    """Trains a 64-256-10 network with ReLU by gradient descent with momentum 0.9, products as ``formats`` says.

    First weights and the order of images depend on ``seed`` alone; random bits of step and layer on it, too. Weights,
    momentum, bias sums of the forward pass and the loss are float32; the sum for a bias' gradient is rounded as in
    wgrad's accumulator. On one thread, so that what PyTorch sums has one order. Testing has the forward accumulator.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _trained(data, formats, epochs, batch, rate, seed)
    finally:
        torch.set_num_threads(threads)


def _trained(data: Data, formats: gs.QAffineFormats, epochs: int, batch: int, rate: float, seed: int) -> Training:
    generator = torch.Generator().manual_seed(seed)
    parameters = _first_parameters(generator)
    speeds = [torch.zeros_like(value) for value in parameters]
    done = Training([], [], True)
    step, finite = 0, True
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(data.train_labels), generator=generator).split(batch):
            random = (seed << 32) + 2 * step
            step += 1
            logits = _forward(data.train_images[chosen], parameters, formats, random)
            loss = torch.nn.functional.cross_entropy(logits, data.train_labels[chosen])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for value, speed, gradient in zip(parameters, speeds, gradients, strict=True):
                    speed.mul_(0.9).add_(gradient)
                    value.sub_(rate * speed)
            total += float(loss.detach()) * len(chosen)
        finite = finite and math.isfinite(total)
        done.losses.append(total / len(data.train_labels))
        with torch.no_grad():
            predicted = _forward(data.test_images, parameters, formats, (seed << 32) + 2 * step).argmax(1)
        done.accuracies.append(float((predicted == data.test_labels).double().mean()))
    return Training(done.losses, done.accuracies, finite)


def _first_parameters(generator: torch.Generator) -> list[Tensor]:
    """w1, b1, w2, b2: uniform with the bound of Glorot and Bengio 2010, equation 16; biases are 0."""
    found: list[Tensor] = []
    for inputs, outputs in LAYERS:
        bound = (6 / (inputs + outputs)) ** 0.5
        weight = (torch.rand(outputs, inputs, generator=generator) * 2 - 1) * bound
        found += [weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)]
    return found


def _forward(images: Tensor, parameters: list[Tensor], formats: gs.QAffineFormats, seed: int) -> Tensor:
    w1, b1, w2, b2 = parameters
    hidden = torch.relu(gs.qlinear(images, w1, b1, formats, seed=seed))
    return gs.qlinear(hidden, w2, b2, formats, seed=seed + 1)


def _accumulator(row: Row) -> str:
    """The label without the roles that it ends with."""
    return str(row["label"]).removesuffix(f" {row['roles']}")


def _shown(group: Sequence[Row], metric: str) -> str:
    mean = mean_of(group, metric)
    if mean is None:
        return "diverged" if group else ""
    return f"{mean:.3f}"
