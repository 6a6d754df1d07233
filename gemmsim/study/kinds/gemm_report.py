"""Table, picture and finding of one product under several accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ..cells import Row
from ..metrics import SHOWN, without_units
from ..plots.bars import Bar, draw_bars
from .pivot import mean_of, numeric

__all__ = ["gemm_finding", "gemm_plot", "gemm_table"]

_ALWAYS = ("rel_fro", "max_rel", "bwd_err_u_mean", "abs_bias_ratio", "nonfinite")


def _labels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["label"], []).append(row)
    return found


def gemm_table(rows: Sequence[Row], metric: str, title: str) -> Table:
    """Means over seeds of the chosen metric and of those that say most."""
    shown = list(dict.fromkeys((metric, *_ALWAYS)))
    missing = next((words for name in shown if (words := without_units(rows, name))), "")
    caption = f"{SHOWN[metric]}; bwd_err_u_mean: {missing}" if missing else SHOWN[metric]
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("accumulator")
    table.add_column("spec")
    for name in shown:
        table.add_column(name, justify="right")
    for label, same in _labels(rows).items():
        values = [mean_of(same, name) for name in shown]
        table.add_row(label, same[0]["spec"], *("" if value is None else f"{value:.3g}" for value in values))
    return table


def gemm_finding(rows: Sequence[Row], metric: str) -> str:
    """Least and largest mean; for a mean of ratios the nearest to 1 and the farthest."""
    centre = 1.0 if metric == "ratio" else 0.0
    means = {label: mean_of(same, metric) for label, same in _labels(rows).items()}
    known = sorted((abs(value - centre), label, value) for label, value in means.items() if value is not None)
    if len(known) < 2:
        return ""
    (least, best, low), (most, worst, high) = known[0], known[-1]
    text = f"{best} is nearest to the true product ({metric} {low:.3g}), {worst} farthest ({high:.3g}"
    return text + (f", {most / least:.3g} times as far)" if least > 0 and most > least else ")")


def gemm_plot(rows: Sequence[Row], metric: str, finding: str, path: Path) -> None:
    """A bar for each accumulator, the spread over seeds on it."""
    bars = []
    for label, same in _labels(rows).items():
        values = [value for row in same if (value := numeric(row, metric)) is not None]
        if values:
            bars.append(Bar(label, sum(values) / len(values), (min(values), max(values))))
    first = rows[0]
    subject = f"{first['a']} x {first['b']}, {first['M']:,} x {first['K']:,} x {first['N']:,}"
    subject += f", operands in {first['in']}" if first["in"] else ""
    draw_bars(bars, finding, subject, SHOWN[metric], path, log=metric != "ratio")
