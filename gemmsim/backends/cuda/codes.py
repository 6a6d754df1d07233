"""Lowers formats whose codes kernels read: gemmsim::CodeFormat (cutlass_kernels/include/gemmsim/device/codes.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

from gemmsim.formats import FixedFormat, FloatFormat, Format, FormatError, Specials

__all__ = ["CodeFormat", "code_format", "decoded"]

#: Exponents of the smallest and the largest power of two, of float and of double.
_POWERS = ((-149, 127), (-1074, 1023))


@dataclass(frozen=True)
class CodeFormat:
    """gemmsim::CodeFormat, field by field."""

    bits: int
    trailing: int
    quantum: int
    finite: int
    infinity: int
    is_signed: int
    whole: int
    subnormals: int
    from_one: int
    nan_at_sign: int
    wide: int
    packed: int

    def literal(self) -> str:
        """Return its C++ initializer."""
        return "{" + ", ".join(f".{f.name} = {getattr(self, f.name)}" for f in fields(self)) + "}"


def decoded(codes: CodeFormat, code: int) -> float:
    """``gemmsim::decode`` in Python: return the value of a code, NaN where the code is not in use."""
    sign, implicit = 1 << (codes.bits - 1), 1 << codes.trailing
    if codes.nan_at_sign and code == sign:
        return math.nan
    if codes.whole:
        return math.ldexp(code - 2 * sign if codes.is_signed and code & sign else code, codes.quantum)
    negative = bool(codes.is_signed and code & sign)
    magnitude = code & (sign - 1) if codes.is_signed else code
    field, low = magnitude >> codes.trailing, magnitude & (implicit - 1)
    if magnitude >= codes.finite:
        value = math.inf if magnitude == codes.infinity else math.nan
    elif not codes.subnormals and field == 0 and low:
        value = math.nan
    else:
        normal = bool(codes.from_one or field)
        value = math.ldexp(implicit | low if normal else low, codes.quantum + field - (normal and not codes.from_one))
    return -value if negative else value


def _value(fmt: Format, code: int) -> float:
    try:
        return fmt.decode(code)
    except FormatError:
        return math.nan


def _record(fmt: FloatFormat | FixedFormat) -> CodeFormat:
    sign = 1 << (fmt.bits - 1)
    packed = int(fmt.bits == 4)
    if isinstance(fmt, FixedFormat):
        left_out = int(fmt.symmetric)
        return CodeFormat(fmt.bits, 0, -fmt.frac, 2 * sign, -1, int(fmt.signed), 1, 1, 0, left_out, 0, packed)
    values = [_value(fmt, magnitude) for magnitude in range(sign if fmt.signed else 2 * sign)]
    infinity = values.index(math.inf) if math.inf in values else -1
    finite = 1 + max(magnitude for magnitude, x in enumerate(values) if math.isfinite(x))
    return CodeFormat(
        bits=fmt.bits,
        trailing=fmt.trailing_bits,
        quantum=fmt.quantum_exponent,
        finite=finite,
        infinity=infinity,
        is_signed=int(fmt.signed),
        whole=0,
        subnormals=int(fmt.subnormals),
        from_one=int(fmt.specials is Specials.SCALE),
        nan_at_sign=int(fmt.signed and not fmt.has_negative_zero),
        wide=0,
        packed=packed,
    )


def _same(x: float, y: float) -> bool:
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


@lru_cache(maxsize=1024)
def code_format(fmt: Format) -> CodeFormat:
    """Return how kernels read codes of ``fmt``.

    Codes of 4 bits are packed two per byte along K, the low half first. Other codes have a byte each.

    Raises:
        FormatError: for more than 8 bits, an unbounded grid, or values that float64 does not hold.
    """
    allowed = "float and fixed-point formats of at most 8 bits whose values float64 holds"
    refusal = FormatError(f"{fmt}: its codes cannot be operands; allowed: {allowed}.\n  Decode it, and give tensors.")
    if not isinstance(fmt, (FloatFormat, FixedFormat)):
        raise refusal
    if fmt.bits > 8 or (isinstance(fmt, FixedFormat) and not fmt.clamp):
        raise refusal
    plain = _record(fmt)
    top = fmt.emax if isinstance(fmt, FloatFormat) else fmt.bits - fmt.frac
    holding = [
        wide for wide, (low, high) in enumerate(_POWERS) if plain.quantum >= low and max(top, plain.quantum) <= high
    ]
    if not holding:
        raise refusal
    wide = holding[0]
    found = CodeFormat(**{f.name: getattr(plain, f.name) for f in fields(plain)} | {"wide": wide})
    assert all(_same(decoded(found, code), _value(fmt, code)) for code in range(1 << fmt.bits)), fmt
    return found
