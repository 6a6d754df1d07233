"""What a method needs on AVX-512: instructions for each vector of MACs of an accumulator.

Counts are those of the method (docs/design/cpu_limits.md), not of the compiled code: spills, loads and
loop control are the distance to the limit. Those of scalar kernels were counted by callgrind.
"""

from __future__ import annotations

from gemmsim.arithmetic import Accumulator, Sequential
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.compensated import FastTwoSum, Kahan, Neumaier, TwoSum
from gemmsim.arithmetic.exact_sum import Binned, Exact
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.arithmetic.integer import Fixed, Integer
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.backends.cpu import Kernels
from gemmsim.formats import Cast, FloatFormat, RoundingMode

__all__ = ["FMA_WIDTH", "VECTOR_WIDTH", "instructions"]

#: Vector and scalar instructions a cycle (Zen 5: four vector pipes, eight instructions dispatched); multiplications,
#: fused or not, go to two pipes, additions to the other two.
VECTOR_WIDTH, SCALAR_WIDTH, FMA_WIDTH = 4, 8, 2

#: Instructions of one rounding by kind (docs/design/cpu.md) and of the round-to-odd around it.
ROUNDING = {
    "native": 0,
    "round": 3,
    "round+subnormals": 5,
    "round+saturate": 7,
    "round+overflow": 11,
    "round+flush": 13,
    "directed": 7,
    "directed+overflow": 11,
    "any mode": 30,
}
TO_ODD = 3
#: Sequential steps with checked sums (docs/design/cpu.md, "Speculative sums"): the operation, two instructions that
#: cut its bits (three of splitting where steps are not to odd), one that checks for midpoints and one for small sums,
#: half a one for rescaled values of at most 11 bits, none where all operands are rescaled. Registers with more than 13
#: bits are rounded to odd.
SPECULATIVE = {"fma to odd, round": 4, "fma to odd, round+subnormals": 5, "fma, round+subnormals": 5}
RESCALED = {"fma to odd, round+subnormals": 4, "fma, round+subnormals": 4.5}
MOST_RESCALED_BITS, MOST_SPECULATIVE_BITS = 11, 13
#: Where products of 24-bit numbers can lead few sums to midpoints: the operation and the cut.
APART, LEAST_APART = 3, -32
#: Directed steps: the operation and the cut, wherever sums lie; up and down of normal sums, which are looked at.
TRUNCATED = {RoundingMode.RTZ: 2, RoundingMode.RNA: 3, RoundingMode.RU: 6, RoundingMode.RD: 6}
#: Stochastic ones of float lanes: the operation, the draw (masked and put in place), an addition and the cut;
#: where the lanes hold the random bits in part, these need no mask, and the sum's last places are looked at, too.
DRAWN_STEP, CARRIED_STEP, MOST_DRAWN = 5, 6, 23
#: Random bits of one call (Philox), which serves eight steps (four of more than 16 bits): fifteen halves of rounds,
#: three instructions each, for both halves of a vector, and the words of a call put together.
CALL, LONG_DRAWS = 2 * 15 * 3 + 4, 16
#: Kinds of rounding for which runs and sums of their totals are one kernel (short_runs.h); the share of zero signs.
SIGN = {"native": 0, "round": 0, "round+subnormals": 1}
#: Longest runs of a sum in pairs that leave the signs of zeros to the end.
SHORT = 2
#: Rounded operations of a compensated step, the first with a product, and what stands between them.
COMPENSATED = {Kahan: (4, 0), Neumaier: (5, 5), TwoSum: (8, 0), FastTwoSum: (5, 0)}
#: Sums of two registers of a compensated step where no overflow is awaited: the carrier's own, rounded in 4.
REGISTERS_ONLY = 1 + ROUNDING["round"]
#: A register of integers in float lanes: a fused multiply-add, or a product scaled, cut and added; a clamp.
INTEGER_STEP, CUT_STEP, CLAMP = 1, 4, 2
#: Kernels that compute one element at a time, and their instructions per MAC.
SCALAR_KERNELS = ("scalar", "long register", "binned", "integer scalar")
SCALAR = {Exact: 157, Binned: 169, Integer: 173, Fixed: 250}
#: A matrix instruction: per product (two multiplications, conversion, addition; exponents added and compared, in twice
#: as many lanes), and per step, output by output (scales, the register cut, parts added, the sum converted).
PER_PRODUCT, PER_STEP = 5, 20


