"""How well does a language model train in MX formats? A small GPT on characters, beside the same training in float32.

Text: the Declaration of Independence of 1776 (public domain). Every matrix product of the network, those of attention
and of the backward pass included, has operands in one block format, encoded along its own sum, and one accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

import gemmsim as gs

from .base import Row, Study
from .cells import Cell, Scalar, columns, digest
from .language_model import LanguageModel, Text, load_text, train
from .plots.lines import Line, Picture, draw_lines

#: (block format, accumulator) of each training; None is PyTorch's float32.
TRAININGS: tuple[tuple[str | None, str | None], ...] = (
    (None, None),
    ("mxfp8_e4m3", "fp32"),
    ("mxfp8_e4m3", "bf16"),
    ("mxfp6_e2m3", "fp32"),
    ("nvfp4/tensor", "fp32"),
    ("mxfp4", "fp32"),
)
STEPS = 300
BATCH = 16
#: Losses of the curve are means over this many steps.
EVERY = 10
#: Change it when the text, the network or the training changes: old rows are then no longer the same cells.
SETTING = {
    "text": "declaration, Stone engraving",
    "network": "gpt 2 layers, width 64, context 32",
    "steps": STEPS,
    "training": 1,
}


@dataclass(frozen=True)
class LanguageContext:
    """What every cell is measured with."""

    text: Text
    fingerprint: str


class LanguageStudy(Study):
    """Loss of a small GPT on characters, trained in float32, MXFP8, MXFP6, MXFP4 and NVFP4."""

    name = "language"
    title = "training loss of a small GPT on characters, by block format of all matrix products"
    declared_rate = (5e8, 5e8)

    def cells(self) -> list[Cell]:
        """float32 first, then from wide to narrow."""
        setting = digest(SETTING)
        macs = 3 * STEPS * BATCH * LanguageModel.CONTEXT * LanguageModel.macs(61)
        cells = []
        for fmt, accumulator in TRAININGS:
            spec = str(gs.GemmSpec.parse(": fp32" if fmt is None else f"{fmt} * {fmt} : {accumulator}"))
            shown = columns(what="truth" if fmt is None else "block", format=fmt or "fp32", accumulator=accumulator)
            cells.append(Cell(self.name, setting, spec, 0, shown, macs=macs))
        return cells

    def prepare(self, folder: Path) -> LanguageContext:
        """The text."""
        text = load_text()
        return LanguageContext(text, text.fingerprint())

    def evaluate(self, cell: Cell, context: LanguageContext) -> dict[str, Scalar]:
        """Loss at the end of training and on the test text, and the curve as numbers separated by blanks."""
        given = dict(cell.columns)
        fmt = None if given["what"] == "truth" else str(given["format"])
        accumulator = None if fmt is None else str(given["accumulator"])
        done = train(context.text, fmt, accumulator, steps=STEPS, batch=BATCH, seed=cell.seed)
        means = [sum(done.losses[at : at + EVERY]) / EVERY for at in range(0, STEPS, EVERY)]
        return {
            "first_loss": done.losses[0],
            "train_loss": sum(means[-3:]) / 3,
            "test_loss": done.test_loss,
            "steps": STEPS,
            "curve": " ".join(f"{loss:.4f}" for loss in means),
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """One line per training."""
        table = Table(title="Loss of a small GPT, nats a character", title_justify="left")
        above = "above float32"
        headings = ("operands of products", "accumulator", "training loss", above, "test loss", above)
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

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Loss against steps, one line per training."""
        lines = []
        for row in rows:
            losses = [float(text) for text in row["curve"].split()]
            points = [((at + 0.5) * EVERY, loss) for at, loss in enumerate(losses)]
            lines.append(Line(f"{_name(row)}: {row['train_loss']:.2f}", points))
        picture = Picture(
            finding=finding(rows),
            subject="operands of every matrix product, and the loss at the end",
            x="step",
            y=f"training loss (nats a character, mean of {EVERY} steps)",
            log_x=False,
            log_y=False,
        )
        draw_lines(lines, picture, path)


def _name(row: Row) -> str:
    return "float32" if row["what"] == "truth" else f"{row['format']}, {row['accumulator']} sums"


def _truth(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row["what"] == "truth"), None)


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
