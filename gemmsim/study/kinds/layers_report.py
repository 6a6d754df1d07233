"""Table, picture and finding of the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ..cells import Row
from ..metrics import SHOWN
from ..plots.heat import draw_heat
from .pivot import mean_of

__all__ = ["layers_finding", "layers_plot", "layers_table"]


def _line(row: Row, several: bool) -> str:
    return f"{row['layer']}, {row['role']}" if several else str(row["layer"])


def _values(rows: Sequence[Row], metric: str) -> tuple[list[str], list[str], dict[tuple[str, str], float | None]]:
    """Lines, labels, and the mean over seeds at each pair."""
    several = len({row["role"] for row in rows}) > 1
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((_line(row, several), str(row["label"])), []).append(row)
    lines = list(dict.fromkeys(line for line, _ in groups))
    labels = list(dict.fromkeys(label for _, label in groups))
    return lines, labels, {key: mean_of(same, metric) for key, same in groups.items()}


def layers_table(rows: Sequence[Row], metric: str, title: str) -> Table:
    """Means over seeds; shapes beside the names."""
    lines, labels, values = _values(rows, metric)
    several = len({row["role"] for row in rows}) > 1
    shapes = {_line(row, several): f"{row['M']} x {row['K']:,} x {row['N']}" for row in rows}
    table = Table(title=title, caption=SHOWN[metric], title_justify="left", caption_justify="left")
    table.add_column("layer")
    table.add_column("M x K x N", justify="right")
    for label in labels:
        table.add_column(label, justify="right")
    for line in lines:
        found = [values.get((line, label)) for label in labels]
        table.add_row(line, shapes[line], *("" if value is None else f"{value:.3g}" for value in found))
    return table


def layers_finding(rows: Sequence[Row], metric: str) -> str:
    """The accumulator under which layers differ most, with the layers at both ends."""
    lines, labels, values = _values(rows, metric)
    best: tuple[float, str] = (0.0, "")
    for label in labels:
        known = [(value, line) for line in lines if (value := values.get((line, label))) is not None and value > 0]
        if len(known) < 2:
            continue
        (low, least), (high, most) = min(known), max(known)
        words = f"{most} errs {high / low:.3g} times as much as {least} under {label} ({high:.2g} against {low:.2g})"
        best = max(best, (high / low, words))
    return best[1]


def layers_plot(rows: Sequence[Row], metric: str, finding: str, path: Path) -> None:
    """Layers from top to bottom, accumulators from left to right."""
    lines, labels, values = _values(rows, metric)
    first = rows[0]
    subject = f"operands captured from {first['model']}" + (f", in {first['in']}" if first["in"] else "")
    roles = list(dict.fromkeys(str(row["role"]) for row in rows))
    subject += f", {roles[0]}" if len(roles) == 1 else ""
    draw_heat(lines, labels, values, finding, subject, SHOWN[metric], path)
