"""Formats in words, for ``describe()`` and the command line."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from . import float_codec
from .checks import number_text
from .specials import Specials

if TYPE_CHECKING:
    from .fixed_format import FixedFormat
    from .float_format import FloatFormat

__all__ = ["describe_fixed", "describe_float"]


def describe_float(fmt: FloatFormat) -> str:
    """Layout, range, spacing and special values of a float format, one fact a line."""
    largest, lowest, eps = fmt.max_fraction, fmt.min_fraction, Fraction(fmt.eps)
    lines = [f"{fmt}: {_layout(fmt)}"]
    lines.append(f"  max {number_text(largest)}, min {number_text(lowest)}, eps {number_text(eps)}")
    lines.append(f"  {_small_values(fmt)}")
    lines.append(f"  {_specials(fmt)}")
    lines.append(f"  beyond max without saturation: {_overflow(fmt)}")
    if not fmt.fits_float64:
        lines.append("  wider than float64: only exact (Fraction) values, no quantization")
    return "\n".join(lines)


def describe_fixed(fmt: FixedFormat) -> str:
    """Layout, range, spacing and overflow of a fixed-point format, one fact a line."""
    sign = "signed, two's complement" if fmt.signed else "unsigned"
    if not fmt.clamp:
        return (
            f"{fmt}: fixed-point grid without bounds\n"
            f"  multiples of {number_text(_power(-fmt.frac))}; nothing saturates, infinities stay\n"
            "  no -0"
        )
    lowest = ", lowest code left out" if fmt.symmetric else ""
    return (
        f"{fmt}: {fmt.bits}-bit fixed point, {sign}{lowest}, {fmt.frac} fraction bits\n"
        f"  max {number_text(fmt.max_fraction)}, min {number_text(fmt.min_fraction)}, "
        f"multiples of {number_text(_power(-fmt.frac))}\n"
        "  no infinity, no NaN, no -0\n"
        "  beyond max or min: saturates, including infinities"
    )


def _power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _layout(fmt: FloatFormat) -> str:
    family = {
        Specials.IEEE: "IEEE-like float",
        Specials.NAN_ONLY: "float with NaN and no infinity",
        Specials.FNUZ: "fnuz float",
        Specials.NONE: "finite float",
        Specials.P3109_EXTENDED: "P3109 float, extended domain",
        Specials.P3109_FINITE: "P3109 float, finite domain",
        Specials.SCALE: "scale, powers of two",
    }[fmt.specials]
    sign = "1 sign" if fmt.signed else "0 sign (unsigned)"
    fields = f"{sign} + {fmt.exponent_bits} exponent + {fmt.trailing_bits} trailing significand bits (p = {fmt.p})"
    return f"{fmt.bits}-bit {family}\n  {fields}, bias {fmt.bias}, emin {fmt.emin}, emax {fmt.emax}"


def _small_values(fmt: FloatFormat) -> str:
    if not fmt.has_normals:
        return f"no normal values, only multiples of {number_text(_power(fmt.quantum_exponent))}"
    subnormal = f"smallest subnormal {number_text(_power(fmt.quantum_exponent))}"
    normal = f"smallest normal {number_text(_power(fmt.emin))}"
    if fmt.has_subnormals:
        return f"{normal}, {subnormal}"
    if not fmt.has_zero:
        return f"smallest value {number_text(_power(fmt.emin))}, no zero"
    reason = "p = 1 has none" if fmt.subnormals else "flushed to zero"
    return f"{normal}, no subnormals ({reason})"


def _specials(fmt: FloatFormat) -> str:
    infinities = ("+-infinity" if fmt.signed else "+infinity") if fmt.has_inf else "no infinity"
    if fmt.has_nan:
        nans = float_codec.nan_codes(fmt) if fmt.bits <= 16 else []
        listed = " and ".join(f"{code:#x}" for code in nans) if len(nans) <= 2 else f"{len(nans)} codes"
        nan = f"NaN ({'code ' if len(nans) == 1 else 'codes ' if len(nans) == 2 else ''}{listed})" if nans else "NaN"
    else:
        nan = "no NaN"
    zero = "+0 and -0" if fmt.has_negative_zero else "one zero" if fmt.has_zero else "no zero"
    return f"{infinities}, {nan}, {zero}"


def _overflow(fmt: FloatFormat) -> str:
    if fmt.has_inf:
        return "infinity"
    if fmt.specials is Specials.P3109_FINITE or not fmt.has_nan:
        return "the largest value"
    return "NaN"
