"""Codes of sign-and-magnitude formats whose magnitudes count upward through their values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from .checks import as_fraction, check_enumerable, check_int, exact_float, number_text
from .errors import format_error
from .tensor_codec import check_scalar_arguments, decode_tensor, encode_tensor, is_tensor

if TYPE_CHECKING:
    from .tensor_codec import Tensor
    from .tensor_codec import dtype as torch_dtype

__all__ = ["MagnitudeFormat"]


class MagnitudeFormat(ABC):
    """What formats share whose code is a sign bit (if signed) and a magnitude, 0 for zero, upward with the value.

    A subclass says the value of each finite magnitude and which codes are not finite.
    """

    signed: bool

    @property
    @abstractmethod
    def bits(self) -> int:
        """Width of the codes."""

    @property
    @abstractmethod
    def max_magnitude(self) -> int:
        """Magnitude of the largest finite value."""

    @property
    @abstractmethod
    def has_inf(self) -> bool:
        """Whether the magnitude after the largest finite one is infinity."""

    @property
    @abstractmethod
    def has_nan(self) -> bool:
        """Whether a code is NaN."""

    @property
    @abstractmethod
    def has_negative_zero(self) -> bool:
        """Whether zero keeps its sign."""

    @property
    @abstractmethod
    def quantum_exponent(self) -> int:
        """Exponent of a power of two of which every value is a multiple."""

    @abstractmethod
    def _parts(self, magnitude: int) -> tuple[int, int]:
        """Integers (s, q) with the value s * 2**q of a finite magnitude."""

    @property
    def _nan_code(self) -> int | None:
        return None

    # Range

    @property
    def has_zero(self) -> bool:
        """True."""
        return True

    @property
    def fits_float64(self) -> bool:
        """True: float64 holds every value; others are refused."""
        return True

    @cached_property
    def max_fraction(self) -> Fraction:
        """Largest finite value, exact."""
        return self._fraction(self.max_magnitude)

    @property
    def min_fraction(self) -> Fraction:
        """Lowest finite value, exact."""
        return -self.max_fraction if self.signed else Fraction(0)

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.max_fraction)

    @property
    def min(self) -> float:
        """Lowest finite value; 0 for unsigned formats."""
        return float(self.min_fraction)

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value."""
        return float(self._fraction(1 if self._is_used(1) else self._next_used(1)))

    @property
    def tiny(self) -> float:
        """``smallest_normal``, as ``torch.finfo`` has it."""
        return self.smallest_normal

    @property
    @abstractmethod
    def smallest_normal(self) -> float:
        """Smallest positive value with all significand bits."""

    # Codes

    @overload
    def decode(self, code: int) -> float: ...

    @overload
    def decode(self, code: Tensor, *, dtype: torch_dtype | None = None) -> Tensor: ...

    def decode(self, code: Any, *, dtype: Any = None) -> Any:
        """Value of ``code``; -0, infinity and NaN where the format has them.

        Raises:
            FormatError: for a code that is out of range or not used.

        Tensors as ``FloatFormat.decode``.
        """
        if is_tensor(code):
            return decode_tensor(self, code, dtype)
        check_scalar_arguments(self, dtype=dtype)
        code = check_int(self, "code", code, 0, (1 << self.bits) - 1)
        if code == self._nan_code:
            return math.nan
        negative, magnitude = self._split(code)
        if magnitude == self.max_magnitude + 1 and self.has_inf:
            value = math.inf
        else:
            self._check_used(code, magnitude)
            value = exact_float(self, *self._parts(magnitude))
        return -value if negative else value

    def decode_exact(self, code: int) -> Fraction | None:
        """Finite value of ``code`` as a Fraction, None for infinity and NaN. ``FormatError`` as ``decode``."""
        value = self.decode(code)
        return Fraction(value) if math.isfinite(value) else None

    @overload
    def encode(self, value: float | Fraction) -> int: ...

    @overload
    def encode(
        self, value: Tensor, *, rounding: object = None, overflow: object = None, seed: int | None = None
    ) -> Tensor: ...

    def encode(self, value: Any, *, rounding: Any = None, overflow: Any = None, seed: int | None = None) -> Any:
        """Code of ``value``, which must be a value of the format; -0 is the code of 0 where there is no -0.

        Raises:
            FormatError: for any other value: encoding does not round.

        Tensors as ``FloatFormat.encode``.
        """
        if is_tensor(value):
            return encode_tensor(self, value, rounding, overflow, seed)
        check_scalar_arguments(self, rounding=rounding, overflow=overflow, seed=seed)
        code = self._code_or_none(value)
        if code is None:
            lowest, largest = number_text(self.min_fraction), number_text(self.max_fraction)
            allowed = f"the values that values() lists, from {lowest} to {largest}"
            raise format_error(f"{self}: {value!r} is not one of its values", allowed, "Round with quantize first.")
        return code

    def is_representable(self, value: float | Fraction) -> bool:
        """Whether ``value`` (NaN and infinities too) has a code."""
        return self._code_or_none(value) is not None

    def codes(self) -> list[int]:
        """All codes in use, ascending.

        Raises:
            FormatError: for formats of more than 24 bits.
        """
        check_enumerable(self, self.bits)
        upward = [magnitude for magnitude in range(self.max_magnitude + 1) if self._is_used(magnitude)]
        upward += [self.max_magnitude + 1] if self.has_inf else []
        found = set(upward)
        if self.signed:
            sign = 1 << (self.bits - 1)
            found |= {sign | magnitude for magnitude in upward if magnitude or self.has_negative_zero}
        if self._nan_code is not None:
            found.add(self._nan_code)
        return sorted(found)

    def values(self) -> list[float]:
        """All finite values, ascending, zero once.

        Raises:
            FormatError: for formats of more than 24 bits.
        """
        check_enumerable(self, self.bits)
        used = (magnitude for magnitude in range(self.max_magnitude + 1) if self._is_used(magnitude))
        upward = [exact_float(self, *self._parts(magnitude)) for magnitude in used]
        return [-value for value in reversed(upward) if value] + upward if self.signed else upward

    def _is_used(self, magnitude: int) -> bool:
        return magnitude == 0 or self._parts(magnitude)[0] != 0

    def _next_used(self, magnitude: int) -> int:
        while not self._is_used(magnitude):
            magnitude += 1
        return magnitude

    def _check_used(self, code: int, magnitude: int) -> None:
        if not self._is_used(magnitude):
            raise format_error(f"{self}: code {code:#x} is not used", "the codes that codes() lists", "Check the code.")

    def _fraction(self, magnitude: int) -> Fraction:
        significand, exponent = self._parts(magnitude)
        return significand * Fraction(2) ** exponent

    def _split(self, code: int) -> tuple[bool, int]:
        """Sign and magnitude."""
        if not self.signed:
            return False, code
        sign = 1 << (self.bits - 1)
        return code >= sign, code & (sign - 1)

    def _code_or_none(self, value: float | Fraction) -> int | None:
        if isinstance(value, float) and math.isnan(value):
            return self._nan_code
        negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
        if isinstance(value, float) and math.isinf(value):
            magnitude: int | None = self.max_magnitude + 1 if self.has_inf else None
        else:
            magnitude = self._magnitude_or_none(abs(as_fraction(self, value)))
        if magnitude is None or (negative and magnitude and not self.signed):
            return None
        signed_zero = magnitude or self.has_negative_zero
        return magnitude | 1 << (self.bits - 1) if negative and signed_zero else magnitude

    def _magnitude_or_none(self, value: Fraction) -> int | None:
        low, high = 0, self.max_magnitude
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fraction(middle) >= value else (middle + 1, high)
        return low if self._fraction(low) == value and self._is_used(low) else None

    # Text

    @property
    @abstractmethod
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""

    @abstractmethod
    def describe(self) -> str:
        """Layout, range and special values in words, one fact a line."""

    @abstractmethod
    def to_json(self) -> Mapping[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""

    def __str__(self) -> str:
        return self.name
