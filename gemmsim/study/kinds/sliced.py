"""Wide products emulated by narrow ones: error against the number of slices, of products, and of terms."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

import gemmsim as gs

from .. import metrics
from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve, curves
from ..distributions import distributions, draw
from ..errors import StudyError, nearest
from ..operands import Operands
from ..parameters import Parameters, at_least, choice, counts, option
from .kind import Kind, macs_per_s
from .pivot import pivot_table, series

__all__ = ["Scheme", "Slicing", "SlicingParameters", "schemes"]

_CALL = re.compile(r"\s*(?:(?P<label>[\w.+-]+)\s*=\s*)?(?P<call>(?P<name>\w+)\s*\((?P<given>.*)\))\s*$", re.DOTALL)


@dataclass(frozen=True)
class Scheme:
    """A scheme of ``gemmsim.sliced`` under the name that tables and pictures show."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label} = {self.text}"

    @property
    def value(self) -> gs.sliced.Sliced:
        """The scheme itself."""
        match = _CALL.match(self.text)
        assert match is not None
        words = [word.strip() for word in _split(match["given"])]
        positional = [_value(word) for word in words if "=" not in word.split("(")[0]]
        named = {
            key.strip(): _value(text)
            for key, _, text in (word.partition("=") for word in words if "=" in word.split("(")[0])
        }
        if "register" in named:  # the former keyword of bf16, which stands in folders of earlier runs
            named["spec"] = named.pop("register")
        try:
            found: gs.sliced.Sliced = getattr(gs.sliced, match["name"])(*positional, **named)
        except TypeError as error:
            raise StudyError(f"scheme {self.text!r}: {error}") from None
        return found


def schemes(given: object, name: str) -> tuple[Scheme, ...]:
    """``bf16(3)``, ``label = bf16(3, products=6)``, ``tf32x3(inside)``, ``ozaki_int8(8)``: one or more.

    Raises:
        StudyError, SpecError: what is no scheme.
    """
    if isinstance(given, str):
        given = [given] if given.strip() else []
    return tuple(_scheme(entry) for entry in given)  # type: ignore[attr-defined]


def _scheme(entry: object) -> Scheme:
    if isinstance(entry, Scheme):
        return entry
    match = _CALL.match(str(entry))
    names = ("bf16", "tf32x3", "ozaki_int8")
    if match is None or match["name"] not in names:
        asked = match["name"] if match else str(entry)
        raise StudyError(
            f"unknown scheme {asked!r}.{nearest(asked, names)} Allowed: bf16(n), tf32x3(..), ozaki_int8(n)."
        )
    found = Scheme(match["label"] or match["call"].strip(), match["call"].strip())
    _ = found.value
    return found


def _split(text: str) -> Iterable[str]:
    """At commas outside parentheses."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


def _value(text: str) -> Any:
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"True": True, "False": False}.get(text, text.strip("'\""))


def _register(scheme: str | None) -> str:
    """The register that the scheme's text names; "" for its own."""
    found = re.search(r"\b(?:spec|register)=(.*)\)$", scheme or "")
    return found[1].lstrip(":") if found else ""


