"""One instruction of one architecture, and the row of the table that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .models import Model
from .operands import Operand, operand

__all__ = ["MODEL", "RULE", "Family", "Instruction", "Shape", "Source"]


@dataclass(frozen=True)
class Source:
    """Where a row's facts come from. silicon: they were seen on the chip itself."""

    text: str
    silicon: bool = False

    def __str__(self) -> str:
        return self.text


#: The golden vectors of this project hold outputs of that model for these rows.
MODEL = Source("published software model MMA-Sim, arXiv:2511.10909, not silicon")
#: No vectors: the row follows the rule of its neighbours in that model.
RULE = Source("by the rule of its neighbours in arXiv:2511.10909; no vectors, not silicon")


@dataclass(frozen=True)
class Shape:
    """Shape as instruction names spell it, K of one instruction, and products per step (K, or half of it)."""

    text: str
    k: int
    products: int


#: How the name of an instruction is made of its parts, per unit. AMD's shape text is the whole name.
_NAMES = {
    "mma": "{unit}.{shape}.{d}.{a}.{b}.{c}",
    "wgmma": "{unit}.{shape}.{d}.{a}.{b}",
    "tcgen05mma": "{unit}.{shape}.{d}.{a}.{b}",
    "mma_block_scale": "{unit}.{shape}.block{block}.{d}.{a}.{b}.{c}.{scale}",
    "tcgen05mma_block_scale": "{unit}.{shape}.block{block}.{d}.{a}.{b}.{scale}",
    "mfma": "{unit}.{shape}",
}
_AMD_WORDS = {"e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}


@dataclass(frozen=True)
class Instruction:
    """One instruction: operand names, accumulator c, result d, K, the model of a step, and its source.

    scale, block: format of the block scales and elements per scale, None without scales.
    """

    arch: str
    name: str
    unit: str
    a: str
    b: str
    c: str
    d: str
    k: int
    model: Model
    scale: str | None
    block: int | None
    source: Source

    @property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        """a, b, c, d as ``Operand``."""
        return operand(self.a), operand(self.b), operand(self.c), operand(self.d)

    @property
    def steps(self) -> int:
        """Steps in one instruction."""
        return self.k // self.model.products


@dataclass(frozen=True)
class Family:
    """A row of the tables: instructions that differ in shape, operand pair and accumulator only.

    results: (c, d, conversion) triples. model: the step; products and conversion are filled in per instruction.
    """

    arch: str
    unit: str
    operands: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str, str], ...]
    shapes: tuple[Shape, ...]
    model: Model
    scale: str | None = None
    block: int | None = None
    source: Source = MODEL

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of the row."""
        for shape in self.shapes:
            for a, b in self.operands:
                for c, d, out in self.results:
                    yield self._one(shape, a, b, c, d, out)

    def _one(self, shape: Shape, a: str, b: str, c: str, d: str, out: str) -> Instruction:
        text = shape.text.format(a=_AMD_WORDS.get(a, a), b=_AMD_WORDS.get(b, b))
        name = _NAMES[self.unit].format(
            unit=self.unit, shape=text, a=a, b=b, c=c, d=d, block=self.block, scale=self.scale
        )
        model = replace(self.model, products=shape.products, out=out)
        return Instruction(self.arch, name, self.unit, a, b, c, d, shape.k, model, self.scale, self.block, self.source)
