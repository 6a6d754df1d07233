"""How many random bits stochastic rounding needs: the bias that is left, by their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns
from ..distributions import distributions
from ..errors import StudyError
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, at_least, counts, option, text
from .growth import measure_product
from .kind import Kind
from .pivot import pivot_table, series

__all__ = ["RandomBits", "RandomBitsParameters"]


def _order(given: Any, name: str) -> str:
    order = text(given, name)
    if "{}" not in order:
        raise StudyError(
            f"{name} = {order!r}; allowed: an accumulator with {{}} for a format, such as chunked(64, {{}})."
        )
    return order


@dataclass(frozen=True)
class RandomBitsParameters(Parameters):
    """Numbers of random bits x lengths x distributions x seeds."""

    kind: ClassVar[str] = "sr"

    format: str = option("e6m5", text, "Format of the accumulator.")
    order: str = option("{}", _order, "Order of summation, with {} for the accumulator's format.")
    r: tuple[int, ...] = counts("1:13:+1", "Random bits.", most=32)
    K: tuple[int, ...] = counts("2048")
    dist: tuple[str, ...] = option("rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(32, at_least(1), "Rows of the result.")
    N: int = option(32, at_least(1), "Columns of the result.")
    in_: Placement = option("", placement, "Format of the operands: e5m2/none, e4m3/row.", metavar="FORMAT")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and random bits.")


class RandomBits(Kind[RandomBitsParameters]):
    """Bias of sums under stochastic rounding with r random bits: what lies below them is cut off.

    A rounding with r bits adds a multiple of 2^-r of a unit and truncates, so it loses up to 2^-r of a unit each time.
    """

    parameters = RandomBitsParameters
    about = "bias of stochastic rounding against the number of random bits"

    def cells_of(self, part: RandomBitsParameters) -> Iterator[Cell]:
        """Random bits innermost: they share operands."""
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    shown = columns(K=k, M=part.M, N=part.N, dist=dist, **{"in": str(part.in_)})
                    for r in part.r:
                        register = f"{part.format}/sr{r}"
                        yield Cell(
                            self.name,
                            self.setting,
                            str(gs.GemmSpec.of(part.order.replace("{}", register))),
                            seed,
                            (*shown, *columns(r=r, acc_format=part.format)),
                            stochastic=True,
                            macs=part.M * k * part.N,
                            label=f"r{r}",
                            operands=f"{dist}|{k}|{seed}|{part.M}|{part.N}|{part.in_}",
                        )

    def inputs(self, cell: Cell, context: Any) -> Operands:
        """The operands that the cell's columns name."""
        at: dict[str, Any] = dict(cell.columns)
        return drawn(at["dist"], at["M"], at["K"], at["N"], cell.seed, placement(at["in"], "in"))

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors, and the bias as a share of the most it can be.

        ``bias_bound_u``: each of K roundings loses less than 2^-r of a unit in the last place of its sum, which for
        terms of one sign is at most 2 u S: together 2^(1-r) K in units of S u.
        """
        found = measure_product(cell, inputs)
        at: dict[str, Any] = dict(cell.columns)
        bound = 2.0 ** (1 - at["r"]) * at["K"]
        bias = found["bias_u"]
        return {**found, "bias_bound_u": bound, "bias_of_bound": bias / bound if isinstance(bias, float) else None}

    def table(self, rows: Sequence[Row]) -> Any:
        """Bias in units roundoff for each number of random bits."""
        return pivot_table(
            rows, "r", "bias_u", title=self.title, by=("dist", "K"), caption="mean of e sign(t) / (S u), by random bits"
        )

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Bias against the number of random bits."""
        from ..plots.lines import Line, Picture, draw_lines

        lines = [
            Line(f"{dist}, K = {k}", [(x, y) for x, y, _, _ in points], [(low, high) for _, _, low, high in points])
            for (dist, k), points in series(rows, "r", "bias_u", by=("dist", "K")).items()
        ]
        bits = sorted({row["r"] for row in rows})
        lines.append(Line("no bias", [(bit, 0.0) for bit in bits], guide=True))
        picture = Picture(
            finding=self.finding(rows) or self.title,
            subject=f"stochastic sums in {self.parts[0].format}, {rows[0]['M']} x {rows[0]['N']} outputs",
            x="random bits r of each rounding",
            y="bias: mean of e sign(t) / (S u)",
            log_x=False,
            log_y=False,
            ticks=bits,
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """From how many random bits on no bias can be told from chance."""
        free: int | None = None
        for r in sorted({row["r"] for row in rows}, reverse=True):
            ratios = [row["abs_bias_ratio"] for row in rows if row["r"] == r]
            if any(ratio is None or ratio > 4 for ratio in ratios):
                break
            free = r
        if free is None:
            return "A bias is left with every number of random bits tried"
        return f"From {free} random bits on, no bias is left that {rows[0]['M']} rows could tell from chance"
