"""Table, picture and finding of the sentence encoder study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from .base import Row
from .plots.lines import Line, Picture, draw_lines
from .sentence_model import LAYERS

__all__ = ["sentence_finding", "sentence_plot", "sentence_table"]

_HEADINGS = {
    "1 - cosine, mean": ("distance_mean", ".2g"),
    "largest": ("distance_max", ".2g"),
    "rank agreement": ("rank_agreement", ".4f"),
    "Kendall": ("kendall_tau", ".3f"),
    "same neighbour": ("top1_agreement", ".2f"),
    "paraphrase first": ("paraphrase_top1", ".2f"),
    "layer 1": ("layer_err_1", ".2g"),
    f"layer {LAYERS}": (f"layer_err_{LAYERS}", ".2g"),
}


def _shown(row: Row, column: str, form: str) -> str:
    return "NaN" if row[column] is None else format(row[column], form)


def sentence_table(rows: Sequence[Row], title: str) -> Table:
    """One line per accumulator: embeddings, similarities, and the error behind the first and the last layer."""
    note = "against PyTorch's float32; layers: norm of the difference over norm"
    table = Table(title=title, caption=note, title_justify="left", caption_justify="left")
    table.add_column("label")
    table.add_column("spec", overflow="fold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for row in rows:
        spec = row["spec"] + (", scaled" if row["scale"] else "")
        table.add_row(row["label"], spec, *(_shown(row, *entry) for entry in _HEADINGS.values()))
    return table


def sentence_finding(rows: Sequence[Row]) -> str:
    """Mean 1 - cosine of the accumulators, where there are some."""
    found = {row["label"]: row["distance_mean"] for row in rows if row["distance_mean"] is not None}
    wanted = [label for label in ("e5m10", "bf16", "e5m10_rtz", "e4m3_fp32", "hopper") if label in found]
    if not wanted:
        return ""
    return "1 - cosine to float32's embeddings: " + ", ".join(f"{label} {found[label]:.2g}" for label in wanted)


def sentence_plot(rows: Sequence[Row], path: Path) -> None:
    """Writes the picture (.png or .svg): error behind each layer, a line for each accumulator."""
    layers = range(1, LAYERS + 1)
    lines = []
    for row in rows:
        points = [(float(n), row[f"layer_err_{n}"]) for n in layers if row[f"layer_err_{n}"] is not None]
        lines.append(Line(row["label"], points))
    picture = Picture(
        finding=sentence_finding(rows) or "Error behind each layer",
        subject="all-MiniLM-L6-v2, unmodified, 24 sentences, every matrix product of the forward pass emulated",
        x="behind layer",
        y="relative error of the hidden states, Frobenius norm",
        log_x=False,
        ticks=[float(n) for n in layers],
    )
    draw_lines(lines, picture, path)
