"""One instruction of one architecture, and the row of the table that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .evidence import Source, source_of
from .operands import Operand, operand
from .step_parameters import Model

__all__ = ["Family", "Instruction", "Result", "Shape"]


@dataclass(frozen=True)
class Shape:
    """A shape as instruction names write it, K of one instruction, and products per step (K, or half of it).

    Example:
        >>> gs.hardware.families("volta")[0].shapes
        (Shape(text='m8n8k4', k=4, products=4),)
    """

    text: str
    k: int
    products: int


@dataclass(frozen=True)
class Result:
    """The formats of c and d, the name of the conversion, and the model's ``least`` for it, if it has one.

    Example:
        >>> gs.hardware.families("volta")[0].results[0]
        Result(c='f32', d='f32', out='rz23', least=-131)
    """

    c: str
    d: str
    out: str
    least: int | None = None


#: How the name of an instruction is made of its parts, per unit. AMD's shape text is the whole name.
_NAMES = {
    "mma": "{unit}.{shape}{kind}.{d}.{a}.{b}.{c}",
    "wgmma": "{unit}.{shape}.{d}.{a}.{b}",
    "tcgen05mma": "{unit}.{shape}{kind}.{d}.{a}.{b}",
    "mma_block_scale": "{unit}.{shape}{kind}.block{block}.{d}.{a}.{b}.{c}.{scale}",
    "tcgen05mma_block_scale": "{unit}.{shape}{kind}.block{block}.{d}.{a}.{b}.{scale}",
    "mfma": "{unit}.{shape}",
}
#: Kinds whose operands lie one in a byte, however narrow.
_IN_BYTES = ("f8f6f4", "mxf8f6f4")
_AMD_WORDS = {"e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}


@dataclass(frozen=True)
class Instruction:
    """One instruction: operand names, accumulator c, result d, K, the model of a step, and its source.

    kind: NVIDIA's word for the family of operands, None where the name has none. scale, block: format of the block
    scales and elements per scale, None without scales.

    Example:
        >>> one = gs.hardware.largest("blackwell", "mxf4nvf4", "e2m1")
        >>> one.name, one.k, one.scale, one.block
        ('tcgen05mma_block_scale.m128n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3', 64, 'ue4m3', 16)
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
    kind: str | None = None

    @property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        """a, b, c, d as ``Operand``."""
        a, b = (operand(name, self.kind in _IN_BYTES) for name in (self.a, self.b))
        return a, b, operand(self.c), operand(self.d)

    @property
    def steps(self) -> int:
        """Steps in one instruction."""
        return self.k // self.model.products


@dataclass(frozen=True)
class Family:
    """A row of the tables: instructions that differ only in shape, operand pair and accumulator.

    model: the step; products, conversion and ``least`` depend on the instruction. vectors: whether this project's test
    vectors hold outputs of the row.

    Example:
        >>> family = gs.hardware.families("turing")[0]
        >>> family.unit, [one.name for one in family.instructions()][:2]
        ('mma', ['mma.m8n8k4.f32.f16.f16.f32', 'mma.m8n8k4.f16.f16.f16.f16'])
    """

    arch: str
    unit: str
    operands: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    shapes: tuple[Shape, ...]
    model: Model
    scale: str | None = None
    block: int | None = None
    kind: str | None = None
    vectors: bool = True

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of the row."""
        for shape in self.shapes:
            for a, b in self.operands:
                for result in self.results:
                    yield self._one(shape, a, b, result)

    def _one(self, shape: Shape, a: str, b: str, result: Result) -> Instruction:
        text = shape.text.format(a=_AMD_WORDS.get(a, a), b=_AMD_WORDS.get(b, b))
        c, d, kind = result.c, result.d, f".kind::{self.kind}" if self.kind else ""
        name = _NAMES[self.unit].format(
            unit=self.unit, shape=text, kind=kind, a=a, b=b, c=c, d=d, block=self.block, scale=self.scale
        )
        least = {} if result.least is None else {"least": result.least}
        model = replace(self.model, products=shape.products, out=result.out, **least)
        source = source_of(self.arch, self.unit, shape.text, a, b, c, d, self.vectors)
        return Instruction(
            self.arch, name, self.unit, a, b, c, d, shape.k, model, self.scale, self.block, source, self.kind
        )
