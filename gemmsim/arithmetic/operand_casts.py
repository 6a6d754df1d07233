"""Operand casts that an accumulator asks for, and which others it holds exactly."""

from __future__ import annotations

from fractions import Fraction

from ..formats import Cast, CodebookFormat, FixedFormat, FloatFormat, Format, Overflow, OwnExponentFormat
from .accumulator import Accumulator
from .errors import spec_error

__all__ = ["operand_cast"]


def operand_cast(given: Cast | None, taken: Cast, accumulator: Accumulator, name: str) -> Cast:
    """``given`` if every value of it is one of ``taken``'s, ``taken`` if none is given.

    Raises:
        SpecError: for a cast with values that ``taken``'s format does not hold.
    """
    if given is None:
        return taken
    if not _holds(taken.format, given):
        raise spec_error(
            f"GemmSpec: operand {name}={given} with {accumulator}, which takes {taken.format}",
            f"{taken.format}, or a format whose every value {taken.format} holds, infinities included",
            f"Leave {name} out for {taken}, or choose another one.",
        )
    return given


def _holds(operand: Format, given: Cast) -> bool:
    """Whether ``operand`` has every number that ``given`` results in. NaN is one in any carrier; -0 counts as 0."""
    fmt = given.format
    if fmt == operand:
        return True
    if not isinstance(operand, FloatFormat):  # a table's, of up to 8 bits
        few = fmt.bits <= 8 and getattr(fmt, "clamp", True) and not isinstance(fmt, OwnExponentFormat)
        return few and not fmt.has_inf and set(fmt.values()) <= set(operand.values())
    if isinstance(fmt, CodebookFormat):
        return all(operand.is_representable(value) for value in fmt.points)
    if isinstance(fmt, FixedFormat):
        # Integers up to 2**p have at most p bits; the end of a two's complement range, -2**(n-1), has one.
        return fmt.clamp and _largest(fmt) * Fraction(2) ** fmt.frac <= 2**operand.p and _inside(operand, fmt)
    infinite = fmt.has_inf and given.overflow is not Overflow.CLAMP
    return fmt.p <= operand.p and _inside(operand, fmt) and (operand.has_inf or not infinite)


def _largest(fmt: Format) -> Fraction:
    return max(fmt.max_fraction, -fmt.min_fraction)


def _inside(operand: FloatFormat, fmt: Format) -> bool:
    """Whether the grid and the range of ``operand`` reach as far."""
    return fmt.quantum_exponent >= operand.quantum_exponent and _largest(fmt) <= operand.max_fraction
