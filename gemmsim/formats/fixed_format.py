"""Fixed-point and integer formats as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from .checks import as_fraction, check_bool, check_enumerable, check_int, exact_float, number_text
from .describe import describe_fixed
from .errors import FormatError, format_error
from .json_fields import json_fields
from .tensor_codec import check_scalar_arguments, decode_tensor, encode_tensor, is_tensor

if TYPE_CHECKING:
    from .tensor_codec import Tensor
    from .tensor_codec import dtype as torch_dtype

__all__ = ["FixedFormat"]

#: float64 holds every integer of up to 53 bits, and powers of two from 2**-1074 to 2**1023.
_MAX_BITS, _MAX_FRAC, _MAX_TOP = 53, 1074, 1023


@dataclass(frozen=True, init=False, repr=False)
class FixedFormat:
    """Fixed-point numbers ``k * 2**-frac``, where ``k`` is an integer of ``bits`` bits.

    Args:
        bits: width of ``k`` in bits, the sign included, 1 to 53.
        frac: fraction bits; may be negative or exceed ``bits``.
        signed: two's complement if true; otherwise ``k >= 0``.
        symmetric: leave out the lowest code, so that ``min = -max``; signed formats only.
        clamp: false for all multiples of ``2**-frac``; ``bits`` limits nothing then.
        max, min: the largest and lowest value, optional; they are checked against the derived ones.

    There is no -0, no NaN and no infinity.

    Raises:
        FormatError: for fields that describe no format.

    Example:
        >>> fmt = gs.formats.FixedFormat(bits=8, frac=4)
        >>> fmt.min, fmt.max, fmt.eps
        (-8.0, 7.9375, 0.0625)
    """

    bits: int
    frac: int
    signed: bool = True
    symmetric: bool = False
    clamp: bool = True

    def __init__(
        self,
        bits: int,
        frac: int,
        signed: bool = True,
        symmetric: bool = False,
        clamp: bool = True,
        *,
        max: float | None = None,
        min: float | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "bits", check_int("FixedFormat", "bits", bits, 1, _MAX_BITS))
        set_field(self, "frac", check_int("FixedFormat", "frac", frac, self.bits - _MAX_TOP, _MAX_FRAC))
        for name, flag in (("signed", signed), ("symmetric", symmetric), ("clamp", clamp)):
            set_field(self, name, check_bool("FixedFormat", name, flag))
        if symmetric and not (signed and clamp):
            raise format_error(
                f"FixedFormat: symmetric=True with signed={signed}, clamp={clamp}",
                "symmetric for signed formats that clamp, since it moves their lower bound",
                "Drop symmetric.",
            )
        if not signed and not clamp:
            raise format_error(
                "FixedFormat: signed=False with clamp=False",
                "unbounded grids are signed",
                "Drop clamp=False for an unsigned format, or signed=False for an unbounded grid.",
            )
        set_field(self, "_hash", hash((self.bits, self.frac, signed, symmetric, clamp)))
        self._check_stated_range(max, min)

    def _check_stated_range(self, max_value: float | None, min_value: float | None) -> None:
        """``FormatError`` if a stated ``max`` or ``min`` is not the derived one."""
        for name, stated in (("max", max_value), ("min", min_value)):
            if stated is None:
                continue
            derived: float = getattr(self, name)
            if stated != derived:
                raise format_error(
                    f"FixedFormat: {name}={stated!r} for {self}",
                    f"{name}={derived!r}, which the other fields give",
                    f"Leave {name} out, or change the other fields.",
                )

    # What exists

    @property
    def has_inf(self) -> bool:
        """False: fixed point has no infinity."""
        return False

    @property
    def has_nan(self) -> bool:
        """False: fixed point has no NaN."""
        return False

    @property
    def has_negative_zero(self) -> bool:
        """False: zero has one code."""
        return False

    @property
    def has_zero(self) -> bool:
        """True."""
        return True

    @property
    def fits_float64(self) -> bool:
        """True: float64 holds every value (of an unbounded grid: every value with |k| < 2**53)."""
        return True

    # Range and spacing

    @property
    def max_significand(self) -> int:
        """Largest ``k``.

        Raises:
            FormatError: for an unbounded grid.
        """
        self._check_bounded("max_significand")
        return int((1 << (self.bits - int(self.signed))) - 1)

    @property
    def min_significand(self) -> int:
        """Lowest ``k``.

        Raises:
            FormatError: for an unbounded grid.
        """
        self._check_bounded("min_significand")
        if not self.signed:
            return 0
        return -self.max_significand - (0 if self.symmetric else 1)

    @property
    def quantum_exponent(self) -> int:
        """Exponent of the spacing, ``-frac``."""
        return -self.frac

    @property
    def max_fraction(self) -> Fraction:
        """Largest value, exact. ``FormatError`` for an unbounded grid."""
        return self.max_significand * Fraction(2) ** -self.frac

    @property
    def min_fraction(self) -> Fraction:
        """Lowest value, exact. ``FormatError`` for an unbounded grid."""
        return self.min_significand * Fraction(2) ** -self.frac

    @cached_property
    def max(self) -> float:
        """Largest value; infinity for an unbounded grid."""
        return exact_float(self, self.max_significand, -self.frac) if self.clamp else math.inf

    @cached_property
    def min(self) -> float:
        """Lowest value; -infinity for an unbounded grid."""
        return exact_float(self, self.min_significand, -self.frac) if self.clamp else -math.inf

    @property
    def eps(self) -> float:
        """Spacing of the values, 2**-frac."""
        return exact_float(self, 1, -self.frac)

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value of the grid, 2**-frac."""
        return self.eps

    @property
    def tiny(self) -> float:
        """``smallest_normal``."""
        return self.eps

    @property
    def smallest_subnormal(self) -> float:
        """``smallest_normal``: the grid is uniform."""
        return self.eps

    @property
    def resolution(self) -> float:
        """Spacing of the values, 2**-frac."""
        return self.eps

    # Codes

    @overload
    def decode(self, code: int) -> float: ...

    @overload
    def decode(self, code: Tensor, *, dtype: torch_dtype | None = None) -> Tensor: ...

    def decode(self, code: Any, *, dtype: Any = None) -> Any:
        """The value of the two's complement (unsigned: binary) ``code``. For tensors see ``FloatFormat.decode``.

        Raises:
            FormatError: for a code that is out of range or left out by ``symmetric``, and for a format without
                ``clamp``.

        Example:
            >>> gs.formats.FixedFormat(8, 4).decode(0xF8)
            -0.5
        """
        if is_tensor(code):
            return decode_tensor(self, code, dtype)
        check_scalar_arguments(self, dtype=dtype)
        return exact_float(self, self._significand(code), -self.frac)

    def decode_exact(self, code: int) -> Fraction:
        """``decode`` as a Fraction."""
        return self._significand(code) * Fraction(2) ** -self.frac

    @overload
    def encode(self, value: float | Fraction) -> int: ...

    @overload
    def encode(
        self, value: Tensor, *, rounding: object = None, overflow: object = None, seed: int | None = None
    ) -> Tensor: ...

    def encode(self, value: Any, *, rounding: Any = None, overflow: Any = None, seed: int | None = None) -> Any:
        """The two's complement (unsigned: binary) code of ``value``, which must be a value of the format.

        -0.0 counts as 0. For tensors see ``FloatFormat.encode``.

        Raises:
            FormatError: for a value that the format does not hold (NaN, infinities), and for a format without
                ``clamp``.

        Example:
            >>> hex(gs.formats.FixedFormat(8, 4).encode(-0.5))
            '0xf8'
        """
        if is_tensor(value):
            return encode_tensor(self, value, rounding, overflow, seed)
        check_scalar_arguments(self, rounding=rounding, overflow=overflow, seed=seed)
        self._check_bounded("encode")
        significand = self._significand_or_none(value)
        if significand is None:
            allowed = f"multiples of {number_text(Fraction(2) ** -self.frac)} from {number_text(self.min_fraction)} "
            allowed += f"to {number_text(self.max_fraction)}"
            raise format_error(f"{self}: {value!r} is not one of its values", allowed, "Round with quantize first.")
        return significand & ((1 << self.bits) - 1)

    def is_representable(self, value: float | Fraction) -> bool:
        """Whether ``value`` is a value of the format; of an unbounded grid: any multiple of 2**-frac."""
        return self._significand_or_none(value) is not None

    def codes(self) -> list[int]:
        """All codes in use, ascending.

        Raises:
            FormatError: for formats of more than 24 bits and unbounded grids.
        """
        self._check_bounded("codes")
        check_enumerable(self, self.bits)
        left_out = 1 << (self.bits - 1) if self.symmetric else -1
        return [code for code in range(1 << self.bits) if code != left_out]

    def values(self) -> list[float]:
        """All values, ascending.

        Raises:
            FormatError: for formats of more than 24 bits, and for formats without ``clamp``.

        Example:
            >>> gs.formats.FixedFormat(3, 1).values()
            [-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]
        """
        self._check_bounded("values")
        check_enumerable(self, self.bits)
        return [exact_float(self, k, -self.frac) for k in range(self.min_significand, self.max_significand + 1)]

    def _significand(self, code: int) -> int:
        self._check_bounded("decode")
        code = check_int(self, "code", code, 0, (1 << self.bits) - 1)
        significand = code - (1 << self.bits) if self.signed and code >> (self.bits - 1) else code
        if significand < self.min_significand:
            raise format_error(f"{self}: code {code:#x} is not used", "all other codes", "Drop symmetric to read it.")
        return significand

    def _significand_or_none(self, value: float | Fraction) -> int | None:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        scaled = as_fraction(self, value) * Fraction(2) ** self.frac
        if scaled.denominator != 1:
            return None
        k = scaled.numerator
        return k if not self.clamp or self.min_significand <= k <= self.max_significand else None

    def _check_bounded(self, operation: str) -> None:
        if not self.clamp:
            raise FormatError(
                f"{self}: {operation} of an unbounded grid; allowed: formats with clamp=True.\n"
                f"  Use fixed({self.bits},{self.frac}) for a format with codes."
            )

    # Text

    @cached_property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        flags = [name for name, on in (("symmetric", self.symmetric), ("unbounded", not self.clamp)) if on]
        return f"{'' if self.signed else 'u'}fixed({','.join([str(self.bits), str(self.frac), *flags])})"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        fields = [f"bits={self.bits}", f"frac={self.frac}"]
        fields += [] if self.signed else ["signed=False"]
        fields += ["symmetric=True"] if self.symmetric else []
        fields += [f"max={self.max!r}", f"min={self.min!r}"] if self.clamp else ["clamp=False"]
        return f"FixedFormat({', '.join(fields)})"

    def __hash__(self) -> int:
        cached: int = self.__dict__["_hash"]
        return cached

    def __reduce__(self) -> tuple[type[FixedFormat], tuple[int, int, bool, bool, bool]]:
        return FixedFormat, (self.bits, self.frac, self.signed, self.symmetric, self.clamp)

    def describe(self) -> str:
        """Range, spacing and layout in words, several lines."""
        return describe_fixed(self)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary of the name and the fields; ``from_json`` reads it back."""
        return {
            "kind": "fixed",
            "name": self.name,
            "bits": self.bits,
            "frac": self.frac,
            "signed": self.signed,
            "symmetric": self.symmetric,
            "clamp": self.clamp,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> FixedFormat:
        """Format written by ``to_json``; only the fields count, ``name`` is for the reader.

        Raises:
            FormatError: for missing, unknown or impossible fields.
        """
        optional = ("signed", "symmetric", "clamp")
        return cls(**json_fields("FixedFormat", "fixed", data, required=("bits", "frac"), optional=optional))
