"""How the error of a product grows with the length of its sums, by accumulator."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gemmsim as gs

from .. import bounds, metrics
from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve, output_format, unit_roundoff
from ..distributions import distributions
from ..errors import StudyError
from ..metrics import EVENTS, SHOWN, without_units
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, accumulators, at_least, choice, counts, option, real
from ..plots.bars import Bar, draw_bars
from ..plots.lines import Line, Picture, draw_lines
from .kind import Kind, macs_per_s
from .pivot import mean_of, pivot_table, series

__all__ = ["Growth", "GrowthParameters", "growth_plot", "measure_product"]
_WORDS = {**SHOWN, **EVENTS}
#: Metrics near 1, or often 0.
_LINEAR = ("ratio", *EVENTS)


@dataclass(frozen=True)
class GrowthParameters(Parameters):
    """Accumulators x lengths x distributions x seeds."""

    kind: ClassVar[str] = "growth"

    spec: tuple[Curve, ...] = accumulators(
        "sequential = e8m10", "chunk64 = chunked(64, e8m10)", "pairwise = pairwise(e8m10)", "kahan = kahan(e8m10)"
    )
    K: tuple[int, ...] = counts("2^6:2^12:x2")
    dist: tuple[str, ...] = option("randn,rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(32, at_least(1), "Rows of the result.")
    N: int = option(32, at_least(1), "Columns of the result.")
    in_: Placement = option(
        "", placement, "Format of the operands: e4m3/row, e4m3/tensor, e4m3/none.", metavar="FORMAT"
    )
    scale: float = option(1.0, real(2.0**-1000, 2.0**1000), "Factor of both operands before that.")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and random bits: seeds 0 to N - 1.")
    events: str = option(
        "no", choice("no", "yes"), "Count additions: fractions swamped, inexact, underflow and overflow."
    )
    metric: str = option("bwd_err_u_mean", choice(*metrics.SHOWN, *metrics.EVENTS), "What table and picture show.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric in metrics.EVENTS and self.events == "no":
            raise StudyError(f"metric = {self.metric!r} is a fraction of additions; add --events yes.")


class Growth(Kind[GrowthParameters]):
    """Error of the products of random operands under each accumulator, against the length of the sums."""

    parameters = GrowthParameters
    about = "error against the length of the sums, by accumulator and distribution"

    def cells_of(self, part: GrowthParameters) -> Iterator[Cell]:
        """Accumulators innermost: they share operands."""
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    named: dict[str, Scalar] = {"in": str(part.in_), "scale": part.scale}
                    if part.events == "yes":
                        named["events"] = "yes"
                    shown = columns(K=k, M=part.M, N=part.N, dist=dist, **named)
                    operands = f"{dist}|{part.M}|{k}|{part.N}|{seed}|{part.in_}|{part.scale}"
                    for curve in part.spec:
                        yield self.cell(curve, seed, shown, part.M * k * part.N, operands)

    def inputs(self, cell: Cell, context: Any) -> Operands:
        """The operands that the cell's columns name."""
        at = dict(cell.columns)
        place = placement(at["in"], "in")
        return drawn(str(at["dist"]), int(at["M"]), int(at["K"]), int(at["N"]), cell.seed, place, float(at["scale"]))  # type: ignore[arg-type]

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors of the product, and what theory allows; with ``events`` what happened at its additions."""
        found = measure_product(cell, inputs)
        if dict(cell.columns).get("events") == "yes":
            found |= metrics.event_shares(inputs, gs.GemmSpec.parse(cell.spec), cell.seed)
        return found

    def bytes_needed(self) -> int:
        """Operands in float32 and float64, and their truth."""
        return max(12 * (part.M * k + k * part.N) + 40 * part.M * part.N for part in self.parts for k in part.K)

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each accumulator and distribution, a column for each K."""
        metric = self.parts[0].metric
        return pivot_table(rows, "K", metric, title=self.title, by=_axes(rows), caption=_caption(rows, metric))

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Log-log lines, with the bounds that hold."""
        growth_plot(rows, self.parts[0].metric, self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """By how much each accumulator's error grows from the shortest to the longest sum."""
        metric = self.parts[0].metric
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


def measure_product(cell: Cell, operands: Operands) -> dict[str, Scalar]:
    """Error columns, bounds and speed of the product of ``operands`` under the cell's spec and seed."""
    spec = gs.GemmSpec.parse(cell.spec)
    started = time.perf_counter()
    result = gs.qmatmul(operands.a, operands.b, spec, seed=cell.seed)
    speed = macs_per_s(operands.macs, started)
    k = operands.a.shape[1]
    unit = unit_roundoff(spec)
    reason = {} if unit is not None else {"no_unit_roundoff": metrics.NO_UNIT}
    return {
        **metrics.errors(result, operands, unit, output_format(spec)),
        **reason,
        "bound_det": bounds.deterministic(spec.accumulator, k),
        "bound_prob": bounds.probabilistic(spec.accumulator, k),
        "truth": operands.method,
        "macs_per_s": speed,
    }


def _axes(rows: Sequence[Row]) -> list[str]:
    """What tells curves apart: the accumulator, and the distribution where there are several."""
    return ["label", "dist"] if len({row["dist"] for row in rows}) > 1 else ["label"]


def _caption(rows: Sequence[Row], metric: str) -> str:
    return "; ".join(filter(None, (_WORDS[metric], without_units(rows, metric))))


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
