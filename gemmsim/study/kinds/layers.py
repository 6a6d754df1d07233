"""Which layer of a model needs which accumulator: operands captured from it, products under each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.table import Table
from torch import Tensor

from ..capture import (
    ROLES,
    Products,
    capture_layers,
    chosen_names,
    is_of_products,
    layer_shapes,
    operands_of,
    products_in,
)
from ..cells import Cell, Row, Scalar, columns, digest
from ..curves import Curve
from ..errors import StudyError, nearest
from ..metrics import SHOWN
from ..model_source import Source, load_source
from ..operands import Operands, Placement, of_tensors, placement
from ..parameters import Parameters, accumulators, at_least, choice, option, text
from ..plots.heat import draw_heat
from ..tensor_files import TensorFile, file_digest, tensor_shapes
from .gemm import evenly
from .growth import measure_product
from .kind import Kind
from .pivot import mean_of

__all__ = ["Layers", "LayersParameters", "patterns", "roles"]

_PARTS = ("input", "weight", "grad")
#: The operands of each product: (part, transposed) of a and of b.
_OPERANDS = {
    "fprop": (("input", False), ("weight", True)),
    "dgrad": (("grad", False), ("weight", False)),
    "wgrad": (("grad", True), ("input", False)),
}


def patterns(given: Any, name: str) -> tuple[str, ...]:
    """Reader of patterns over names, separated by commas or several.

    Raises:
        StudyError: none.
    """
    listed = [given] if isinstance(given, str) else list(given)
    found = tuple(part.strip() for entry in listed for part in str(entry).split(",") if part.strip())
    if not found:
        raise StudyError(f"{name} lists no pattern; allowed: names of layers such as 'encoder.*'.")
    return found


def roles(given: Any, name: str) -> tuple[str, ...]:
    """Reader of products of a layer: fprop, dgrad, wgrad.

    Raises:
        StudyError: another word; it tells the nearest one.
    """
    found = patterns(given, name)
    for role in found:
        if role not in ROLES:
            raise StudyError(f"{name} has {role!r}; allowed: {', '.join(ROLES)}.{nearest(role, ROLES)}")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class LayersParameters(Parameters):
    """Accumulators x layers x roles, on operands captured from a model."""

    kind: ClassVar[str] = "layers"

    model: str = option("", text, "module:function or file.py:function that returns (model, inputs[, loss]).")
    captured: str = option("", text, "Instead: a file of gemmsim.capture or capture_layers.", metavar="FILE")
    layers: tuple[str, ...] = option("*", patterns, "Patterns over names of layers.", many=True, metavar="PATTERN")
    role: tuple[str, ...] = option("fprop", roles, "Products of a layer: fprop, dgrad, wgrad.")
    spec: tuple[Curve, ...] = accumulators(
        "fp32 = fp32", "e8m10 = e8m10", "chunk64 = chunked(64, e8m10)", "bf16 = bf16"
    )
    in_: Placement = option(
        "", placement, "Format of the operands: e4m3/row, e4m3/tensor, e4m3/none.", metavar="FORMAT"
    )
    most: int = option(64, at_least(0), "At most this many rows and columns of each result, evenly spaced; 0: all.")
    seeds: int = option(1, at_least(1, 10**6), "Number of seeds (0, 1, ...) of the random bits.")
    metric: str = option("rel_fro", choice(*SHOWN), "What table and picture show.")


@dataclass(frozen=True)
class _Captured:
    fingerprint: str
    path: Path
    part: LayersParameters


class Layers(Kind[LayersParameters]):
    """Error of each product of a model's linear layers under each accumulator, on the model's own operands."""

    parameters = LayersParameters
    about = "error of each linear layer of a model, by accumulator, with captured operands"
    single = "layers takes one model; run it once for each."

    def __getstate__(self) -> dict[str, Any]:
        """Without the model: workers read the captured file."""
        return {name: value for name, value in vars(self).items() if name not in ("_source", "_shapes")}

    def cells_of(self, part: LayersParameters) -> Iterator[Cell]:
        """Accumulators innermost: they share operands. Of a model, a pass without gradients tells the shapes."""
        origin = part.model or Path(part.captured).name
        for (layer, role), whole in self._products(part).items():
            m, k, n = (min(whole[0], part.most or whole[0]), whole[1], min(whole[2], part.most or whole[2]))
            named: dict[str, Scalar] = {"layer": layer, "role": role, "model": origin, "in": str(part.in_)}
            shown = columns(K=k, M=m, N=n, **named)
            for seed in range(part.seeds):
                for curve in part.spec:
                    if seed and not curve.stochastic:
                        continue
                    yield self.cell(curve, seed, shown, m * k * n, f"{layer}|{role}")

    def prepare(self, folder: Path) -> _Captured:
        """The captured file. One made from a model stays in ``folder``, so that a resumed run has the same operands."""
        part = self.parts[0]
        path = Path(part.captured)
        if part.model:
            path = folder / f"operands-{digest([part.model, part.layers, part.role])}.safetensors"
            if not os.path.isfile(path):
                source = self._model(part)
                names = list(self._layers(part))
                capture_layers(source.model, source.inputs, path, layers=names, roles=part.role, loss=source.loss)
        return _Captured(file_digest(path), path, part)

    def inputs(self, cell: Cell, context: _Captured) -> Operands:
        """The operands of one product, rows of a and columns of b chosen."""
        at = dict(cell.columns)
        part = context.part
        layer, role = str(at["layer"]), str(at["role"])
        pairs = {} if part.model else self._pairs(part)
        if pairs:
            a, b = operands_of(context.path, pairs[layer, role][0])
        else:
            a, b = (_operand(context.path, layer, *one) for one in _OPERANDS[role])
        a, b = a[evenly(a.shape[0], part.most)], b[:, evenly(b.shape[1], part.most)]
        if a.dtype != b.dtype:
            a, b = a.double(), b.double()
        return of_tensors(part.in_(a, 1), part.in_(b, 0))

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """The errors of the product, and what theory allows."""
        return measure_product(cell, inputs)

    def bytes_needed(self) -> int:
        """Operands of the largest product in float32 and float64, and its truth."""
        sizes: list[dict[str, Any]] = [dict(cell.columns) for cell in self.cells()]
        return max(12 * (s["M"] + s["N"]) * s["K"] + 40 * s["M"] * s["N"] for s in sizes)

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each layer and role, a column for each accumulator."""
        metric = self.parts[0].metric
        lines, labels, values = _values(rows, metric)
        several = len({row["role"] for row in rows}) > 1
        shapes = {_line(row, several): f"{row['M']} x {row['K']:,} x {row['N']}" for row in rows}
        table = Table(title=self.title, caption=SHOWN[metric], title_justify="left", caption_justify="left")
        table.add_column("layer")
        table.add_column("M x K x N", justify="right")
        for label in labels:
            table.add_column(label, justify="right")
        for line in lines:
            found = [values.get((line, label)) for label in labels]
            table.add_row(line, shapes[line], *("" if value is None else f"{value:.3g}" for value in found))
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """A heat map, layers by accumulators."""
        metric = self.parts[0].metric
        finding = self.finding(rows) or self.title
        lines, labels, values = _values(rows, metric)
        first = rows[0]
        subject = f"operands captured from {first['model']}" + (f", in {first['in']}" if first["in"] else "")
        roles = list(dict.fromkeys(str(row["role"]) for row in rows))
        subject += f", {roles[0]}" if len(roles) == 1 else ""
        draw_heat(lines, labels, values, finding, subject, SHOWN[metric], path)

    def finding(self, rows: Sequence[Row]) -> str:
        """How far layers differ under one accumulator."""
        metric = self.parts[0].metric
        lines, labels, values = _values(rows, metric)
        best: tuple[float, str] = (0.0, "")
        for label in labels:
            known = [(value, line) for line in lines if (value := values.get((line, label))) is not None and value > 0]
            if len(known) < 2:
                continue
            (low, least), (high, most) = min(known), max(known)
            words = (
                f"the error of {most} is {high / low:.3g} times that of {least} under {label} "
                f"({high:.2g} against {low:.2g})"
            )
            best = max(best, (high / low, words))
        return best[1]

    def _model(self, part: LayersParameters) -> Source:
        if "_source" not in vars(self):
            self._source = load_source(part.model)
        return self._source

    def _products(self, part: LayersParameters) -> dict[tuple[str, str], tuple[int, int, int]]:
        """(layer, role) -> (M, K, N) of the whole product.

        Raises:
            StudyError: as ``_layers``.
        """
        if not part.model and part.captured and (pairs := self._pairs(part)):
            return {name: (m, k, n) for name, (_, m, k, n) in pairs.items()}
        found = {}
        for layer, (t, into, out) in self._layers(part).items():
            sizes = {"fprop": (t, into, out), "dgrad": (t, out, into), "wgrad": (out, t, into)}
            found.update({(layer, role): sizes[role] for role in part.role})
        return found

    def _pairs(self, part: LayersParameters) -> Products:
        """The products of a file that holds pairs of operands; empty for one that holds layers.

        Raises:
            StudyError: no such file, no such products in it.
        """
        if "_found" not in vars(self):
            path = Path(part.captured)
            self._found = products_in(path, part.role, part.layers) if is_of_products(path) else {}
        return self._found

    def _layers(self, part: LayersParameters) -> dict[str, tuple[int, int, int]]:
        """Layer -> (T, in, out).

        Raises:
            StudyError: neither model nor file or both, patterns without a match, a file without what a role needs.
        """
        if bool(part.model) == bool(part.captured):
            raise StudyError(
                "layers needs one source, a model or captured operands: --model module:function or --captured FILE."
            )
        if "_shapes" not in vars(self):
            if part.model:
                source = self._model(part)
                self._shapes = layer_shapes(source.model, source.inputs, part.layers)
            else:
                self._shapes = _shapes_in(part)
        return self._shapes


