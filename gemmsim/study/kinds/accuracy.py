"""How accurate is a trained network whose matrix products have this accumulator?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns, digest
from ..networks import digits
from ..networks.digits import Data, Network
from ..parameters import Parameters, at_least, choice, option
from ..plots.lines import Line, Picture, draw_lines
from ..templates import Template, formats, register_of, templates
from .kind import Kind, macs_per_s
from .pivot import mean_of

__all__ = [
    "ORDERS",
    "SHOWN",
    "Accuracy",
    "AccuracyParameters",
    "Pass",
    "accuracy_finding",
    "bits_needed",
    "measure_pass",
    "prepare_pass",
]

ORDERS = (
    "sequential = {}",
    "rtz = {}/rtz",
    "sr8 = {}/sr8",
    "chunk16 = chunked(16, {})",
    "pairwise = pairwise({})",
    "kahan = kahan({})",
)
NETWORK = "digits 64-256-10"

#: Metrics a picture may show, and their words.
SHOWN = {
    "accuracy": "test accuracy",
    "logit_err": "error of the logits, relative, Frobenius norm",
    "agree": "images with the exact pass's answer",
}
#: An accumulator is enough if the accuracy is no more than this below the exact pass's.
TOLERANCE = 0.01


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
    seeds: int = option(1, at_least(1, 10**6), "Number of random-bit seeds for stochastic accumulators.")
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
        formats = _swept(rows)
        if not formats:
            return _list(rows, self.title)
        images = next((row["images"] for row in rows), 0)
        seeds = len({row["seed"] for row in rows})
        note = f"{images} test images"
        note += f"; stochastic orders: mean of {seeds} seeds, ± half their range" * (seeds > 1)
        return Group(
            _grid(rows, formats, "accuracy", f"{self.title}: accuracy", note),
            _grid(rows, formats, "logit_err", "Relative error of the logits", ""),
        )

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The metric from wide to narrow formats, a line for each order."""
        metric = self.parts[0].metric
        finding = self.finding(rows) or self.title
        formats, labels = _swept(rows), _labels(rows)
        factor = 1 if metric == "logit_err" else 100
        if formats:
            bits = {row["acc_format"]: row["significand_bits"] for row in rows}
            ticks = [f"{fmt}\n{bits[fmt]}" for fmt in formats]
            lines = [_line(label, [_of(rows, label, fmt) for fmt in formats], metric, factor) for label in labels]
        else:
            ticks = labels
            lines = [_line(metric, [_of(rows, label) for label in labels], metric, factor)]
        lines += _levels(rows, metric, len(ticks) - 1)
        images = next((row["images"] for row in rows), 0)
        picture = Picture(
            finding=finding,
            subject=f"network 64-256-10 on handwritten digits, {images} test images, both products of the forward pass",
            x="register, and its significand bits (the leading one included)" if formats else "accumulator",
            y=SHOWN[metric] + (" (%)" if factor == 100 else ""),
            log_x=False,
            log_y=factor == 1 and bool(formats),
            ticks=[float(place) for place in range(len(ticks))],
            tick_labels=ticks,
            y_range=(0, 102) if factor == 100 else None if formats else (0, 1.1 * max(y for _, y in lines[0].points)),
        )
        draw_lines(lines, picture, path)

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


def _truth(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row["what"] == "truth"), None)


def _labels(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["label"] for row in rows if row["what"] != "truth"))


def _of(rows: Sequence[Row], label: str, fmt: str | None = None) -> list[Row]:
    return [r for r in rows if r["what"] != "truth" and r["label"] == label and fmt in (None, r["acc_format"])]


def _swept(rows: Sequence[Row]) -> list[str]:
    """The formats if they are an axis of the grid, the most significand bits first; [] if each label has its own."""
    if not any(len({row["acc_format"] for row in _of(rows, label)}) > 1 for label in _labels(rows)):
        return []
    bits = {row["acc_format"]: row["significand_bits"] or 0 for row in rows if row["what"] != "truth"}
    return sorted(bits, key=lambda fmt: -bits[fmt])


