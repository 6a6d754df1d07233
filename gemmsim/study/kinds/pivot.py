"""Rows as a table with a line for each curve and a column for each value of one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from ..cells import Row

__all__ = ["mean_of", "numeric", "pivot_table", "series"]


def numeric(row: Row, metric: str) -> float | None:
    """The row's number of that name, or None."""
    value = row.get(metric)
    return float(value) if isinstance(value, int | float) else None


def mean_of(rows: Sequence[Row], metric: str) -> float | None:
    """Mean over the rows that have the number; None without any."""
    found = [value for row in rows if (value := numeric(row, metric)) is not None]
    return sum(found) / len(found) if found else None


def series(
    rows: Sequence[Row], x: str, metric: str, *, by: Sequence[str] = ("label",)
) -> dict[tuple[Any, ...], list[tuple[float, float, float, float]]]:
    """Curve -> (x, mean, lowest, highest) over its rows of each x, x ascending. Curves in order of appearance."""
    groups: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    for row in rows:
        value, at = numeric(row, metric), numeric(row, x)
        if at is None:
            continue
        points = groups.setdefault(tuple(row.get(name) for name in by), {})
        if value is not None:
            points.setdefault(at, []).append(value)
    return {
        key: [(at, sum(values) / len(values), min(values), max(values)) for at, values in sorted(points.items())]
        for key, points in groups.items()
    }


def pivot_table(
    rows: Sequence[Row], x: str, metric: str, *, title: str, by: Sequence[str] = ("label",), caption: str = ""
) -> Table:
    """Means over seeds of ``metric``; blank where there is none."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for name in by:
        table.add_column("accumulator" if name == "label" else name)
    found = series(rows, x, metric, by=by)
    at = sorted({point[0] for points in found.values() for point in points})
    for value in at:
        table.add_column(f"{x} = {value:g}", justify="right")
    for key, points in found.items():
        means = {point[0]: f"{point[1]:.3g}" for point in points}
        table.add_row(*(str(part) for part in key), *(means.get(value, "") for value in at))
    return table
