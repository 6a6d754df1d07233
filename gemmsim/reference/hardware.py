"""Matrix instructions of real chips, in Python's integers: docs/reference/hardware.md#one-step, formula by formula.

Of ``gemmsim.hardware`` only the tables are used (which instruction, which parameters), none of its arithmetic. Where
operands come without block scales these are 1: their exponents are 0, and multiplying by them changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from gemmsim.hardware.step_parameters import (
    LEAST_EXPONENT,
    Conversion,
    ExactSum,
    FlooredSum,
    FmaChain,
    FusedBlock,
    Model,
    PairwiseTree,
    ScaledGroups,
    TwoBlocks,
)

from ..arithmetic import Hardware
from ..formats import FP16, FP32, Cast, FloatFormat
from ..hardware.instruction import Instruction
from ..hardware.operands import OPERANDS
from .dot import Dot, implements, with_first_tile
from .dyadic import NAN, Value, add
from .rounding import rounder
from .scaled import times_tensor_scales

__all__ = ["chain"]


class _Step(NamedTuple):
    """The operands of one step, their exact products and the register, the last two in units of 2**unit."""

    left: Sequence[float]
    right: Sequence[float]
    products: Sequence[Value]
    c: Value
    row: Instruction
    unit: int
    #: Block scale of each operand of the step; empty where all are 1.
    left_scales: Sequence[float] = ()
    right_scales: Sequence[float] = ()
    scale_format: FloatFormat | None = None
    #: Words about the inside of the step, for who asks.
    words: list[str] | None = None

    def say(self, text: str) -> None:
        """Adds to the words."""
        if self.words is not None:
            self.words.append(text)


class _Scales(NamedTuple):
    """The block scale of each operand of a and of b, empty where all are 1, and their format."""

    left: Sequence[float] = ()
    right: Sequence[float] = ()
    format: FloatFormat | None = None


_NO_SCALES = _Scales()


class _Term(NamedTuple):
    """significand * 2**(exponent - bits): a product or the register, not normalised; ``counts``: its exponent does."""

    significand: int
    exponent: int
    bits: int
    counts: bool

    def cut(self, place: int) -> int:
        """In units of 2**place, toward zero."""
        return -_floor(-self.significand, self._shift(place)) if self.significand < 0 else self.floor(place)

    def floor(self, place: int) -> int:
        """In units of 2**place, toward minus infinity."""
        return _floor(self.significand, self._shift(place))

    def _shift(self, place: int) -> int:
        return self.exponent - self.bits - place


@implements(Hardware)
def _hardware(accumulator: Hardware, dot: Dot) -> Value:
    """The chain from +0, K filled up with zeros to whole instructions: at the end, or after the first tile's terms."""
    row = accumulator.instruction
    dot = with_first_tile(accumulator.first, dot)
    fill = -len(dot.products) % row.k
    operands = ([*dot.left, *[0.0] * fill], [*dot.right, *[0.0] * fill])
    scales, fmt = _Scales(format=dot.scale_format), dot.scale_format
    if dot.group is not None and fmt is not None:
        left, right = (_filled(some, fill, dot.group, fmt) for some in (dot.left_scales, dot.right_scales))
        scales = _Scales(left, right, fmt)
    products = [*dot.products, *[0] * fill]
    told = None if dot.log is None else partial(_tell, dot, len(dot.products))
    result = chain(row, operands[0], operands[1], products, 0, dot.unit, scales, told)
    return times_tensor_scales(result, accumulator.add_cast, dot)


def _tell(dot: Dot, length: int, step: _Step, first: int, value: Value) -> None:
    """Tells the log of ``dot`` of one step of its instruction, whose terms from ``length`` on are zeros."""
    assert dot.ks is not None and step.words is not None
    for i, (x, y, p) in enumerate(zip(step.left, step.right, step.products, strict=True), first):
        if i < length and dot.ks[i] is not None:
            dot.note("product", f"{x!r} * {y!r}", (), p, p, None, dot.ks[i])
    exact = step.c
    for p in step.products:
        exact = add(exact, p)
    if step.scale_format is not None:
        exact = value  # the products here are without their scales
    inside = "; ".join(step.words) or "NaN or infinity decides"
    inside = inside.replace("{", "{{").replace("}", "}}")  # {} is the place of the accumulator's value
    dot.note("instruction", f"accumulator {{}} and {len(step.products)} products: {inside}", (step.c,), exact, value)


