"""Table, picture and finding of trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ..cells import Row
from ..plots.lines import Line, Picture, draw_lines
from .pivot import mean_of

__all__ = ["train_finding", "train_plot", "train_table"]

_WORDS = {"train_loss": "mean loss of the last epoch, nats", "accuracy": "test accuracy after the last epoch"}


def _accumulator(row: Row) -> str:
    """The label without the roles that it ends with."""
    return str(row["label"]).removesuffix(f" {row['roles']}")


def train_table(rows: Sequence[Row], metric: str, title: str) -> Table:
    """Means over seeds; the training with fp32 sums on top."""
    table = Table(title=title, caption=_WORDS[metric], title_justify="left", caption_justify="left")
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


def _shown(group: Sequence[Row], metric: str) -> str:
    mean = mean_of(group, metric)
    if mean is None:
        return "diverged" if group else ""
    return f"{mean:.3f}"


def train_finding(rows: Sequence[Row]) -> str:
    """Accuracies from best to worst."""
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


def train_plot(rows: Sequence[Row], finding: str, path: Path) -> None:
    """Loss against epochs, a line for each training; seeds as a band."""
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
