"""How long the chunks of a chunked sum should be: error against their length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve, curves
from ..distributions import distributions
from ..errors import StudyError
from ..metrics import SHOWN
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, at_least, choice, counts, option, real
from .growth import measure_product
from .kind import Kind
from .pivot import mean_of, pivot_table, series

__all__ = ["Chunk", "ChunkParameters", "Template", "templates"]

_HOLE = "{n}"


@dataclass(frozen=True)
class Template(Curve):
    """A curve whose spec has ``{n}`` in the place of the length of a chunk."""

    def words(self) -> str:
        """``label = spec``."""
        return f"{self.label} = {self.spec}"

    def at(self, n: int) -> Curve:
        """The accumulator with chunks of ``n``."""
        return curves([f"x = {self.spec.replace(_HOLE, str(n))}"])[0]


def templates(given: str | Iterable[str | Curve], name: str) -> tuple[Template, ...]:
    """Accumulators with ``{n}`` in them: each ``SPEC`` or ``label = SPEC``.

    Raises:
        StudyError: none at all, text without ``{n}``, one label twice.
        SpecError, FormatError: text that is no spec with 16 for ``{n}``.
    """
    found: dict[str, Template] = {}
    for entry in [given] if isinstance(given, str) else given:
        label, equals, spec = (entry.label, "=", entry.spec) if isinstance(entry, Curve) else _parts(entry)
        if _HOLE not in spec:
            raise StudyError(f"{name} = {spec!r} has no {{n}}; allowed: such as 'chunked({{n}}, e8m10)'.")
        one = Template(label if equals else spec, spec)
        one.at(16)
        if found.setdefault(one.label, one) != one:
            raise StudyError(f"two accumulators are labelled {one.label!r}. Rename one.")
    if not found:
        raise StudyError(f"{name} lists no accumulator; allowed: such as 'chunked({{n}}, e8m10)'.")
    return tuple(found.values())


def _parts(text: str) -> tuple[str, str, str]:
    label, equals, spec = text.partition(" = ")
    return (label.strip(), equals, spec.strip()) if equals else ("", "", text.strip())


@dataclass(frozen=True)
class ChunkParameters(Parameters):
    """Accumulators with chunks x lengths of chunks x lengths of sums x distributions x seeds."""

    kind: ClassVar[str] = "chunk"

    spec: tuple[Template, ...] = option(
        ("chunked({n}, e8m10)",),
        templates,
        "Accumulators or specs with {n} for the length of a chunk, or 'label = spec'.",
        many=True,
        metavar="SPEC",
    )
    n: tuple[int, ...] = counts("2^0:2^12:x2", "Terms of a chunk; those above K are left out.")
    K: tuple[int, ...] = counts("4096")
    dist: tuple[str, ...] = option("rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(32, at_least(1), "Rows of the result.")
    N: int = option(32, at_least(1), "Columns of the result.")
    in_: Placement = option(
        "", placement, "Format of the operands: e4m3/row, e4m3/tensor, e4m3/none.", metavar="FORMAT"
    )
    scale: float = option(1.0, real(2.0**-1000, 2.0**1000), "Factor of both operands before that.")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and random bits: seeds 0 to N - 1.")
    metric: str = option("bwd_err_u_mean", choice(*SHOWN), "What table and picture show.")


class Chunk(Kind[ChunkParameters]):
    """Error of chunked sums against the length of the chunks: a U, least near the square root of K."""

    parameters = ChunkParameters
    about = "error against the length of the chunks: least near the square root of K"

    def cells_of(self, part: ChunkParameters) -> Iterator[Cell]:
        """Lengths of chunks innermost: they share operands.

        Raises:
            StudyError: every length of chunks is above one of the K.
        """
        if min(part.n) > min(part.K):
            raise StudyError(
                f"n = {min(part.n)} is the shortest chunk, longer than sums of K = {min(part.K)}; "
                "allowed: n from 1 to K. Add shorter chunks."
            )
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    for template in part.spec:
                        for n in part.n:
                            if n <= k:
                                yield self._cell(part, template, dist, k, n, seed)

    def _cell(self, part: ChunkParameters, template: Template, dist: str, k: int, n: int, seed: int) -> Cell:
        shown = columns(n=n, K=k, M=part.M, N=part.N, dist=dist, **{"in": str(part.in_)}, scale=part.scale)
        operands = f"{dist}|{part.M}|{k}|{part.N}|{seed}|{part.in_}|{part.scale}"
        return self.cell(replace(template.at(n), label=template.label), seed, shown, part.M * k * part.N, operands)

    def inputs(self, cell: Cell, context: Any) -> Operands:
        """The operands that the cell's columns name."""
        at: dict[str, Any] = dict(cell.columns)
        return drawn(at["dist"], at["M"], at["K"], at["N"], cell.seed, placement(at["in"], "in"), at["scale"])

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors of the product, and what theory allows."""
        return measure_product(cell, inputs)

    def bytes_needed(self) -> int:
        """Operands in float32 and float64, and their truth."""
        return max(12 * (part.M * k + k * part.N) + 40 * part.M * part.N for part in self.parts for k in part.K)

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each length of chunks, a column for each K; the least of each curve stands in the caption."""
        metric = self.parts[0].metric
        return pivot_table(
            rows, "K", metric, title=self.title, by=[*_axes(rows, with_k=False), "n"], caption=self.finding(rows)
        )

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Error against n, log-log, with the least value of each curve ringed and the square roots of K."""
        from ..plots.lines import Line, Picture, draw_lines

        metric = self.parts[0].metric
        lines = []
        curves_by_key = series(rows, "n", metric, by=_axes(rows))
        for key, points in curves_by_key.items():
            if not points:
                continue
            n, value = min(((x, abs(mean)) for x, mean, _, _ in points), key=lambda point: point[1])
            lines.append(
                Line(
                    _words(key, _axes(rows)),
                    [(x, mean) for x, mean, _, _ in points],
                    [(low, high) for _, _, low, high in points],
                    mark=(n, value, f"n = {n:g}" if len(curves_by_key) <= 3 else ""),
                )
            )
        heights = [y for line in lines for _, y in line.points if y > 0]
        for step, k in enumerate(sorted({row["K"] for row in rows}) if heights else []):
            root, low, high = math.sqrt(k), min(heights) / 2, max(heights) * 1.4 ** (step + 1)
            lines.append(Line("", [(root, low), (root, high)], guide=True, mark=(root, high, f"sqrt({k:g})")))
        first = rows[0]
        lengths = sorted({row["n"] for row in rows})
        picture = Picture(
            finding=self.finding(rows) or self.title,
            subject=f"products {first['M']} x K x {first['N']}, operands "
            + ", ".join(dict.fromkeys(str(row["dist"]) for row in rows))
            + (f" in {first['in']}" if first["in"] else ""),
            x="n, terms of a chunk",
            y=SHOWN[metric],
            log_y=metric != "ratio",
            ticks=lengths if len(lengths) <= 16 else (),
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """The length of chunks with the least error, and the square root of K."""
        metric = self.parts[0].metric
        found = []
        for key in dict.fromkeys(tuple(row[axis] for axis in ("label", "dist", "K")) for row in rows):
            here = [row for row in rows if (row["label"], row["dist"], row["K"]) == key]
            means = {n: mean_of([row for row in here if row["n"] == n], metric) for n in {row["n"] for row in here}}
            known = [(abs(value - (metric == "ratio")), n) for n, value in means.items() if value is not None]
            if known:
                found.append((key, min(known)[1]))
        if len(found) > 2:
            shares = [n / math.sqrt(key[2]) for key, n in found]
            span = f"{min(shares):.3g} to {max(shares):.3g}"
            return f"Least error with chunks of {span} times sqrt(K) in {len(found)} curves"
        parts = [f"n = {n:,} (K = {k:,}, {dist}; sqrt(K) = {math.sqrt(k):.3g})" for (_, dist, k), n in found]
        return f"Least error with chunks of {' and '.join(parts)}" if parts else ""


def _axes(rows: Sequence[Row], *, with_k: bool = True) -> list[str]:
    """What tells curves apart."""
    several = [axis for axis in ("label", "dist", "K") if len({row[axis] for row in rows}) > 1]
    found = [axis for axis in several if with_k or axis != "K"]
    return found or ["label"]


def _words(key: Sequence[Any], axes: Sequence[str]) -> str:
    return ", ".join(f"K = {part:,}" if axis == "K" else str(part) for part, axis in zip(key, axes, strict=True))
