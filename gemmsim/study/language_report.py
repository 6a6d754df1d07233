"""Table and loss curves of the language study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from .base import Row
from .plots.lines import Line, Picture, draw_lines

__all__ = ["finding", "loss_plot", "loss_table"]


def _name(row: Row) -> str:
    return "float32" if row["what"] == "truth" else f"{row['format']}, {row['accumulator']} sums"


def _truth(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row["what"] == "truth"), None)


def loss_table(rows: Sequence[Row]) -> Table:
    """One line per training: losses, and how far they are above float32's."""
    table = Table(title="Loss of a small GPT, nats a character", title_justify="left")
    headings = ("operands of products", "accumulator", "training loss", "above float32", "test loss", "above float32")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    truth = _truth(rows)
    for row in rows:
        cells = [str(row["format"]), str(row["accumulator"] or "PyTorch's")]
        for column in ("train_loss", "test_loss"):
            above = "" if truth is None or row is truth else f"{row[column] - truth[column]:+.3f}"
            cells += [f"{row[column]:.3f}", above]
        table.add_row(*cells)
    return table


def finding(rows: Sequence[Row]) -> str:
    """What the rows show: by how much each format's final training loss is above float32's."""
    truth = _truth(rows)
    others = [row for row in rows if row is not truth]
    if truth is None or not others:
        return "Training loss by block format (unfinished)"
    parts = [f"{row['format']} ({row['accumulator']}) {row['train_loss'] - truth['train_loss']:+.2f}" for row in others]
    half = (len(parts) + 1) // 2
    lines = ", ".join(parts[:half]), ", ".join(parts[half:])
    return "Training loss at the end, against float32's:\n" + "\n".join(line for line in lines if line)


def loss_plot(rows: Sequence[Row], path: Path, *, every: int) -> None:
    """Writes the picture (.png or .svg): loss against steps, a line for each training."""
    lines = []
    for row in rows:
        losses = [float(text) for text in row["curve"].split()]
        points = [((at + 0.5) * every, loss) for at, loss in enumerate(losses)]
        lines.append(Line(f"{_name(row)}: {row['train_loss']:.2f}", points))
    picture = Picture(
        finding=finding(rows),
        subject="operands of every matrix product, and the loss at the end",
        x="step",
        y=f"training loss (nats a character, mean of {every} steps)",
        log_x=False,
        log_y=False,
    )
    draw_lines(lines, picture, path)