@dataclass(frozen=True)
class SlicingParameters(Parameters):
    """Schemes and plain accumulators x lengths x distributions x seeds."""

    kind: ClassVar[str] = "sliced"

    scheme: tuple[Scheme, ...] = option(
        ("x1 = bf16(1)", "x3 = bf16(2)", "x6 = bf16(3, products=6)", "x9 = bf16(3)"),
        schemes,
        "Schemes: bf16(n), bf16(3, products=6, spec=SPEC), tf32x3(inside), ozaki_int8(n); 'label = scheme'.",
        many=True,
        metavar="SCHEME",
    )
    spec: tuple[Curve, ...] = option(
        ("fp32 = fp32",),
        lambda given, name: curves(given) if given else (),
        "Plain accumulators to compare with.",
        many=True,
        metavar="SPEC",
    )
    K: tuple[int, ...] = counts("1024")
    dist: tuple[str, ...] = option("randn", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(16, at_least(1), "Rows of the result.")
    N: int = option(16, at_least(1), "Columns of the result.")
    dtype: str = option("fp32", choice("fp32", "fp64"), "Operands and plain products: fp32 or fp64.")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands.")
    metric: str = option("rel_fro", choice(*metrics.SHOWN), "What table and picture show.")


class Slicing(Kind[SlicingParameters]):
    """Error of products that are emulated by several narrower ones, beside plain ones."""

    parameters = SlicingParameters
    about = "error of wide products emulated by narrow ones, by scheme"

    def cells_of(self, part: SlicingParameters) -> Iterator[Cell]:
        """Schemes innermost: they share operands."""
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    named: dict[str, Scalar] = {"K": k, "M": part.M, "N": part.N, "dist": dist, "dtype": part.dtype}
                    operands = f"{dist}|{k}|{seed}|{part.M}|{part.N}|{part.dtype}"
                    macs = part.M * k * part.N
                    for scheme in part.scheme:
                        products = scheme.value.products
                        shown = columns(**named, scheme=scheme.text, products=products)
                        yield Cell(
                            self.name, self.setting, "", seed, shown,
                            macs=macs * products, label=scheme.label, operands=operands,
                        )  # fmt: skip
                    for curve in part.spec:
                        shown = columns(**named, scheme=None, products=1)
                        yield self.cell(curve, seed, shown, macs, operands)

    def inputs(self, cell: Cell, context: Any) -> Operands:
        """The operands that the cell's columns name, with their exact product rounded to float64."""
        at: dict[str, Any] = dict(cell.columns)
        dtype = torch.float64 if at["dtype"] == "fp64" else torch.float32
        a, b = draw(at["dist"], at["M"], at["K"], at["N"], cell.seed, dtype)
        found = gs.truth(a, b, at_most=0.0)  # the exact sum, rounded once
        return Operands(a, b, found.value, a.double().abs() @ b.double().abs(), found.method)

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors, in units of the operands' own type."""
        at: dict[str, Any] = dict(cell.columns)
        started = time.perf_counter()
        if cell.spec:
            result = gs.qmatmul(inputs.a, inputs.b, cell.spec, seed=cell.seed)
        else:
            result = Scheme(cell.label, at["scheme"]).value(inputs.a, inputs.b)
        speed = macs_per_s(inputs.macs, started)
        unit = 2.0**-53 if at["dtype"] == "fp64" else 2.0**-24
        return {
            **metrics.errors(result, inputs, unit),
            "truth": inputs.method,
            "macs_per_s": speed,
        }

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each scheme, a column for each K."""
        part = self.parts[0]
        by = ["label", "products"] + (["dist"] if len({row["dist"] for row in rows}) > 1 else [])
        return pivot_table(rows, "K", part.metric, title=self.title, by=by, caption=metrics.SHOWN[part.metric])

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Error against K where there are several, else against the number of products."""
        from ..plots.lines import Line, Picture, draw_lines

        metric = self.parts[0].metric
        over_k = len({row["K"] for row in rows}) > 1
        x = "K" if over_k else "products"
        emulated = [row for row in rows if row["scheme"] is not None] or list(rows)
        if over_k:
            by = ["label", "dist"] if len({row["dist"] for row in rows}) > 1 else ["label"]
        else:  # a scheme in another register is no point of the same curve
            emulated = [{**row, "register": _register(row["scheme"])} for row in emulated]
            by = ["dist", "register"]
        lines = [
            Line(", ".join(str(part) for part in key if part), [(at, mean) for at, mean, _, _ in points])
            for key, points in series(emulated, x, metric, by=by).items()
        ]
        lines += self._plain(rows, x, metric)
        axis = sorted({row[x] for row in emulated})
        picture = Picture(
            finding=self.finding(rows) or self.title,
            subject=f"{rows[0]['M']} x {rows[0]['N']} outputs, operands {rows[0]['dtype']}",
            x="K, terms of each sum" if over_k else "products that the scheme makes",
            y=metrics.SHOWN[metric],
            ticks=axis if len(axis) <= 12 else (),
        )
        draw_lines(lines, picture, path)

    def _plain(self, rows: Sequence[Row], x: str, metric: str) -> list[Any]:
        """Plain products: lines over K, levels over products."""
        from ..plots.lines import Line

        plain = [row for row in rows if row["scheme"] is None]
        if x == "K":
            return [
                Line(str(key[0]), [(at, mean) for at, mean, _, _ in points], guide=True)
                for key, points in series(plain, "K", metric).items()
            ]
        ends = sorted({row["products"] for row in rows})
        return [
            Line(f"{row['label']}", [(end, row[metric]) for end in (ends[0], ends[-1])], guide=True)
            for row in plain
            if row[metric] is not None
        ]

    def finding(self, rows: Sequence[Row]) -> str:
        """The error of each scheme at the longest sums."""
        longest = max(row["K"] for row in rows)
        metric = self.parts[0].metric
        chosen = [row for row in rows if row["K"] == longest and row["dist"] == rows[0]["dist"]]
        found = {row["label"]: row[metric] for row in chosen}
        return f"{metric} at K = {longest:,}: " + ", ".join(f"{n} {v:.2g}" for n, v in found.items() if v is not None)
