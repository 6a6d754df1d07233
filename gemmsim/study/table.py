"""The printed table of an accumulator study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .summary import Point, points, truth_row

Row = dict[str, Any]


def accuracy_table(rows: Sequence[Row], *, title: str) -> Table:
    """One line per format, widest first: accuracy and mean logit error for each rounding; the exact pass on top.

    A cell that is not finished is blank. Stochastic accuracies are means over seeds, with the spread from lowest to
    highest as "+-half of it".
    """
    found = points(rows)
    roundings = list(dict.fromkeys(point.rounding for point in found))
    by_name = {(point.format, point.rounding): point for point in found}
    table = Table(title=title, caption=_caption(rows), title_justify="left", caption_justify="left")
    table.add_column("accumulator")
    table.add_column("significand\nbits", justify="right")
    for rounding in roundings:
        table.add_column(f"accuracy\n{rounding}", justify="right")
    for rounding in roundings:
        table.add_column(f"logit error\n{rounding}", justify="right")
    truth = truth_row(rows)
    if truth is not None:
        blanks = [""] * max(0, len(roundings) - 1)
        exact = ["exact (fp64)", "53", f"{truth['accuracy']:.3f}", *blanks, "0", *blanks]
        table.add_row(*exact[: len(table.columns)], style="bold", end_section=True)
    for name in dict.fromkeys(point.format for point in found):
        line = [by_name.get((name, rounding)) for rounding in roundings]
        bits = next(point.significand_bits for point in line if point is not None)
        table.add_row(name, str(bits), *(_accuracy(point) for point in line), *(_error(point) for point in line))
    return table


def _accuracy(point: Point | None) -> str:
    if point is None:
        return ""
    spread = f" ±{(point.highest - point.lowest) / 2:.3f}" if point.seeds > 1 else ""
    return f"{point.accuracy:.3f}{spread}"


def _error(point: Point | None) -> str:
    return "" if point is None else f"{point.logit_error:.2g}"


def _caption(rows: Sequence[Row]) -> str:
    images = next((row["images"] for row in rows if "images" in row), None)
    seeds = max((point.seeds for point in points(rows)), default=1)
    parts = [f"{images} test images" if images else "", f"sr: mean of {seeds} seeds" if seeds > 1 else ""]
    return "; ".join(part for part in parts if part)
