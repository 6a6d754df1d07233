"""One dot product step by step, in fractions: what every addend loses, and what the register holds.

This is the model of fused blocks written a second time, from the formula, one output at a time; a test ties the two.
Other models give the register after each step without its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..formats import Specials
from .errors import hardware_error
from .instruction import Instruction
from .operands import Operand, operand
from .step_parameters import Conversion, FusedBlock, ScaledGroups

__all__ = ["StepTrace", "Term", "Trace", "trace"]


@dataclass(frozen=True)
class Term:
    """One addend: value = kept * 2**grid + lost. ``shift``: places below the largest exponent.

    The exponent and shift of an addend that is zero are None.

    Example:
        >>> one = gs.hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3")
        >>> step = gs.hardware.trace(one, [0x78, 0x01], [0x38, 0x38], 0).steps[0]  # 256 and 2**-9
        >>> step.terms[1].shift, step.terms[1].kept, step.terms[1].lost
        (14, 0, Fraction(1, 512))
    """

    name: str
    value: Fraction
    exponent: int | None
    shift: int | None
    kept: int
    lost: Fraction


@dataclass(frozen=True)
class StepTrace:
    """One step. largest: E. grid: exponent of the last bit that addends keep. total: their sum, in units of 2**grid.

    register: the accumulator's code after the conversion. Where special values decide, or the model has no common
    exponent, terms are empty and the three others None.

    Example:
        >>> one = gs.hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3")
        >>> step = gs.hardware.trace(one, [0x78, 0x01], [0x38, 0x38], 0).steps[0]  # 256 and 2**-9
        >>> step.largest, step.grid, hex(step.register)
        (8, -5, '0x43800000')
    """

    first: int
    last: int
    terms: tuple[Term, ...]
    largest: int | None
    grid: int | None
    total: int | None
    register: int


@dataclass(frozen=True)
class Trace:
    """All steps; ``result``: the last accumulator's code; ``exact``: the exact dot product, None with special values.

    Example:
        >>> one = gs.hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3")
        >>> found = gs.hardware.trace(one, [0x78, 0x01], [0x38, 0x38], 0)  # 256 and 2**-9
        >>> len(found.steps), hex(found.result), found.exact
        (1, '0x43800000', Fraction(131073, 512))
    """

    instruction: Instruction
    steps: tuple[StepTrace, ...]
    result: int
    exact: Fraction | None


def trace(
    instruction: Instruction,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
) -> Trace:
    """The steps of sum a_k b_k + c. Operands are codes, one per entry for e2m1 too; scales are one per block.

    Short operands are padded with +0 to whole instructions, missing scales with 1.

    Raises:
        HardwareError: if a and b differ in length or are empty, for scales of an instruction without, and for a
            chain of one whose C is not its D.

    Example:
        >>> one = gs.hardware.instruction("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3")
        >>> found = gs.hardware.trace(one, [0x78, 0x01], [0x38, 0x38], 0)  # 256 and 2**-9, which is truncated
        >>> found.exact, gs.formats.FP32.decode(found.result)
        (Fraction(131073, 512), 256.0)
    """
    if len(a) != len(b) or not a:
        raise hardware_error(f"{len(a)} elements of a and {len(b)} of b", "equally many, at least one", "Write zeros.")
    if (scale_a or scale_b) and instruction.scale is None:
        raise hardware_error(f"scales for {instruction.name}", "none", "Leave them out.")
    length = -(-len(a) // instruction.k) * instruction.k
    if length > instruction.k and instruction.c != instruction.d:
        raise hardware_error(f"{len(a)} elements for {instruction.name}", f"up to {instruction.k}", "C is not D.")
    dot = _Dot(
        instruction,
        [*a, *[0] * (length - len(a))],
        [*b, *[0] * (length - len(b))],
        _ones(instruction, scale_a, length),
        _ones(instruction, scale_b, length),
    )
    steps = tuple(dot.steps(c))
    return Trace(instruction, steps, steps[-1].register, dot.exact(c))


def _ones(instruction: Instruction, scales: Sequence[int], length: int) -> list[int]:
    if instruction.scale is None or instruction.block is None:
        return []
    one = operand(instruction.scale).storage.encode(1.0)
    blocks = length // instruction.block
    if len(scales) > blocks:
        raise hardware_error(f"{len(scales)} scales", f"up to {blocks}, one per {instruction.block}", "Leave some out.")
    return [*scales, *[one] * (blocks - len(scales))]


def number(code: int, kind: Operand) -> float:
    """The value of a code as the instruction sees it."""
    code &= (1 << kind.width) - 1
    if not kind.signed and kind.storage.specials is not Specials.SCALE:
        code &= (1 << (kind.width - 1)) - 1
    return kind.storage.decode(code >> kind.dropped << kind.dropped)


def exponent(value: Fraction, kind: Operand) -> int | None:
    """Exponent of the hidden bit's place in the code of ``value``; a zero has none."""
    if value == 0:
        return None
    return max(floor_log2(value), kind.storage.emin)


def floor_log2(value: Fraction) -> int:
    """Exponent e with 2**e <= \\|value\\| < 2**(e + 1)."""
    value = abs(value)
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if value >= Fraction(2) ** guess else guess - 1


