"""Table, picture and finding of the growth of errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..cells import Row
from ..metrics import EVENTS, SHOWN, without_units
from ..plots.bars import Bar, draw_bars
from ..plots.lines import Line, Picture, draw_lines
from .pivot import mean_of, pivot_table, series

__all__ = ["growth_finding", "growth_plot", "growth_table"]


_WORDS = {**SHOWN, **EVENTS}
#: Metrics near 1, or often 0.
_LINEAR = ("ratio", *EVENTS)


def _axes(rows: Sequence[Row]) -> list[str]:
    """What tells curves apart: the accumulator, and the distribution where there are several."""
    return ["label", "dist"] if len({row["dist"] for row in rows}) > 1 else ["label"]


def growth_table(rows: Sequence[Row], metric: str, title: str) -> Any:
    """Means over seeds."""
    return pivot_table(rows, "K", metric, title=title, by=_axes(rows), caption=_caption(rows, metric))


def _caption(rows: Sequence[Row], metric: str) -> str:
    return "; ".join(filter(None, (_WORDS[metric], without_units(rows, metric))))


def growth_finding(rows: Sequence[Row], metric: str) -> str:
    """Each accumulator's error at the longest sums against that at the shortest."""
    lengths = sorted({row["K"] for row in rows})
    if len(lengths) < 2:
        return ""
    if metric == "ratio":
        return f"Result over true value at K = {lengths[-1]:,}: {_values_at(rows, lengths[-1], metric)}."
    if metric in EVENTS:
        words = EVENTS[metric].removesuffix(", share")
        return f"Share at K = {lengths[-1]:,} of {words}: {_values_at(rows, lengths[-1], metric)}."
    parts = []
    for key, points in series(rows, "K", metric, by=_axes(rows)).items():
        means = {x: mean for x, mean, _, _ in points}
        first, last = means.get(lengths[0]), means.get(lengths[-1])
        if first and last:
            parts.append(f"{', '.join(map(str, key))} {last / first:.3g}")
    between = "; " if len(_axes(rows)) > 1 else ", "
    grows = f"From K = {lengths[0]:,} to {lengths[-1]:,} the error grows by these factors"
    return f"{grows}: {between.join(parts)}." if parts else ""


def _order(rows: Sequence[Row], column: str) -> dict[Any, int]:
    """The column's values, numbered as they appear."""
    return {value: number for number, value in enumerate(dict.fromkeys(row[column] for row in rows))}


def _values_at(rows: Sequence[Row], k: int, metric: str) -> str:
    found = {
        label: mean_of([row for row in rows if row["label"] == label and row["K"] == k], metric)
        for label in dict.fromkeys(row["label"] for row in rows)
    }
    return ", ".join(f"{label} {value:.3g}" for label, value in found.items() if value is not None)


def growth_plot(rows: Sequence[Row], metric: str, title: str, path: Path) -> None:
    """Error against K, log-log; beside backward errors the square root of K and K themselves. Of a single K: bars."""
    axes = _axes(rows)
    # A colour is an accumulator, a dash a distribution.
    colours, dashes = _order(rows, "label"), _order(rows, "dist")
    lines = [
        Line(
            ", ".join(str(part) for part in key),
            [(x, mean) for x, mean, _, _ in points],
            [(low, high) for _, _, low, high in points],
            colour=colours[key[0]],
            dash=dashes[key[1]] if len(axes) > 1 else None,
        )
        for key, points in series(rows, "K", metric, by=axes).items()
    ]
    lengths = sorted({row["K"] for row in rows})
    if len(lengths) == 1:
        _bars(rows, metric, title, path)
        return
    if metric.startswith("bwd_err_u") and len(lengths) > 1:
        lines.append(Line("K", [(k, float(k)) for k in lengths], guide=True))
        lines.append(Line("sqrt(K)", [(k, float(k) ** 0.5) for k in lengths], guide=True))
    first = rows[0]
    shape = f"{first['M']} x K x {first['N']}"
    dists = ", ".join(dict.fromkeys(str(row["dist"]) for row in rows))
    picture = Picture(
        finding=title,
        subject=f"products {shape}, operands {dists}" + (f" in {first['in']}" if first["in"] else ""),
        x="K, terms of each sum",
        y=_WORDS[metric],
        log_y=metric not in _LINEAR,
        ticks=lengths if len(lengths) <= 16 else (),
    )
    draw_lines(lines, picture, path)


def _bars(rows: Sequence[Row], metric: str, title: str, path: Path) -> None:
    found = series(rows, "K", metric, by=_axes(rows))
    bars = [
        Bar(", ".join(map(str, key)), points[0][1], (points[0][2], points[0][3]))
        for key, points in found.items()
        if points
    ]
    first = rows[0]
    subject = f"products {first['M']} x {first['K']:,} x {first['N']}, operands "
    subject += ", ".join(dict.fromkeys(str(row["dist"]) for row in rows)) + (
        f" in {first['in']}" if first["in"] else ""
    )
    draw_bars(bars, title, subject, _WORDS[metric], path, log=metric not in _LINEAR)
