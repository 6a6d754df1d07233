"""Does the same product give the same bits when it is batched, permuted or split differently?"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

import gemmsim as gs

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve
from ..distributions import distributions, draw
from ..errors import StudyError, nearest
from ..operands import placement
from ..parameters import Parameters, accumulators, at_least, counts, option
from .kind import Kind, macs_per_s

__all__ = ["OVER", "Order", "OrderParameters"]

#: What may vary, in words.
OVER = {
    "batch": "rows computed in batches of other sizes",
    "permutation": "terms of the sums in another order",
    "splits": "each sum in that many slices, whose totals are added",
}
#: Products of other libraries, by the name that stands for an accumulator.
LIBRARIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "torch.mm": torch.mm,
    "numpy": lambda a, b: torch.from_numpy(np.matmul(a.numpy(), b.numpy())),
}


def _words(known: Mapping[str, Any]) -> Callable[[Any, str], tuple[str, ...]]:
    def read(given: Any, name: str) -> tuple[str, ...]:
        listed = [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else list(given)
        for word in listed:
            if word not in known:
                raise StudyError(f"{name} has {word!r}; allowed: {', '.join(known)}.{nearest(str(word), list(known))}")
        return tuple(dict.fromkeys(listed))

    return read


@dataclass(frozen=True)
class OrderParameters(Parameters):
    """Accumulators and libraries x what varies x lengths x distributions."""

    kind: ClassVar[str] = "order"

    spec: tuple[Curve, ...] = accumulators("sequential = fp32", "chunk64 = chunked(64, fp32)", "exact = exact(fp32)")
    library: tuple[str, ...] = option("", _words(LIBRARIES), "Other libraries to compare with: torch.mm, numpy.")
    over: tuple[str, ...] = option("batch,permutation,splits", _words(OVER), "What varies: batch, permutation, splits.")
    batches: tuple[int, ...] = counts("1,2,3,8,32", "Rows at a time.")
    permutations: int = option(16, at_least(2, 10**4), "Orders tried, the given one among them.")
    splits: tuple[int, ...] = counts("1,2,4,8", "Numbers of slices.")
    K: tuple[int, ...] = counts("1024")
    dist: tuple[str, ...] = option("randn", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(32, at_least(1), "Rows of the result.")
    N: int = option(32, at_least(1), "Columns of the result.")
    in_: Any = option("", placement, "Format of the operands: e4m3/row.", metavar="FORMAT")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and orders.")


class Order(Kind[OrderParameters]):
    """Distinct results of one product over batch sizes, orders of terms, or numbers of slices."""

    parameters = OrderParameters
    version = 2  # random bits of a row are those of its place
    about = "distinct results of one product over batch sizes, orders of terms and numbers of slices"

    def cells_of(self, part: OrderParameters) -> Iterator[Cell]:
        """One cell for each accumulator and each thing that varies."""
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    for over in part.over:
                        yield from self._cells_over(part, dist, k, seed, over)

    def _cells_over(self, part: OrderParameters, dist: str, k: int, seed: int, over: str) -> Iterator[Cell]:
        variants = {"batch": part.batches, "permutation": (part.permutations,), "splits": part.splits}[over]
        tried = part.permutations if over == "permutation" else len(variants)
        named: dict[str, Scalar] = {"K": k, "M": part.M, "N": part.N, "dist": dist, "in": str(part.in_), "over": over}
        shown = columns(**named, variants=",".join(map(str, variants)))
        macs = part.M * k * part.N * tried
        for curve in part.spec:
            yield self.cell(curve, seed, shown, macs)
        if over != "splits":  # no library lets the caller choose its slices
            for library in part.library:
                yield Cell(self.name, self.setting, "", seed, shown, macs=macs, label=library)

    def evaluate(self, cell: Cell, inputs: Any) -> Mapping[str, Scalar]:
        """Distinct results, the spread of the values, and rows whose largest element changes place."""
        at: dict[str, Any] = dict(cell.columns)
        place = placement(at["in"], "in")
        a, b = draw(at["dist"], at["M"], at["K"], at["N"], cell.seed)
        started = time.perf_counter()
        found = list(_variants(cell, at, place(a, 1), place(b, 0)))
        speed = macs_per_s(cell.macs, started)
        stack = torch.stack(found)
        bits = {hashlib.sha256(result.contiguous().numpy().tobytes()).digest() for result in found}
        largest = stack.argmax(dim=2) if at["N"] > 1 else torch.zeros(1, 1)
        return {
            "variants_tried": len(found),
            "distinct": len(bits),
            "spread_ulp": _spread(stack),
            "argmax_flips": float((largest != largest[:1]).any(dim=0).double().mean()),
            "macs_per_s": speed,
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each accumulator, a column for each thing that varies."""
        table = Table(
            title=self.title, title_justify="left", caption="distinct results / variants tried; largest spread in ulp"
        )
        table.add_column("accumulator")
        found = {(row["label"], row["over"]): row for row in rows}
        over = [name for name in OVER if any(row["over"] == name for row in rows)]
        for name in over:
            table.add_column(name, justify="right")
        for label in dict.fromkeys(row["label"] for row in rows):
            table.add_row(label, *(_in_table(found.get((label, name))) for name in over))
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """A dot for each accumulator and thing that varies."""
        from ..plots.dots import Dot, draw_dots

        dots = [
            Dot(str(row["label"]), str(row["over"]), row["distinct"], f"{row['distinct']} of {row['variants_tried']}")
            for row in rows
        ]
        subject = f"{rows[0]['M']} x {rows[0]['K']} x {rows[0]['N']}, operands {rows[0]['dist']}"
        draw_dots(dots, self.finding(rows) or self.title, subject, "distinct results of one product", path)

    def finding(self, rows: Sequence[Row]) -> str:
        """Which accumulators gave one result, whatever varied."""
        labels = list(dict.fromkeys(row["label"] for row in rows))
        same = [label for label in labels if all(row["distinct"] == 1 for row in rows if row["label"] == label)]
        if not same:
            return "No accumulator gives the same bits whatever varies"
        return f"The same bits whatever varies: {', '.join(same)}"