def _filled(scales: Sequence[float], fill: int, block: int, fmt: FloatFormat) -> Sequence[float]:
    """Scales without signs; the last block goes on to its end, later ones have code 0."""
    rest = min(-len(scales) % block, fill)
    return [abs(x) for x in [*scales, *[scales[-1] if scales else 1.0] * rest, *[fmt.decode(0)] * (fill - rest)]]


def chain(
    row: Instruction,
    left: Sequence[float],
    right: Sequence[float],
    products: Sequence[Value],
    c: Value,
    unit: int,
    scales: _Scales = _NO_SCALES,
    told: Callable[[_Step, int, Value], None] | None = None,
) -> Value:
    """The register after all steps of ``row`` over whole instructions, from ``c``.

    products: those of ``left`` and ``right``, exact. They, c and the result are in units of 2**unit. ``told`` is told
    of each step, with the k of its first term and the register after it.
    """
    step, width = _STEPS[type(row.model)], row.model.products
    for k in range(0, len(products), width):
        part = slice(k, k + width)
        words: list[str] | None = None if told is None else []
        one = _Step(
            left[part],
            right[part],
            products[part],
            c,
            row,
            unit,
            scales.left[part],
            scales.right[part],
            scales.format,
            words,
        )
        c = step(row.model, one)
        if told is not None:
            told(one, k, c)
    return c


def _fused_block(model: FusedBlock, step: _Step) -> Value:
    """E = max of the exponents of all but zeros, at least ``least``; each addend cut toward zero at 2^(E - F); exact
    sum; one conversion."""
    special = _special([*step.products, step.c, *_nan_scales(step)])
    if special is not None:
        return special
    terms = [*_scaled(_products(step), step, 1), _register(step)]
    return _cut_and_added(terms, model, step)


def _cut_and_added(terms: list[_Term], model: FusedBlock | ScaledGroups, step: _Step) -> Value:
    """Each term cut below the largest exponent, their exact sum, converted once."""
    place = max([model.least, *(term.exponent for term in terms if term.counts)]) - model.kept
    kept = [term.cut(place) for term in terms]
    step.say(f"largest exponent {place + model.kept}, addends truncated below 2^{place}")
    step.say(f"kept {', '.join(map(str, kept))} (the last is the accumulator)")
    step.say(f"sum {sum(kept)} * 2^{place}, converted by {model.conversion.name}")
    return _converted(sum(kept), place, model.conversion, step.unit)


def _two_blocks(model: TwoBlocks, step: _Step) -> Value:
    """Products of binary16 numbers with k mod 4 in {0, 1}, then {2, 3}, each a fused block, the first from +0; then the
    register is added to nearest."""
    total: Value = 0
    for wanted in ((0, 1), (2, 3)):
        which = [k for k in range(len(step.products)) if k % 4 in wanted]
        step.say(f"k mod 4 in {{{wanted[0]}, {wanted[1]}}}")
        left, right, products = ([some[k] for k in which] for some in (step.left, step.right, step.products))
        total = _fused_block(model, step._replace(left=left, right=right, products=products, c=total))
    step.say("then the accumulator is added, rounded to nearest")
    return rounder(Cast(OPERANDS[step.row.d].format), step.unit)(add(step.c, total))


def _exact_sum(model: ExactSum, step: _Step) -> Value:
    """All products and the register, one rounding; a sum of zero is +0."""
    step.say("exact sum with the accumulator, rounded once")
    total: Value = step.c
    for p in step.products:
        total = add(total, p)
    return rounder(Cast(OPERANDS[step.row.d].format), step.unit)(total) if total != 0 else 0


