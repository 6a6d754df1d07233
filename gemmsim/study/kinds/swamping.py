"""Where along a sum terms stop having an effect: the share of swamped additions by position."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve
from ..distributions import distributions, draw
from ..errors import StudyError
from ..operands import Placement, placement
from ..parameters import Parameters, accumulators, at_least, option
from .kind import Kind, macs_per_s
from .pivot import pivot_table, series

__all__ = ["Swamping", "SwampingParameters"]

_IN_ORDER = ("sequential", "kahan", "neumaier", "two_sum", "fast_two_sum")
_EVENTS = ("swamped", "inexact", "underflow", "overflow")


@dataclass(frozen=True)
class SwampingParameters(Parameters):
    """Accumulators x distributions x parts of the sum x seeds."""

    kind: ClassVar[str] = "swamping"

    spec: tuple[Curve, ...] = accumulators("sequential = e6m9", "chunk64 = chunked(64, e6m9)")
    K: int = option(8192, at_least(1), "Terms of each sum.")
    parts: int = option(4, at_least(1, 4096), "Parts of equal length that the sum is looked at in; they divide K.")
    dist: tuple[str, ...] = option("uniform(1,1)*ones", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(64, at_least(1), "Rows of the result.")
    N: int = option(1, at_least(1), "Columns of the result.")
    in_: Placement = option("", placement, "Format of the operands: e4m3/row.", metavar="FORMAT")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and random bits.")


class Swamping(Kind[SwampingParameters]):
    """Additions that left the register as it was although their term was not 0, part by part of the sum."""

    parameters = SwampingParameters
    about = "share of additions without effect, by position in the sum"

    def cells_of(self, part: SwampingParameters) -> Iterator[Cell]:
        """One cell for each part of the sum. StudyError where parts do not divide K or the order has no positions."""
        if part.K % part.parts:
            raise StudyError(f"parts = {part.parts} does not divide K = {part.K}. Choose another.")
        length = part.K // part.parts
        for curve in part.spec:
            _needs_positions(curve, length)
        for dist in part.dist:
            for seed in range(part.seeds):
                named: dict[str, Scalar] = {"K": part.K, "M": part.M, "N": part.N, "dist": dist, "in": str(part.in_)}
                for curve in part.spec:
                    for first in range(0, part.K, length):
                        over, middle = f"{first}:{first + length}", first + length / 2
                        shown = columns(**named, over=over, middle=middle)
                        macs = part.M * (2 * first + length) * part.N
                        yield self.cell(curve, seed, shown, macs)

    def evaluate(self, cell: Cell, inputs: Any) -> Mapping[str, Scalar]:
        """Shares of the additions of this part: those of all terms up to its end, less those up to its beginning."""
        at: dict[str, Any] = dict(cell.columns)
        first, end = map(int, at["over"].split(":"))
        place = placement(at["in"], "in")
        a, b = draw(at["dist"], at["M"], at["K"], at["N"], cell.seed)
        a, b = place(a, 1), place(b, 0)
        started = time.perf_counter()
        until_end = gs.count_events(a[:, :end], b[:end], cell.spec, seed=cell.seed)
        before = gs.count_events(a[:, :first], b[:first], cell.spec, seed=cell.seed)
        speed = macs_per_s(cell.macs, started)
        made = (until_end.additions - before.additions) * at["M"] * at["N"]
        counts = {name: int((getattr(until_end, name) - getattr(before, name)).sum()) for name in _EVENTS}
        return {"additions": made, **{name: count / made for name, count in counts.items()}, "macs_per_s": speed}

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each accumulator, a column for each part."""
        caption = "share of additions that left the register as it was although the term was not 0"
        return pivot_table(rows, "middle", "swamped", title=self.title, by=("label", "dist"), caption=caption)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Share of swamped additions against the position in the sum."""
        from ..plots.lines import Line, Picture, draw_lines

        by = ["label", "dist"] if len({row["dist"] for row in rows}) > 1 else ["label"]
        lines = [
            Line(", ".join(map(str, key)), [(x, 100 * y) for x, y, _, _ in points])
            for key, points in series(rows, "middle", "swamped", by=by).items()
        ]
        picture = Picture(
            finding=self.finding(rows) or self.title,
            subject=f"sums of {rows[0]['K']:,} terms, operands {', '.join(dict.fromkeys(row['dist'] for row in rows))}",
            x="position in the sum (middle of the part)",
            y="additions without effect (%)",
            log_x=False,
            log_y=False,
            y_range=(-3, 103),
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """The shares of the last part."""
        last = max(row["middle"] for row in rows)
        found = {row["label"]: row["swamped"] for row in rows if row["middle"] == last}
        shares = ", ".join(f"{label} {100 * share:.0f} %" for label, share in found.items() if share is not None)
        return f"Additions without effect in the last part of the sum: {shares}"


def _needs_positions(curve: Curve, length: int) -> None:
    """StudyError unless what happens to a term depends on the terms before it only."""
    accumulator = curve.value.accumulator
    while accumulator.name in ("chunked", "promote"):
        n = accumulator.n  # type: ignore[attr-defined]
        if length % n:
            raise StudyError(
                f"{curve.label}: chunks of {n} terms do not divide parts of {length}. Choose other --parts or K."
            )
        accumulator = accumulator.inner  # type: ignore[attr-defined]
    if accumulator.name not in _IN_ORDER:
        raise StudyError(
            f"{curve.label}: terms of {accumulator.name} are not added sequentially. Allowed: "
            f"{', '.join(_IN_ORDER)}, alone or in chunked and promote."
        )
