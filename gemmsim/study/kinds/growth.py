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
from ..integer_ranges import numbers
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, accumulators, at_least, choice, option, real
from .kind import Kind
from .speed import macs_per_s

__all__ = ["Growth", "GrowthParameters", "measure_product"]


@dataclass(frozen=True)
class GrowthParameters(Parameters):
    """Accumulators x lengths x distributions x seeds."""

    kind: ClassVar[str] = "growth"

    spec: tuple[Curve, ...] = accumulators(
        "sequential = e8m10", "chunk64 = chunked(64, e8m10)", "pairwise = pairwise(e8m10)", "kahan = kahan(e8m10)"
    )
    K: tuple[int, ...] = option(
        "2^6:2^12:x2", lambda g, n: numbers(g, n, least=1), "Terms of each sum.", metavar="RANGE"
    )
    dist: tuple[str, ...] = option("randn,rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(32, at_least(1), "Rows of the result.")
    N: int = option(32, at_least(1), "Columns of the result.")
    in_: Placement = option(
        "", placement, "Format of the operands: e4m3/row, e4m3/tensor, e4m3/none.", metavar="FORMAT"
    )
    scale: float = option(1.0, real(2.0**-1000, 2.0**1000), "Factor of both operands before that.")
    seeds: int = option(1, at_least(1, 10**6), "Draws of operands and random bits: seeds 0 to this less one.")
    events: str = option(
        "no", choice("no", "yes"), "Whether additions are counted: shares swamped, inexact, underflow and overflow."
    )
    metric: str = option("bwd_err_u_mean", choice(*metrics.SHOWN, *metrics.EVENTS), "What table and picture show.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric in metrics.EVENTS and self.events == "no":
            raise StudyError(f"metric = {self.metric!r} is a share of additions; give --events yes, or another metric.")


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
                    for curve in part.spec:
                        yield Cell(
                            self.name,
                            self.setting,
                            curve.spec,
                            seed,
                            shown,
                            stochastic=curve.stochastic,
                            macs=part.M * k * part.N,
                            label=curve.label,
                            operands=f"{dist}|{part.M}|{k}|{part.N}|{seed}|{part.in_}|{part.scale}",
                        )

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
        from .growth_report import growth_table

        return growth_table(rows, self.parts[0].metric, self.title)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Log-log lines, with the bounds that hold."""
        from .growth_report import growth_plot

        growth_plot(rows, self.parts[0].metric, self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """By how much each accumulator's error grows from the shortest to the longest sum."""
        from .growth_report import growth_finding

        return growth_finding(rows, self.parts[0].metric)


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