def _scaled_groups(model: ScaledGroups, step: _Step) -> Value:
    """As a fused block whose addends are exact sums of groups times both scales, with the scales' exponents. Groups of
    zero products do not count."""
    special = _special([*step.products, step.c, *_nan_scales(step)])
    if special is not None:
        return special
    grid = min(term.exponent - term.bits for term in _products(step))
    values = [term.cut(grid) for term in _products(step)]
    groups = [values[first : first + model.group] for first in range(0, len(values), model.group)]
    sums = [_Term(sum(group), 0, -grid, any(group)) for group in groups]
    terms = [*_scaled(sums, step, model.group), _register(step)]
    step.say(f"{len(sums)} groups of {model.group} summed exactly, times their scales")
    return _cut_and_added(terms, model, step)


def _nan_scales(step: _Step) -> Sequence[float]:
    return [x for x in (*step.left_scales, *step.right_scales) if math.isnan(x)]


def _scaled(terms: list[_Term], step: _Step, size: int) -> list[_Term]:
    """Terms of ``size`` products each, times their scales: significands multiply, exponents add."""
    fmt = step.scale_format
    if fmt is None:
        return terms
    scaled = []
    for i, term in enumerate(terms):
        left, right = _decoded(step.left_scales[i * size], fmt), _decoded(step.right_scales[i * size], fmt)
        exponent, significand = term.exponent + left[1] + right[1], term.significand * left[0] * right[0]
        counts = term.counts and left[0] * right[0] != 0
        scaled.append(_Term(significand, exponent, term.bits + 2 * (fmt.p - 1), counts))
    return scaled


def _pairwise_tree(model: PairwiseTree, step: _Step) -> Value:
    """Products plus +0, adjacent pairs, then the register plus the total: each rounded to binary32."""
    round32 = rounder(Cast(FP32), step.unit)
    smallest = 1 << (FP32.emin - step.unit)

    def settled(x: Value) -> Value:
        x = round32(x)
        if type(x) is int and abs(x) < smallest:
            return -0.0 if x < 0 else 0
        return x

    c = step.c
    if c == 0 or (type(c) is int and abs(c) < smallest):
        c = 0
    step.say("pairs added level by level, then the accumulator, each rounded to binary32, subnormals flushed")
    values = [settled(add(p, 0)) for p in _flushed(step)]
    while len(values) > 1:
        values = [settled(add(x, y)) for x, y in zip(values[::2], values[1::2], strict=True)]
    return settled(add(c, values[0]))


def _flushed(step: _Step) -> Iterator[Value]:
    """The products after operands that are subnormal in their own format have become +0."""
    a, b = OPERANDS[step.row.a].format, OPERANDS[step.row.b].format
    for x, y, p in zip(step.left, step.right, step.products, strict=True):
        if 0 < abs(x) < a.smallest_normal or 0 < abs(y) < b.smallest_normal:
            yield 0 if math.isfinite(x) and math.isfinite(y) else NAN
        else:
            yield p


def _floored_sum(model: FlooredSum, step: _Step) -> Value:
    """Products cut at F below their own largest exponent e; total floored at M - 32, c at M - 24, M = max(e, e_c).

    Their sum is floored at 31 bits below its own exponent. Zero products do not count; a zero c has the exponent of the
    smallest normal number.
    """
    special = _special([*step.products, step.c])
    if special is None:
        # A finite product of 2**128 or more counts as infinite.
        limit = 1 << (128 - step.unit)
        special = _special([math.inf if p > 0 else -math.inf for p in step.products if abs(p) >= limit])
    if special is not None:
        return special
    products, c = _products(step), _register(step)
    parts = [products[::2], products[1::2]] if model.halves else [products]
    sums = [_cut_sum(model, part) for part in parts]
    exponent = max(one.exponent for one in sums)
    total = _Term(sum(one.floor(exponent - model.kept) for one in sums), exponent, model.kept, True)
    largest = max(exponent, c.exponent)
    place = largest - model.total_bits
    kept = total.floor(place)
    if model.window is None or c.exponent >= largest - model.window:
        kept += c.floor(largest - model.addend_bits) << (model.total_bits - model.addend_bits)
    own = max(abs(kept).bit_length() - 1 + place, OPERANDS[step.row.d].format.emin)
    drop = max(own - model.sum_bits - place, 0)
    kept = kept >> drop << drop
    step.say(f"products truncated {model.kept} bits below their largest exponent {exponent}, then summed")
    step.say(f"sum {kept} * 2^{place} with the accumulator, converted by {model.conversion.name}")
    return _converted(kept, place, model.conversion, step.unit)