def instructions(accumulator: Accumulator, run: Kernels, k: int) -> tuple[float, int] | None:
    """(instructions per vector of MACs, or per MAC in a scalar kernel; instructions a cycle), None where unknown.

    ``run`` says what ran: the kind of rounding, and whether a clamp was left out.
    """
    kernel = run.names[0]
    runs = _combinations(accumulator, k)
    if runs is not None and (together := _runs(accumulator, kernel, k / runs)) is not None:
        return together
    if runs is not None:
        inner = instructions(accumulator.inner, run, k)  # type: ignore[attr-defined]
        total = _operation(kernel)
        return None if inner is None or total is None else (inner[0] + total * runs / k, inner[1])
    if kernel in SCALAR_KERNELS:
        return (SCALAR[type(accumulator)], SCALAR_WIDTH) if type(accumulator) in SCALAR else None
    if isinstance(accumulator, Hardware):
        return PER_PRODUCT + PER_STEP / accumulator.instruction.model.products, VECTOR_WIDTH
    if isinstance(accumulator, (Integer, Fixed)):
        step = CUT_STEP if isinstance(accumulator, Fixed) or accumulator.shift else INTEGER_STEP
        clamped = accumulator.overflow == "saturate" and not run.proofs
        return step + CLAMP * clamped, FMA_WIDTH if step == 1 and not clamped else VECTOR_WIDTH
    operation = _operation(kernel)
    if operation is None:
        return None
    if isinstance(accumulator, Sequential):
        each = _speculative(accumulator, kernel) or (operation if accumulator.mul is None else 2 * operation)
        return each, FMA_WIDTH if each == 1 else VECTOR_WIDTH
    rounded, beside = COMPENSATED[type(accumulator)]
    others = REGISTERS_ONLY if kernel.endswith("round+subnormals") else operation
    return operation + (rounded - 1) * others + beside, VECTOR_WIDTH


def _speculative(accumulator: Sequential, kernel: str) -> float | None:
    """Instructions of a step whose sum is checked; None where none is, or a product has a rounding of its own."""
    cast = accumulator.add
    if accumulator.mul is not None:
        return None
    if kernel.endswith(", directed") and cast.is_stochastic:
        return _drawn(cast) if "float32" in kernel else None
    if kernel.endswith(", directed"):
        return TRUNCATED.get(cast.rounding.mode)
    bits = cast.format.p if "float32" in kernel and isinstance(cast.format, FloatFormat) else 0
    if bits > MOST_SPECULATIVE_BITS:
        return None
    kind = kernel.split(" lanes, ")[-1]
    if bits and kind in RESCALED and "to odd" in kind and cast.format.emin >= LEAST_APART:  # type: ignore[union-attr]
        return APART
    return RESCALED[kind] if kind in RESCALED and 0 < bits <= MOST_RESCALED_BITS else SPECULATIVE.get(kind)


def _drawn(cast: Cast) -> float | None:
    """Instructions of a stochastic step in float lanes, its share of the random bits included."""
    bits = cast.rounding.bits
    if not isinstance(cast.format, FloatFormat):
        return None
    step = DRAWN_STEP if cast.format.p + bits <= MOST_DRAWN else CARRIED_STEP
    return step + CALL / (4 if bits > LONG_DRAWS else 8)


def _runs(accumulator: Accumulator, kernel: str, terms: float) -> tuple[float, int] | None:
    """Runs of `terms` terms and their totals in one kernel (short_runs.h): the first term is a rounded product."""
    inner = accumulator.inner  # type: ignore[attr-defined]
    kind = kernel.rsplit(", ", 1)[-1]
    if not isinstance(inner, Sequential) or inner.mul is not None or accumulator.add_cast != inner.add_cast:
        return None
    if isinstance(accumulator, SplitK) or kind not in SIGN:
        return None
    if kind == "native":
        return 1, FMA_WIDTH  # additions of totals have pipes of their own
    in_pairs = isinstance(accumulator, Pairwise) or getattr(accumulator, "combine", "") == "pairwise"
    sign = SIGN[kind] if in_pairs and terms > SHORT else 0
    rounding = ROUNDING[kind] - SIGN[kind] + sign
    first = 1 + rounding  # of the exact product, odd or not
    step = 1 + (TO_ODD if "to odd" in kernel else 0) + rounding
    total = 1 + ROUNDING["round"] + sign
    return ((terms - 1) * step + first + total) / terms, VECTOR_WIDTH


def _operation(kernel: str) -> int | None:
    """One rounded operation: to odd it is the operation twice, a test and a blend."""
    kind = kernel.rsplit(", ", 1)[-1]
    return 1 + (TO_ODD if "to odd" in kernel else 0) + ROUNDING[kind] if kind in ROUNDING else None


def _combinations(accumulator: Accumulator, k: int) -> int | None:
    """How many totals are added for an output; None for an accumulator that adds none."""
    if isinstance(accumulator, (Chunked, Promote)):
        return -(-k // accumulator.n)
    if isinstance(accumulator, Pairwise):
        return -(-k // accumulator.leaf)
    if isinstance(accumulator, Interleaved):
        return accumulator.lanes
    return 2 * accumulator.slices if isinstance(accumulator, SplitK) else None
