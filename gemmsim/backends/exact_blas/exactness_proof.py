"""The carrier-exact predicate: when an ordinary GEMM in float32 or float64 provably gives a spec's own bits.

All sums of products, over any subset of the terms, are multiples of ``2**l`` of magnitude at most ``total``. Let a
carrier of p bits have a range that contains them, and let ``total <= 2**(l + p)``. Then every partial sum in every
order is a number of the carrier. So no addition of an ordinary GEMM rounds, fused or not, however it blocks K. The GEMM
returns the exact sum S.

The same argument, with the format of a register in place of the carrier, shows that no step of an accumulator rounds. A
number of a format rounds to itself, with any random bits. So the accumulator's result is S too, whatever its order and
rounding mode.

Zeros: registers start from +0, and a sum of exactly zero is -0 only if both addends are. So the result of an
accumulator without rounding is never -0, and a zero S must get a plus sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gemmsim.arithmetic import Accumulator, Exact, GemmSpec, Sequential
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.compensated import Compensated
from gemmsim.arithmetic.exact_sum import Binned
from gemmsim.arithmetic.integer import Fixed, Integer
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.formats import FP32, FP64, Cast, FixedFormat, FloatFormat
from gemmsim.lowering.refusal import Refusal

from .operand_bounds import Facts

__all__ = ["Proof", "exact", "holds", "parts"]

_ORDERS = (Chunked, Promote, Interleaved, Pairwise, Shuffled, SplitK)
_REGISTERS = (Sequential, Compensated, Binned, Fixed, Integer, Exact)


@dataclass(frozen=True)
class Proof:
    """The proof that the result is the exact sum S in ``carrier``, "float32" or "float64", rounded by ``final``.

    ``final`` None means no rounding.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> facts = exact_blas.facts_of_formats(64, gs.formats.parse("e4m3"), gs.formats.parse("e4m3"))
        >>> exact_blas.exact(gs.GemmSpec.parse("e4m3 : exact(fp32)"), facts)
        Proof(carrier='float64', final=parse_cast('e8m23'), lsb=-18, units=3367254360064)
    """

    carrier: str
    final: Cast | None
    lsb: int
    units: int

    def __str__(self) -> str:
        bound = self.units.bit_length() + self.lsb
        then = "no step rounds" if self.final is None else f"then one rounding to {self.final}"
        return f"every partial sum is a multiple of 2^{self.lsb} below 2^{bound}; {then}"


def exact(spec: GemmSpec, facts: Facts) -> Proof | Refusal:
    """Return the proof that a native GEMM of operands with these ``facts`` gives the bits of ``spec``, or a refusal.

    float32 is the carrier where it suffices. NaN and infinite operands are covered only for ``exact(...)``, whose rule
    for them is that of IEEE 754 sums. Any other accumulator needs ``facts.finite``. The caller must make the sign of a
    zero result plus, and must apply ``spec.out``.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> facts = exact_blas.facts_of_data(torch.ones(2, 8).double(), torch.ones(8, 2).double())
        >>> exact_blas.exact(gs.GemmSpec.parse(":e5m10"), facts)  # sums up to 8 are exact in fp16
        Proof(carrier='float32', final=None, lsb=0, units=8)
    """
    carrier = _carrier(facts)
    if isinstance(carrier, Refusal):
        return carrier
    accumulator = spec.accumulator
    refusal = _refuses_rounding(spec, facts)
    if refusal is None:
        return Proof(carrier, None, facts.lsb, facts.units)
    if isinstance(accumulator, Exact) and not accumulator.out.is_stochastic:
        return Proof(carrier, accumulator.out, facts.lsb, facts.units)
    return refusal


def _carrier(facts: Facts) -> str | Refusal:
    lowest = min(facts.lsb, facts.lsb_a, facts.lsb_b)
    most = max(facts.units, facts.units_a, facts.units_b)
    for name, fmt in (("float32", FP32), ("float64", FP64)):
        # Only normal numbers are allowed, because a processor may be set to flush subnormals. A bound that float64 sums
        # gave is exact below 2**53 units, but not at 2**53.
        if most < 1 << 53 and most <= 1 << fmt.p and lowest >= fmt.emin and _largest(facts) <= fmt.max_fraction:
            return name
    if most < 1 << 53:
        return Refusal(f"numbers of {most.bit_length()} bits above 2^{lowest} leave the normal range of float64")
    return Refusal(f"sums may have {most.bit_length()} bits, float64 holds 53")


def _largest(facts: Facts) -> Fraction:
    lsb = min(facts.lsb_a, facts.lsb_b, facts.lsb)
    parts = ((facts.units_a, facts.lsb_a), (facts.units_b, facts.lsb_b), (facts.units, facts.lsb))
    return max(units << (low - lsb) for units, low in parts) * Fraction(2) ** lsb


def _refuses_rounding(spec: GemmSpec, facts: Facts) -> Refusal | None:
    """Return what in the accumulator may round sums with these facts, or ``None`` if no step does."""
    if not facts.finite:
        return Refusal("operands may be NaN or infinite")
    if spec.arithmetic == "fp32":
        operands = max(facts.units_a, facts.units_b) <= 1 << 24 and min(facts.lsb_a, facts.lsb_b) >= FP32.emin
        if not (operands and holds(Cast(FP32), facts)):
            return Refusal('arithmetic="fp32" may round a sum to binary32')
    for part in parts(spec.accumulator):
        refusal = _refuses_part(part, facts)
        if refusal is not None:
            return refusal
    for cast in (step for one in spec.accumulator.casts() for step in one.steps):
        unbounded = isinstance(cast.format, FixedFormat) and not cast.format.clamp
        if not unbounded and not holds(cast, facts):
            return Refusal(f"{cast} may round a sum")
    return None


def parts(accumulator: Accumulator) -> list[Accumulator]:
    """Return ``accumulator`` and its inner accumulators, from the outside in."""
    found = [accumulator]
    while isinstance(found[-1], _ORDERS):
        found.append(found[-1].inner)
    return found


def _refuses_part(part: Accumulator, facts: Facts) -> Refusal | None:
    """Return why this part may change a sum by other means than its casts, or ``None``."""
    if isinstance(part, SplitK) and part.share == "floor":
        return Refusal(f"{part} may lose terms")
    if isinstance(part, _ORDERS):
        return None
    if not isinstance(part, _REGISTERS):
        return Refusal(f"no proof is known for {part}")
    if isinstance(part, Sequential) and part.init != "zero":
        return Refusal(f"init={part.init!r}: nothing is known about C")
    if isinstance(part, Integer):
        if facts.lsb_a < 0 or facts.lsb_b < 0:
            return Refusal(f"{part} takes only integers")
        if part.shift:
            return Refusal(f"{part} truncates products")
    if isinstance(part, Fixed) and -part.frac > facts.lsb:
        return Refusal(f"{part} may round a product")
    if isinstance(part, (Integer, Fixed)) and not holds(part.add_cast, facts):
        return Refusal(f"{part} may overflow")
    return None


def holds(cast: Cast, facts: Facts) -> bool:
    """Whether ``cast`` keeps every multiple of ``2**facts.lsb`` up to ``facts.total`` in magnitude unchanged."""
    fmt = cast.format
    if not fmt.has_zero or facts.units == 0:
        return fmt.has_zero
    if fmt.quantum_exponent > facts.lsb or facts.total > fmt.max_fraction:
        return False
    if not facts.nonnegative and -facts.total < fmt.min_fraction:
        return False
    if isinstance(fmt, FixedFormat):
        return True
    if not isinstance(fmt, FloatFormat):
        return False  # some multiples of its quantum within its range are not its values
    return (fmt.subnormals or facts.lsb >= fmt.emin) and facts.units <= 1 << fmt.p