def _shapes_in(part: LayersParameters) -> dict[str, tuple[int, int, int]]:
    """Of a captured file; only its header is read."""
    shapes = tensor_shapes(Path(part.captured))
    names = list(dict.fromkeys(key.rpartition("/")[0] for key in shapes if key.rpartition("/")[2] in _PARTS))
    if not names:
        allowed = "files of gemmsim.capture and gemmsim.study.capture_layers"
        raise StudyError(f"'{part.captured}' holds no NAME/input; allowed: {allowed}.")
    found = {}
    for name in chosen_names(names, part.layers):
        needed = {piece for role in part.role for piece, _ in _OPERANDS[role]} | {"input", "weight"}
        for piece in sorted(needed):
            if f"{name}/{piece}" not in shapes:
                raise StudyError(
                    f"'{part.captured}' holds no {name}/{piece}, which {', '.join(part.role)} needs. Capture it again "
                    "with these roles."
                )
        (t, into), (out, into2) = shapes[f"{name}/input"], shapes[f"{name}/weight"]
        if into != into2 or shapes.get(f"{name}/grad", (t, out)) != (t, out):
            raise StudyError(f"'{part.captured}': the matrices of {name} do not belong together. Capture them again.")
        found[name] = (t, into, out)
    return found


def _operand(path: Path, layer: str, piece: str, transposed: bool) -> Tensor:
    values = TensorFile(path, f"{layer}/{piece}").load()
    return values.T if transposed else values


def _line(row: Row, several: bool) -> str:
    return f"{row['layer']}, {row['role']}" if several else str(row["layer"])


def _values(rows: Sequence[Row], metric: str) -> tuple[list[str], list[str], dict[tuple[str, str], float | None]]:
    """Lines, labels, and the mean over seeds at each pair."""
    several = len({row["role"] for row in rows}) > 1
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((_line(row, several), str(row["label"])), []).append(row)
    lines = list(dict.fromkeys(line for line, _ in groups))
    labels = list(dict.fromkeys(label for _, label in groups))
    return lines, labels, {key: mean_of(same, metric) for key, same in groups.items()}
