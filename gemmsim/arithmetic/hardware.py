"""The arithmetic of a matrix instruction of a real chip, as an accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gemmsim.hardware.step_parameters import Conversion, TwoBlocks

from ..formats import E4M3, E8M0, BlockFormat, Cast, FormatError, Rounding
from ..hardware import OPS, HardwareError, Instruction, instructions, largest
from ..hardware.operands import OPERANDS, Operand
from .accumulator import register
from .argument_kinds import FORMAT, WORD, argument, optional
from .errors import SpecError, SpecFormatError, spec_error
from .exact_sum import ExactProducts
from .residue import FIRST, check_first, fill_words

__all__ = ["Hardware"]


@register("hw")
@dataclass(frozen=True, repr=False)
class Hardware(ExactProducts):
    """``D = A @ B`` as a chain of matrix instructions of a chip computes it, k ascending, the accumulator from +0.

    The instruction is ``gemmsim.hardware.largest(arch, op, a, b, out=out)``, in ``.instruction``. Its model says what a
    step does with its products and the accumulator. K is padded with zeros (+0) in both operands to a multiple of the
    instruction's k; K = 0 gives +0.

    Args:
        arch: volta, turing, ampere, ada, hopper, blackwell, rtx_blackwell, cdna1, cdna2, cdna3.
        op: mma, wgmma, tcgen05, mfma, or a kind of NVIDIA's: f8f6f4, and mxf8f6f4, mxf4, mxf4nvf4, which are
            block-scaled.
        a, b: operand formats; b defaults to a. Operands are cast to them first, to nearest even; to tf32 toward zero,
            since the instruction clears the low bits.
        out: format of the accumulator.
        first: a multiple of the instruction's k. The K mod ``first`` terms that come first are padded with zeros to
            this number, and the accumulator continues over the rest: the residue tile of CUTLASS. Not for block-scaled
            kinds.

    A block-scaled kind takes elements and scales of operands in block formats (``GemmSpec``) as they are stored; the
    sign of a ue4m3 scale is ignored. An operand in another format has scales of 1. With a format that has a scale for
    the whole tensor the result is ``R(T_a * T_b * D)``, rounded once more to the accumulator's format, to nearest even.

    Any NaN operand or scale, 0 * infinity and infinities of both signs give NaN; other infinities stay. A result past
    the largest finite value becomes infinity, also where the conversion truncates. Zero results are +0, except on
    CDNA2's trees and in chains of fused multiply-adds, which follow IEEE 754.

    Raises:
        SpecError: for an architecture, op or formats outside the tables; the message lists the allowed ones.

    Source: ``.instruction.source`` names the source of the rule and says whether it was compared with silicon;
    docs/reference/hardware.md#evidence.

    Example:
        >>> acc = gs.arithmetic.Hardware("hopper", "wgmma", "e4m3")
        >>> gs.qmatmul(torch.tensor([[256.0, 0.01]]), torch.ones(2, 1), acc)  # 0.01 is below 2**-5: truncated
        tensor([[256.]])
    """

    arch: str = field(metadata=argument(WORD))
    op: str = field(metadata=argument(WORD))
    a: str = field(metadata=argument(FORMAT))
    b: str | None = field(default=None, metadata=argument(optional(FORMAT)))
    out: str = field(default="fp32", kw_only=True, metadata=argument(FORMAT))
    first: int | None = field(default=None, kw_only=True, metadata=argument(optional(FIRST)))

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            found = largest(self.arch, self.op, self.a, self.b, out=self.out)
        except HardwareError as error:
            raise SpecError(f"hw: {error}") from error
        except FormatError as error:
            raise SpecFormatError(f"hw: {error}") from error
        put = object.__setattr__
        put(self, "arch", found.arch)
        put(self, "op", self.op.lower())
        put(self, "a", str(OPERANDS[found.a].format))
        put(self, "b", None if found.b == found.a else str(OPERANDS[found.b].format))
        put(self, "out", str(OPERANDS[found.d].format))
        check_first(self, found.k)
        if self.first is not None and found.scale is not None:
            raise spec_error(
                f"hw({self.arch}, {self.op}, ...) with first={self.first}, which is block-scaled",
                "first for instructions without scales",
                "Leave first out.",
            )

    @property
    def instruction(self) -> Instruction:
        """The instruction of the chain, with its model and its source."""
        return _instruction(self.arch, self.op, self.a, self.b, self.out)

    def scaled_instruction(self, *blocks: BlockFormat) -> Instruction:
        """The block-scaled instruction of this op with the scales and the block size of ``blocks``.

        ``blocks`` are the operands in block formats (none: as ``.instruction``). Kind mxf4nvf4 has several
        instructions.

        Raises:
            SpecError: where the op has none; the message says which there are.
        """
        one = self.instruction
        asked = {(_SCALES.get(fmt.scale, str(fmt.scale)), fmt.block_size) for fmt in blocks}
        if one.scale is None or not asked or asked == {(one.scale, one.block)}:
            return one
        rows = [row for row in instructions(one.arch) if _identity(row) == _identity(one)]
        found = [row for row in rows if asked == {(row.scale, row.block)}]
        if not found:
            taken = ", ".join(f"{row.scale} for {row.block} elements" for row in rows)
            raise spec_error(
                f"{self} with {' and '.join(f'{fmt} ({fmt.scale} for {fmt.block_size})' for fmt in blocks)}",
                f"both operands with scales of one kind: {taken}",
                "Change the block format, or use scaled(...), which takes any.",
            )
        return found[0]

    @property
    def operand_casts(self) -> tuple[Cast, Cast]:
        """To the operand formats, to nearest even, or toward zero where the instruction clears low bits."""
        a, b, _, _ = self.instruction.operands
        return _operand_cast(a), _operand_cast(b)

    def transposed(self) -> Hardware:
        """With the operand formats exchanged."""
        return self if self.b is None else replace(self, a=self.b, b=self.a)

    def casts(self) -> Iterator[Cast]:
        """The register's, to nearest even; the instruction's own conversion is in its model."""
        yield self.add_cast

    @property
    def add_cast(self) -> Cast:
        """The accumulator's format, to nearest even: partial sums are combined in it."""
        return Cast(self.instruction.operands[3].format)

    def explain_lines(self) -> list[tuple[str, str]]:
        """Instruction, step, conversion, order and source in words."""
        one = self.instruction
        steps = "1 step" if one.steps == 1 else f"{one.steps} steps"
        scales = (
            []
            if one.scale is None
            else [("scales", f"{one.scale}, one for each {one.block} elements; 1 for operands without a block format")]
        )
        words = one.model.words.removesuffix(f", {one.model.out}")
        return [
            ("instruction", f"{one.arch} {one.name}, k = {one.k} in {steps}"),
            ("product", "exact"),
            *scales,
            ("each step", f"{_products(one)} and the accumulator: {words}"),
            ("rounding", _conversion_words(one.model.conversion)),
            ("order", f"instructions for k ascending from +0; {fill_words(self.first, one.k)}"),
            *self._own_unit(),
            ("source", str(one.source)),
        ]

    def _own_unit(self) -> list[tuple[str, str]]:
        """Of operands that the chip has a unit for, but this op goes round it: the op of the unit."""
        if not isinstance(self.instruction.model, TwoBlocks):
            return []
        for op in (op for op in OPS if op != self.op):
            try:
                other = Hardware(self.arch, op, self.a, self.b, out=self.out)
            except SpecError:
                continue
            if other.instruction.scale is None:
                operands = " by ".join(dict.fromkeys((self.a, self.b or self.a)))
                return [
                    (
                        "unit",
                        f"{self.op} has no unit for {operands}; libraries use the chip's native instruction: {other}",
                    )
                ]
        return []


@lru_cache(maxsize=1024)
def _instruction(arch: str, op: str, a: str, b: str | None, out: str) -> Instruction:
    return largest(arch, op, a, b, out=out)


#: Scale formats as instruction names spell them.
_SCALES = {E8M0: "ue8m0", E4M3: "ue4m3"}


def _identity(one: Instruction) -> tuple[str | None, ...]:
    return one.unit, one.kind, one.a, one.b, one.c, one.d


def _operand_cast(operand: Operand) -> Cast:
    return Cast(operand.format, Rounding.RTZ if operand.dropped else Rounding.RNE)


def _products(one: Instruction) -> str:
    return "1 product" if one.model.products == 1 else f"{one.model.products} products"


def _conversion_words(conversion: Conversion) -> str:
    """``binary32, 13 fraction bits, toward zero; past the largest finite value infinity``."""
    format = OPERANDS[conversion.operand].format
    rounding = "to nearest, ties to even" if conversion.nearest else "toward zero"
    kept = f"{conversion.fraction_bits} fraction bits kept, {rounding} ({conversion.name})"
    return f"{format}, {kept}; larger results become infinity"
