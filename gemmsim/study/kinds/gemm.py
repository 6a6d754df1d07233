"""The product of two tensors of one's own under any accumulators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.table import Table
from torch import Tensor

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve
from ..errors import StudyError
from ..metrics import SHOWN, without_units
from ..operands import Operands, Placement, of_tensors, placement
from ..parameters import Parameters, accumulators, at_least, choice, option, text
from ..plots.bars import Bar, draw_bars
from ..tensor_files import TensorFile, digest_of, tensor_file
from .growth import measure_product
from .kind import Kind
from .pivot import mean_of, numeric

__all__ = ["Gemm", "GemmParameters", "evenly", "matrix"]
_ALWAYS = ("rel_fro", "max_rel", "bwd_err_u_mean", "abs_bias_ratio", "nonfinite")


@dataclass(frozen=True)
class GemmParameters(Parameters):
    """Accumulators x seeds, on the product of two tensors from files."""

    kind: ClassVar[str] = "gemm"

    a: str = option("", text, "Left operand (M, K): FILE.npy, FILE.safetensors:KEY, FILE.pt or FILE.pt:KEY.")
    b: str = option("", text, "Right operand (K, N), likewise.")
    transpose: str = option("none", choice("none", "a", "b", "ab"), "Operands to transpose first.")
    nonfinite: str = option(
        "refuse", choice("refuse", "zero", "keep"), "NaN and infinities: refuse, zero (in their place), keep."
    )
    spec: tuple[Curve, ...] = accumulators(
        "fp32 = fp32", "bf16 = bf16", "chunk64 = chunked(64, e8m10)", "kahan = kahan(e8m10)"
    )
    in_: Placement = option(
        "", placement, "Format of the operands: e4m3/row, e4m3/tensor, e4m3/none.", metavar="FORMAT"
    )
    rows: int = option(0, at_least(0), "At most this many rows of the result, evenly spaced; 0: all.")
    columns: int = option(0, at_least(0), "At most this many columns of the result, evenly spaced; 0: all.")
    seeds: int = option(1, at_least(1, 10**6), "Seeds of the random bits: 0 to this less one.")
    metric: str = option("rel_fro", choice(*SHOWN), "What table and picture show.")

    def files(self) -> tuple[TensorFile, TensorFile]:
        """Both operands' files.

        Raises:
            StudyError: one of them was not given.
        """
        if not self.a or not self.b:
            missing = " and ".join(f"--{name}" for name in "ab" if not getattr(self, name))
            raise StudyError(f"gemm needs two tensors; give {missing}, such as --a x.npy --b model.safetensors:key.")
        return tensor_file(self.a), tensor_file(self.b)

    def shapes(self) -> tuple[int, int, int]:
        """M, K and N of the product that is computed.

        Raises:
            StudyError: shapes that do not multiply, and whatever is wrong with the files.
        """
        first, second = self.files()
        (m, k), (k2, n) = matrix(first, "a" in _sides(self)), matrix(second, "b" in _sides(self))
        if k != k2:
            fitting = [
                way
                for way in ("none", "a", "b", "ab")
                if matrix(first, "a" in way and way != "none")[1] == matrix(second, "b" in way)[0]
            ]
            hint = f"--transpose {fitting[0]} makes them fit" if fitting else "no transposition makes them fit"
            raise StudyError(
                f"{first.name} is {m} x {k} and {second.name} {k2} x {n}: they do not multiply; {hint}. Allowed: M x K "
                "and K x N, dimensions before the last counted as rows."
            )
        return min(m, self.rows or m), k, min(n, self.columns or n)


def _sides(part: GemmParameters) -> str:
    return part.transpose if part.transpose != "none" else ""


def matrix(file: TensorFile, transposed: bool) -> tuple[int, int]:
    """Rows and columns as the product gets it; dimensions before the last become rows.

    Raises:
        StudyError: fewer than two dimensions.
    """
    shape = file.shape()
    if len(shape) < 2:
        raise StudyError(f"{file.name} has the shape {tuple(shape)}; allowed: two dimensions or more.")
    rows, columns = 1, int(shape[-1])
    for size in shape[:-1]:
        rows *= int(size)
    return (columns, rows) if transposed else (rows, columns)


def evenly(count: int, most: int) -> Tensor | slice:
    """An index of at most ``most`` of ``count`` places, evenly spaced, the first and last among them; 0: all."""
    if not most or most >= count:
        return slice(None)
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()


@dataclass(frozen=True)
class _Tensors:
    fingerprint: str
    operands: Operands


class Gemm(Kind[GemmParameters]):
    """Error of the product of two tensors from files under each accumulator."""

    parameters = GemmParameters
    about = "your own tensors from .npy, .safetensors or .pt files: their product under any accumulators"
    single = "gemm takes one pair of tensors; run it once for each pair."

    def cells_of(self, part: GemmParameters) -> Iterator[Cell]:
        """One for each accumulator and seed; only the files' headers are read."""
        first, second = part.files()
        m, k, n = part.shapes()
        named: dict[str, Scalar] = {"a": first.name, "b": second.name, "in": str(part.in_)}
        given = {"transpose": part.transpose, "nonfinite": part.nonfinite}
        shown = columns(K=k, M=m, N=n, **named, **given)
        for seed in range(part.seeds):
            for curve in part.spec:
                if seed and not curve.stochastic:
                    continue
                yield self.cell(curve, seed, shown, m * k * n, "files")

    def prepare(self, folder: Path) -> _Tensors:
        """The tensors, whose digest every row carries: other values in the same files are other rows."""
        part = self.parts[0]
        part.shapes()
        first, second = part.files()
        a = _operand(first, "a" in _sides(part), part)[evenly(matrix(first, "a" in _sides(part))[0], part.rows)]
        b = _operand(second, "b" in _sides(part), part)
        b = b[:, evenly(b.shape[1], part.columns)]
        fingerprint = digest_of(a, b)
        if a.dtype != b.dtype:
            a, b = a.double(), b.double()
        return _Tensors(fingerprint, of_tensors(part.in_(a, 1), part.in_(b, 0)))

    def inputs(self, cell: Cell, context: _Tensors) -> Operands:
        """The tensors."""
        return context.operands

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors of the product, and what theory allows."""
        return measure_product(cell, inputs)

    def bytes_needed(self) -> int:
        """Both tensors in float32 and float64, and their truth."""
        m, k, n = self.parts[0].shapes()
        return 12 * (m * k + k * n) + 40 * m * n

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each accumulator."""
        metric = self.parts[0].metric
        shown = list(dict.fromkeys((metric, *_ALWAYS)))
        missing = next((words for name in shown if (words := without_units(rows, name))), "")
        caption = f"{SHOWN[metric]}; bwd_err_u_mean: {missing}" if missing else SHOWN[metric]
        table = Table(title=self.title, caption=caption, title_justify="left", caption_justify="left")
        table.add_column("accumulator")
        table.add_column("spec")
        for name in shown:
            table.add_column(name, justify="right")
        for label, same in _labels(rows).items():
            values = [mean_of(same, name) for name in shown]
            table.add_row(label, same[0]["spec"], *("" if value is None else f"{value:.3g}" for value in values))
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """A bar for each accumulator."""
        metric = self.parts[0].metric
        finding = self.finding(rows) or self.title
        bars = []
        for label, same in _labels(rows).items():
            values = [value for row in same if (value := numeric(row, metric)) is not None]
            if values:
                bars.append(Bar(label, sum(values) / len(values), (min(values), max(values))))
        first = rows[0]
        subject = f"{first['a']} x {first['b']}, {first['M']:,} x {first['K']:,} x {first['N']:,}"
        subject += f", operands in {first['in']}" if first["in"] else ""
        draw_bars(bars, finding, subject, SHOWN[metric], path, log=metric != "ratio")

    def finding(self, rows: Sequence[Row]) -> str:
        """The accumulators with the least and the largest error."""
        metric = self.parts[0].metric
        centre = 1.0 if metric == "ratio" else 0.0
        means = {label: mean_of(same, metric) for label, same in _labels(rows).items()}
        known = sorted((abs(value - centre), label, value) for label, value in means.items() if value is not None)
        if len(known) < 2:
            return ""
        (least, best, low), (most, worst, high) = known[0], known[-1]
        text = f"{best} is nearest to the true product ({metric} {low:.3g}), {worst} farthest ({high:.3g}"
        return text + (f", {most / least:.3g} times as far)" if least > 0 and most > least else ")")


def _operand(file: TensorFile, transposed: bool, part: GemmParameters) -> Tensor:
    """The values as a matrix.

    Raises:
        StudyError: NaN or infinities that were not allowed.
    """
    values = file.load()
    values = values.reshape(matrix(file, False))
    values = values.T if transposed else values
    broken = ~torch.isfinite(values)
    if part.nonfinite != "keep" and bool(broken.any()):
        if part.nonfinite == "refuse":
            at = tuple(int(i) for i in broken.nonzero()[0])
            raise StudyError(
                f"{file.name} has {int(broken.sum()):,} NaN or infinite numbers, the first at {list(at)}; say "
                "--nonfinite zero for 0 in their place, or --nonfinite keep to compute with them."
            )
        values = torch.where(broken, torch.zeros((), dtype=values.dtype), values)
    return values


def _labels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["label"], []).append(row)
    return found
