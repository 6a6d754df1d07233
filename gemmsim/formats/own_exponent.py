"""Block floating point of single numbers: what a register in block floating point holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, overload

from .block_float import BlockFloatFormat, Sharing
from .checks import as_fraction, check_bool, check_int, number_text
from .errors import FormatError, format_error
from .json_fields import json_fields
from .rounding import Rounding

if TYPE_CHECKING:
    from .tensor_codec import Tensor
    from .tensor_codec import dtype as torch_dtype

__all__ = ["OwnExponentFormat", "own_exponent"]

#: Exponent of the smallest float32 number: below it exponents and steps do not go.
_LOWEST = -149
_HIGHEST = 127


@dataclass(frozen=True)
class OwnExponentFormat:
    """Block floating point with blocks of one number, which has its own exponent: "bfp(8,1)".

    Args:
        bits: width of the integer, the sign included, 1 to 32.
        symmetric: leave out the lowest integer, -2**(bits-1).
        keep_infinity: infinities stay infinite instead of becoming the largest integer.

    For a number x let E = floor(log2 |x|), but at least -149, and step = 2**max(E+2-bits, -149). The result is k *
    step, where k is x / step, rounded once to an integer by the cast's rounding (with the fraction of x / step for
    stochastic rounding). Then k is clamped to |k| < 2**(bits-1) (to -2**(bits-1) below zero unless ``symmetric``).
    Rounding never raises E: 1.9 becomes 1.75 in bfp(4,1), not 2. The result is therefore not always the nearest value.
    Numbers below 2**-149 are rounded to a multiple of the step there, 2**-149 (2**-148 for ``bits=1``). NaN stays NaN.
    Zero, and what rounds to it, is +0. Magnitudes from 2**128 on, and infinities unless ``keep_infinity``, become the
    largest integer of their sign at E = 127 (the lowest one for negative numbers unless ``symmetric``). A cast to this
    format has no other overflow policy.

    Every float32 number becomes what ``quantize`` makes of a tensor of that one element in ``BlockFloatFormat(bits,
    1)``. With more than 25 bits an accumulator holds numbers that float32 does not; the lowest number without
    ``symmetric``, -2**128, is another one. With two bits or more, rounding a value again does not change it (for
    ``bits=1``, -2**e is half a step of its own exponent). The values have no codes.
    Source: mptorch's ``block_quantize`` for one element; docs/reference/formats.md#registers-in-block-floating-point.

    Raises:
        FormatError: for fields out of range.

    Example:
        >>> gs.qmatmul(torch.tensor([[1.9]]), torch.ones(1, 1), "bfp(4,1)")  # not 2: the exponent stays that of 1.9
        tensor([[1.7500]])
    """

    bits: int
    symmetric: bool = True
    keep_infinity: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", check_int("OwnExponentFormat", "bits", self.bits, 1, 32))
        check_bool("OwnExponentFormat", "symmetric", self.symmetric)
        check_bool("OwnExponentFormat", "keep_infinity", self.keep_infinity)

    # Structure

    signed = True
    has_zero = True
    has_nan = True
    has_negative_zero = False
    fits_float64 = True

    @property
    def has_inf(self) -> bool:
        """``keep_infinity``."""
        return self.keep_infinity

    @property
    def p(self) -> int:
        """Significant bits of a value: ``bits - 1``."""
        return self.bits - 1

    @property
    def exponent_bits(self) -> int:
        """8: the width of a float32's exponent field. E has the range of that field."""
        return 8

    @property
    def max_code(self) -> int:
        """Largest integer."""
        return (1 << self.p) - 1

    @property
    def min_code(self) -> int:
        """Lowest integer."""
        return -self.max_code - (0 if self.symmetric else 1)

    @property
    def emin(self) -> int:
        """Exponent from which on values have ``p`` bits."""
        return max(self.p - 1, 0) + _LOWEST

    @property
    def emax(self) -> int:
        """Exponent of the largest magnitude: 127, and 128 for that of -2**128."""
        return _HIGHEST + (0 if self.symmetric else 1)

    @property
    def quantum_exponent(self) -> int:
        """Exponent of the smallest step."""
        return self.emin - self.p + 1

    def step_exponent(self, exponent: int) -> int:
        """Exponent of the step of numbers x with floor(log2 |x|) = ``exponent``."""
        return max(exponent, self.emin) - self.p + 1

    # Range

    @property
    def max_fraction(self) -> Fraction:
        """Largest finite value, exact."""
        return self.max_code * Fraction(2) ** self.step_exponent(_HIGHEST)

    @property
    def min_fraction(self) -> Fraction:
        """Lowest finite value, exact."""
        return self.min_code * Fraction(2) ** self.step_exponent(_HIGHEST)

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.max_fraction)

    @property
    def min(self) -> float:
        """Lowest finite value."""
        return float(self.min_fraction)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest step: the smallest positive value, if one exists."""
        return math.ldexp(1.0, self.quantum_exponent)

    @property
    def smallest_normal(self) -> float:
        """2**emin."""
        return math.ldexp(1.0, self.emin)

    @property
    def tiny(self) -> float:
        """``smallest_normal``, as ``torch.finfo`` has it."""
        return self.smallest_normal

    @property
    def eps(self) -> float:
        """Step from 1 on, 2**(2-bits)."""
        return math.ldexp(1.0, self.step_exponent(0))

    @property
    def resolution(self) -> float:
        """``eps``."""
        return self.eps

    def is_representable(self, value: float | Fraction) -> bool:
        """Whether ``value`` is one of the format: NaN, infinities if they are kept, and integers times their step."""
        if isinstance(value, float) and not math.isfinite(value):
            return math.isnan(value) or self.keep_infinity
        exact = as_fraction(self, value)
        if exact == 0:
            return not isinstance(value, float) or math.copysign(1.0, value) > 0
        top = abs(exact.numerator).bit_length() - exact.denominator.bit_length()  # the exponent, where it is dyadic
        # the lowest integer under an exponent is a power of two, whose own exponent is one more
        return any(self._has_code(exact, e) for e in (top, top - 1) if _LOWEST <= e <= _HIGHEST)

    def _has_code(self, value: Fraction, exponent: int) -> bool:
        code = value / Fraction(2) ** self.step_exponent(exponent)
        return code.denominator == 1 and self.min_code <= code <= self.max_code

    # Codes: none. An integer and an exponent say what a register holds, and several pairs may say the same.

    @overload
    def decode(self, code: int) -> float: ...

    @overload
    def decode(self, code: Tensor, *, dtype: torch_dtype | None = None) -> Tensor: ...

    def decode(self, code: Any, *, dtype: Any = None) -> Any:
        """Always an error: these numbers have no codes.

        Raises:
            FormatError: always.
        """
        raise self._codeless(f"decode({code!r})")

    @overload
    def encode(self, value: float | Fraction) -> int: ...

    @overload
    def encode(
        self, value: Tensor, *, rounding: object = None, overflow: object = None, seed: int | None = None
    ) -> Tensor: ...

    def encode(self, value: Any, *, rounding: Any = None, overflow: Any = None, seed: int | None = None) -> Any:
        """Always an error: these numbers have no codes.

        Raises:
            FormatError: always.
        """
        raise self._codeless(f"encode({value!r})")

    def codes(self) -> list[int]:
        """Always an error: these numbers have no codes.

        Raises:
            FormatError: always.
        """
        raise self._codeless("codes()")

    def values(self) -> list[float]:
        """Always an error, as ``codes``.

        Raises:
            FormatError: always.
        """
        raise self._codeless("values()")

    def _codeless(self, call: str) -> FormatError:
        return format_error(
            f"{self}: {call}",
            "formats with a code for each value; a register in block floating point is an integer with its exponent",
            "Use is_representable(value), or round with gemmsim.quantize.",
        )

    # Text

    @property
    def name(self) -> str:
        """Name of the block format with blocks of one; ``parse_scalar(name)`` gives this format."""
        return self.as_blocks().name

    def __str__(self) -> str:
        return self.name

    def as_blocks(self, rounding: Rounding = Rounding.RNE) -> BlockFloatFormat:
        """The format of tensors in which each element has its own exponent."""
        return BlockFloatFormat(
            self.bits, 1, symmetric=self.symmetric, keep_infinity=self.keep_infinity, rounding=rounding
        )

    def describe(self) -> str:
        """Integer, exponent, range and special values in words, one fact a line."""
        infinity = "stay" if self.keep_infinity else "become the largest integer at E = 127"
        lines = [
            f"{self}: block floating point of one number, an integer of {self.bits} bits with its own exponent",
            f"  integers from {self.min_code} to {self.max_code}, times 2^max(E+2-{self.bits}, {_LOWEST})",
            f"  E = floor(log2 |x|) before rounding, {_LOWEST} to {_HIGHEST}; then clamped: no carry into E",
            f"  max {number_text(self.max_fraction)}, min {number_text(self.min_fraction)}",
            f"  NaN stays; infinities {infinity}; no -0",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary of the name and the fields; ``from_json`` reads it back."""
        return {
            "kind": "own_exponent",
            "name": self.name,
            "bits": self.bits,
            "symmetric": self.symmetric,
            "keep_infinity": self.keep_infinity,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> OwnExponentFormat:
        """Format written by ``to_json``; ``FormatError`` for missing, unknown or impossible fields."""
        optional = ("symmetric", "keep_infinity")
        fields: dict[str, Any] = json_fields(
            "OwnExponentFormat", "own_exponent", data, required=("bits",), optional=optional
        )
        return cls(**fields)


def own_exponent(blocks: BlockFloatFormat) -> tuple[OwnExponentFormat, Rounding]:
    """The format of single numbers that ``blocks`` with one element each describes, and its rounding.

    Raises:
        FormatError: for blocks of more elements: single numbers would share an exponent.

    Example:
        >>> fmt, rounding = gs.formats.own_exponent(gs.formats.parse("bfp(8,1)/rtz"))
        >>> fmt, str(rounding)
        (OwnExponentFormat(bits=8, symmetric=True, keep_infinity=False), 'rtz')
    """
    if blocks.sharing is not Sharing.BLOCK or blocks.block_size != 1:
        few = [] if blocks.symmetric else ["asymmetric"]
        few += ["inf"] if blocks.keep_infinity else []
        alone = f"bfp({','.join([str(blocks.bits), '1', *few])})"
        raise format_error(
            f"format {str(blocks)!r} where single numbers are rounded",
            "blocks of one number; those of a larger block share an exponent, so that a result would depend on its "
            "neighbours, on how a product is cut into tiles and on the batch",
            f"Write {alone!r} here, or use gemmsim.quantize and operands of a spec for blocks.",
        )
    return OwnExponentFormat(blocks.bits, blocks.symmetric, blocks.keep_infinity), blocks.rounding
