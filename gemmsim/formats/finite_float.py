"""Floats whose every code is a number, rounded as d-Matrix's formats are, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .block_float import Sharing
from .canonical_names import rounding_letter
from .checks import check_bool, check_int
from .errors import format_error
from .json_fields import named_tensor_format
from .rounding import Rounding

__all__ = ["FiniteFloatFormat"]


@dataclass(frozen=True)
class FiniteFloatFormat:
    """Floats of ``exponent_bits`` and ``trailing_bits`` without codes for infinity and NaN; a format of tensors.

    Args:
        exponent_bits: 1 to 8.
        trailing_bits: significand bits after the leading one, 0 to 23.
        bias: of the exponent, -128 + 2**exponent_bits to 127, 127 for eight bits; None is 2**(exponent_bits-1) - 1.
        flush: magnitudes below 2**(1-bias) become zero before rounding; otherwise they are subnormals.
        absolute: keep magnitudes only: the sign is dropped after rounding.
        rounding: any. Without trailing bits a nearest-even tie goes to the power of two with the odd exponent.

    Numbers beyond the largest one, 2**(2**exponent_bits - 1 - bias) * (2 - 2**-trailing_bits), become the largest one,
    and so do infinities. With eight exponent bits infinities stay, and overflow gives infinities. NaN stays NaN. Zero
    is +0.
    Source: d-Matrix's numerical formats, docs/reference/formats.md#d-matrixs-formats.

    Raises:
        FormatError: for fields out of range.

    Example:
        >>> fmt = gs.formats.FiniteFloatFormat(exponent_bits=4, trailing_bits=3)
        >>> fmt.name, fmt.max  # larger than the 448 of OCP's e4m3, whose top codes are NaN
        ('FP[1|4|3,7](_N)', 480.0)
    """

    exponent_bits: int
    trailing_bits: int
    bias: int | None = None
    flush: bool = False
    absolute: bool = False
    rounding: Rounding = Rounding.RNE

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "exponent_bits", check_int("FiniteFloatFormat", "exponent_bits", self.exponent_bits, 1, 8))
        put(self, "trailing_bits", check_int("FiniteFloatFormat", "trailing_bits", self.trailing_bits, 0, 23))
        bias = (1 << (self.exponent_bits - 1)) - 1 if self.bias is None else self.bias
        put(self, "bias", check_int("FiniteFloatFormat", "bias", bias, min(-128 + (1 << self.exponent_bits), 127), 127))
        check_bool("FiniteFloatFormat", "flush", self.flush)
        check_bool("FiniteFloatFormat", "absolute", self.absolute)
        if not isinstance(self.rounding, Rounding):
            raise format_error(f"FiniteFloatFormat: rounding={self.rounding!r}", "a Rounding", "Use parse_rounding.")

    #: Each element is rounded by itself; blocks would be the whole tensor.
    sharing = Sharing.TENSOR
    dim = 0
    block_size = 0

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number, 1 - bias."""
        assert self.bias is not None
        return 1 - self.bias

    @property
    def emax(self) -> int:
        """Exponent of the largest number."""
        assert self.bias is not None
        return (1 << self.exponent_bits) - 1 - self.bias

    @property
    def max(self) -> float:
        """Largest number; with eight exponent bits it lies beyond float32."""
        return 2.0**self.emax * (2.0 - 2.0**-self.trailing_bits)

    @property
    def bits_per_value(self) -> float:
        """Sign (unless ``absolute``), exponent and trailing bits."""
        return float(self.exponent_bits + self.trailing_bits + (0 if self.absolute else 1))

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.rounding.is_stochastic

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        letter, option = rounding_letter(self.rounding)
        sign, flush = int(not self.absolute), "F" if self.flush else "_"
        return f"FP[{sign}|{self.exponent_bits}|{self.trailing_bits},{self.bias}]({flush}{letter}){option}"

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        """Range and rounding in words, one fact a line."""
        small = "flushed to zero before rounding" if self.flush else "subnormal numbers"
        top = "infinity" if self.exponent_bits == 8 else f"{self.max:g}, infinities too"
        lines = [
            f"{self}: float of {self.exponent_bits} exponent bits (bias {self.bias}) and {self.trailing_bits} trailing "
            "bits, every code a number",
            f"  {self.bits_per_value:g} bits a value; beyond the largest number: {top}",
            f"  below 2^{self.emin}: {small}" + ("; magnitudes alone" if self.absolute else ""),
            f"  rounded {self.rounding.describe()}; NaN stays, zero is +0",
        ]
        return "\n".join(lines)

    def words(self) -> str:
        """As an operand, in half a line."""
        return f"rounded to {self}: {self.rounding.describe()}"

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {"kind": "finite_float", "name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> FiniteFloatFormat:
        """Format written by ``to_json``, or named by a string; ``FormatError`` for one of another kind."""
        return named_tensor_format(cls, "finite_float", data)