def _cut_sum(model: FlooredSum, terms: Sequence[_Term]) -> _Term:
    # Where all are zero any exponent serves that is below those of others.
    exponent = max((term.exponent for term in terms if term.counts), default=LEAST_EXPONENT)
    return _Term(sum(term.cut(exponent - model.kept) for term in terms), exponent, model.kept, True)


def _fma_chain(model: FmaChain, step: _Step) -> Value:
    """c = R(c + p) for each product: fused multiply-adds, to nearest even in the register's format."""
    rounding = rounder(Cast(OPERANDS[step.row.d].format), step.unit)
    c = step.c
    step.say(f"fused multiply-adds, each rounded to {OPERANDS[step.row.d].format}")
    for p in step.products:
        c = rounding(add(c, p))
    return c


_STEPS: dict[type[Model], Callable[[Any, _Step], Value]] = {
    FusedBlock: _fused_block,
    ScaledGroups: _scaled_groups,
    TwoBlocks: _two_blocks,
    ExactSum: _exact_sum,
    PairwiseTree: _pairwise_tree,
    FlooredSum: _floored_sum,
    FmaChain: _fma_chain,
}


def _special(addends: Sequence[Value]) -> Value | None:
    """NaN or the infinity that NaN and infinite addends make; None if all are finite."""
    found: Value | None = None
    for x in addends:
        if type(x) is float and not math.isfinite(x):
            found = x if found is None else add(found, x)
    return found


def _formats(row: Instruction) -> tuple[FloatFormat, FloatFormat]:
    """Of the operands as they are multiplied."""
    if isinstance(row.model, TwoBlocks):
        return FP16, FP16
    return OPERANDS[row.a].format, OPERANDS[row.b].format


def _products(step: _Step) -> list[_Term]:
    """Significands and exponents of finite products: those of both operands multiplied and added."""
    a, b = _formats(step.row)
    terms = []
    for x, y in zip(step.left, step.right, strict=True):
        (x_significand, x_exponent), (y_significand, y_exponent) = _decoded(x, a), _decoded(y, b)
        significand = x_significand * y_significand
        terms.append(_Term(significand, x_exponent + y_exponent, a.p + b.p - 2, significand != 0))
    return terms


def _decoded(x: float, fmt: FloatFormat) -> tuple[int, int]:
    """(significand, exponent of its hidden bit): x = significand * 2**(exponent - p + 1)."""
    if x == 0:
        return 0, fmt.emin
    exponent = max(math.frexp(x)[1] - 1, fmt.emin)
    return int(math.ldexp(x, fmt.p - 1 - exponent)), exponent


def _register(step: _Step) -> _Term:
    """The register, finite."""
    fmt = OPERANDS[step.row.d].format
    # -0.0 is a zero too.
    c = int(step.c)
    exponent = fmt.emin if c == 0 else max(abs(c).bit_length() - 1 + step.unit, fmt.emin)
    return _Term(c, exponent, exponent - step.unit, c != 0)


def _floor(x: int, shift: int) -> int:
    return x << shift if shift >= 0 else x >> -shift


def _converted(total: int, place: int, conversion: Conversion, unit: int) -> Value:
    """``total * 2**place`` with the conversion's fraction bits, subnormals kept; +0 for zero, and for underflow unless
    the conversion keeps its sign."""
    fmt = OPERANDS[conversion.operand].format
    magnitude = abs(total)
    exponent = max(magnitude.bit_length() - 1 + place, fmt.emin)
    quantum = exponent - conversion.fraction_bits
    kept = _floor(magnitude, place - quantum)
    if conversion.nearest and quantum > place:
        twice_rest = 2 * (magnitude - (kept << (quantum - place)))
        one = 1 << (quantum - place)
        kept += twice_rest > one or (twice_rest == one and kept % 2 == 1)
    kept <<= quantum - unit
    if kept >= 1 << (fmt.emax + 1 - unit):
        return -math.inf if total < 0 else math.inf
    if kept == 0:
        return -0.0 if total < 0 and conversion.signed else 0
    return -kept if total < 0 else kept