def _in_table(row: Row | None) -> str:
    if row is None:
        return ""
    spread = "" if row["spread_ulp"] is None else f"; {row['spread_ulp']:.3g}"
    return f"{row['distinct']} / {row['variants_tried']}{spread}"


def _variants(cell: Cell, at: Mapping[str, Any], a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """The result under each variation, float32."""

    def product(a: Tensor, b: Tensor, spec: str, row: int = 0) -> Tensor:
        if not cell.spec:
            return LIBRARIES[cell.label](a, b)
        return gs.qmatmul(a, b, spec, seed=cell.seed, row=row).float()

    if at["over"] == "batch":
        for size in map(int, at["variants"].split(",")):
            first = range(0, a.shape[0], size)
            yield torch.cat([product(a[i : i + size].contiguous(), b, cell.spec, i) for i in first])
    elif at["over"] == "permutation":
        generator = np.random.Generator(np.random.Philox(key=cell.seed))
        for trial in range(int(at["variants"])):
            order = torch.from_numpy(generator.permutation(a.shape[1])) if trial else torch.arange(a.shape[1])
            yield product(a[:, order].contiguous(), b[order].contiguous(), cell.spec)
    else:
        spec = gs.GemmSpec.parse(cell.spec)
        for slices in map(int, at["variants"].split(",")):
            whole = spec.accumulator
            split = whole if slices == 1 else gs.acc.splitk(slices, whole, whole.add_cast)
            yield product(a, b, str(dataclasses.replace(spec, accumulator=split)))


def _spread(stack: Tensor) -> float | None:
    """Largest distance of two results of one output, in units in the last place of float32 there."""
    low, high = stack.amin(dim=0), stack.amax(dim=0)
    if not bool(torch.isfinite(stack).all()) or not low.numel():
        return None
    size = torch.maximum(low.abs(), high.abs())
    ulp = torch.nextafter(size, torch.tensor(torch.inf)) - size
    return float(((high.double() - low.double()) / ulp.double()).max())