def _grid(rows: Sequence[Row], formats: Sequence[str], metric: str, title: str, note: str) -> Table:
    table = Table(title=title, caption=note, title_justify="left", caption_justify="left")
    table.add_column("register")
    table.add_column("significand bits", justify="right")
    labels = _labels(rows)
    for label in labels:
        table.add_column(label, justify="right")
    truth = _truth(rows)
    if truth is not None:
        table.add_row("exact (fp64)", "53", _shown([truth], metric), *[""] * (len(labels) - 1), end_section=True)
    for fmt in formats:
        bits = next(row["significand_bits"] for row in rows if row["acc_format"] == fmt)
        table.add_row(fmt, str(bits or ""), *(_shown(_of(rows, label, fmt), metric) for label in labels))
    return table


def _list(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("accumulator", "spec", "accuracy", "same answer as exact", "logit error"):
        table.add_column(heading, justify="left" if heading in ("accumulator", "spec") else "right", overflow="fold")
    truth = _truth(rows)
    for group in [*([[truth]] if truth else []), *(_of(rows, label) for label in _labels(rows))]:
        numbers = (_shown(group, metric) for metric in ("accuracy", "agree", "logit_err"))
        table.add_row(group[0]["label"], group[0]["spec"], *numbers)
    return table


def _shown(group: Sequence[Row], metric: str) -> str:
    mean = mean_of(group, metric)
    if mean is None:
        return ""
    if metric == "logit_err":
        return f"{mean:.3g}"
    values = [row[metric] for row in group]
    spread = f" ±{(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
    return f"{mean:.3f}{spread}"


def bits_needed(rows: Sequence[Row], label: str, truth: float) -> int | None:
    """Fewest significand bits from which every wider register of this order is within a point of ``truth``."""
    widths = sorted({row["significand_bits"] for row in _of(rows, label) if row["significand_bits"]}, reverse=True)
    needed = None
    for bits in widths:
        found = [mean_of([r], "accuracy") or 0.0 for r in _of(rows, label) if r["significand_bits"] == bits]
        if sum(found) / len(found) < truth - TOLERANCE:
            break
        needed = bits
    return needed


def accuracy_finding(rows: Sequence[Row]) -> str:
    """The bits each order needs; of accumulators without a sweep their accuracies."""
    truth, labels = _truth(rows), _labels(rows)
    if truth is None or not labels:
        return ""
    exact = truth["accuracy"]
    if not _swept(rows):
        return _spread(rows, labels, exact)
    groups: dict[int | None, list[str]] = {}
    for label in labels:
        groups.setdefault(bits_needed(rows, label, exact), []).append(label)
    parts = [
        f"{'more than tried' if bits is None else bits} ({', '.join(names)})"
        for bits, names in sorted(groups.items(), key=lambda item: -(item[0] or 99))
    ]
    return f"Significand bits that keep the accuracy within a point of exact: {', '.join(parts)}"


def _spread(rows: Sequence[Row], labels: Sequence[str], exact: float) -> str:
    """Lowest and highest accuracy and logit error of accumulators that have nothing in common."""
    found = {metric: {label: mean_of(_of(rows, label), metric) for label in labels} for metric in SHOWN}
    values = [100 * value for value in found["accuracy"].values() if value is not None]
    errors = sorted((value, label) for label, value in found["logit_err"].items() if value is not None)
    if not values or not errors:
        return ""
    accuracy = " to ".join(dict.fromkeys(f"{value:.1f}" for value in (min(values), max(values))))
    least, most = (f"{value:.2g} ({label})" for value, label in (errors[0], errors[-1]))
    return f"Accuracy {100 * exact:.1f} % with exact sums, {accuracy} % with these; logit error {least} to {most}"


def _line(label: str, groups: Sequence[Sequence[Row]], metric: str, factor: int) -> Line:
    """Mean and range of the rows of each place that has some."""
    points, spread = [], []
    for place, group in enumerate(groups):
        values = [factor * row[metric] for row in group if row.get(metric) is not None]
        if values:
            points.append((float(place), sum(values) / len(values)))
            spread.append((min(values), max(values)))
    return Line(label, points, spread)


def _levels(rows: Sequence[Row], metric: str, last: int) -> list[Line]:
    """The exact pass and a blind guess, where the metric is a share of the images."""
    truth = _truth(rows)
    levels = {"exact": 100 * truth[metric]} if truth is not None and metric != "logit_err" else {}
    if metric == "accuracy":
        levels["guessing"] = 10.0
    return [Line(name, [(0.0, value), (float(last), value)], guide=True) for name, value in levels.items()]