def convert(value: Fraction, conversion: Conversion) -> int:
    """Code of ``value`` under ``conversion``."""
    kind = operand(conversion.operand)
    if value == 0:
        return 0
    quantum = Fraction(2) ** (max(floor_log2(value), kind.storage.emin) - conversion.fraction_bits)
    count = round(abs(value) / quantum) if conversion.nearest else math.floor(abs(value) / quantum)
    rounded = count * quantum
    sign = 1 << (kind.width - 1) if value < 0 and rounded else 0
    if rounded > Fraction(kind.storage.max):
        return sign | kind.storage.encode(math.inf)
    return sign | kind.storage.encode(float(rounded))


@dataclass(frozen=True)
class _Dot:
    instruction: Instruction
    a: list[int]
    b: list[int]
    scale_a: list[int]
    scale_b: list[int]

    def steps(self, c: int) -> Iterator[StepTrace]:
        width = self.instruction.model.products
        kind = operand(self.instruction.c)
        for first in range(0, len(self.a), width):
            step = self._step(first, c, kind)
            c, kind = step.register, operand(self.instruction.d)
            yield step

    def _step(self, first: int, c: int, kind: Operand) -> StepTrace:
        model = self.instruction.model
        last = first + model.products
        if type(model) not in (FusedBlock, ScaledGroups) or not self._finite(first, last, c, kind):
            return StepTrace(first, last, (), None, None, None, self._by_model(first, last, c, kind))
        assert isinstance(model, FusedBlock)
        addends = [*self._addends(first, last), ("c", *self._addend_of_c(c, kind))]
        largest = max([model.least, *(e for _, _, e in addends if e is not None)])
        grid = largest - model.kept
        terms = tuple(_term(name, value, e, largest, grid) for name, value, e in addends)
        total = sum(term.kept for term in terms)
        register = convert(total * Fraction(2) ** grid, model.conversion)
        return StepTrace(first, last, terms, largest, grid, total, register)

    def _addend_of_c(self, c: int, kind: Operand) -> tuple[Fraction, int | None]:
        value = Fraction(number(c, kind))
        # A narrower C is widened to the register's format first.
        return value, exponent(value, operand(self.instruction.d))

    def _addends(self, first: int, last: int) -> Iterator[tuple[str, Fraction, int | None]]:
        model = self.instruction.model
        a_kind, b_kind, _, _ = self.instruction.operands
        if isinstance(model, ScaledGroups):
            for g in range(first, last, model.group):
                scale, e = self._scale(g)
                products = [self._product(k) for k in range(g, g + model.group)]
                yield f"g{g // model.group}", sum(products) * scale, e if any(products) else None
            return
        for k in range(first, last):
            scale, e = self._scale(k)
            x, y = Fraction(number(self.a[k], a_kind)), Fraction(number(self.b[k], b_kind))
            parts = (exponent(x, a_kind), exponent(y, b_kind), e)
            yield f"p{k}", x * y * scale, None if None in parts else sum(part or 0 for part in parts)

    def _product(self, k: int) -> Fraction:
        a_kind, b_kind, _, _ = self.instruction.operands
        return Fraction(number(self.a[k], a_kind)) * Fraction(number(self.b[k], b_kind))

    def _scale(self, k: int) -> tuple[Fraction, int | None]:
        """Product of the scales at ``k``, and the sum of their exponents; None where one is zero."""
        if self.instruction.scale is None or self.instruction.block is None:
            return Fraction(1), 0
        kind, block = operand(self.instruction.scale), k // self.instruction.block
        pair = [Fraction(number(scales[block], kind)) for scales in (self.scale_a, self.scale_b)]
        left, right = (exponent(scale, kind) for scale in pair)
        return pair[0] * pair[1], None if left is None or right is None else left + right

    def _finite(self, first: int, last: int, c: int, kind: Operand) -> bool:
        a_kind, b_kind, _, _ = self.instruction.operands
        values = [number(c, kind)]
        values += [number(code, a_kind) for code in self.a[first:last]]
        values += [number(code, b_kind) for code in self.b[first:last]]
        if self.instruction.scale is not None and self.instruction.block is not None:
            kind, block = operand(self.instruction.scale), self.instruction.block
            for scales in (self.scale_a, self.scale_b):
                values += [number(code, kind) for code in scales[first // block : -(-last // block)]]
        return all(map(math.isfinite, values))

    def _by_model(self, first: int, last: int, c: int, kind: Operand) -> int:
        from .matrix_instruction import step_on_codes

        block = self.instruction.block or 1
        scales = slice(first // block, -(-last // block))
        return step_on_codes(
            self.instruction,
            self.a[first:last],
            self.b[first:last],
            c,
            kind,
            self.scale_a[scales],
            self.scale_b[scales],
        )

    def exact(self, c: int) -> Fraction | None:
        """The dot product without any rounding; None with specials."""
        kind = operand(self.instruction.c)
        if not self._finite(0, len(self.a), c, kind):
            return None
        total = Fraction(number(c, kind))
        for k in range(len(self.a)):
            total += self._product(k) * self._scale(k)[0]
        return total


def _term(name: str, value: Fraction, e: int | None, largest: int, grid: int) -> Term:
    kept = math.trunc(value / Fraction(2) ** grid)
    return Term(name, value, e, None if e is None else largest - e, kept, value - kept * Fraction(2) ** grid)
