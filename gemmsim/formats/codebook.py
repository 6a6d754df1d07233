"""Formats that are a list of values: lookup tables, posits, NF4."""

from __future__ import annotations

import bisect
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from .checks import as_fraction, check_int, number_text
from .constructor_syntax import call, integer
from .errors import format_error
from .json_fields import json_fields, read_name
from .tensor_codec import check_scalar_arguments, decode_tensor, encode_tensor, is_tensor

if TYPE_CHECKING:
    from .tensor_codec import Tensor
    from .tensor_codec import dtype as torch_dtype

__all__ = ["CodebookFormat", "codebook"]

#: What a value half-way between two others becomes: the one of even (or odd) place in the list, or the lower or higher.
TIES = ("even", "odd", "low", "high")
_MOST = 1 << 16
#: Significand bits of values and boundaries, and exponents, for which float64 compares sums with them exactly.
_BITS, _EXPONENT = 51, 500


@dataclass(frozen=True)
class CodebookFormat:
    """A format whose values are the numbers in ``points``; ``boundaries`` say where rounding changes to the next value.

    Args:
        points: 2 to 65,536 different finite numbers, ascending.
        boundaries: one number between each two neighbours (or equal to one of them). A number above it is rounded up, a
            number below it down. None: half-way.
        tie: the result for a number exactly at a boundary: "even" or "odd" (the neighbour at an even or odd place in
            ``points``, counted from 0), "low" or "high". A number that is in the list stays as it is.
        nan: whether there is a code for NaN. Infinities become NaN then; otherwise they become the last value on their
            side.
        first_code: code of the lowest value. Codes ascend from there, modulo 2**bits, and skip that of NaN.

    Casts round by the boundaries ("rne", the default), or to the next value toward zero, up or down ("rtz", "ru",
    "rd"). Where zero lies between two values and is not a value, "rtz" rounds numbers between these two by the
    boundary. Numbers beyond the ends become the last value there. NaN stays NaN. Zero is +0 (a value only if the list
    has it).

    Raises:
        FormatError: for values or boundaries that are not in order, not finite, longer than 51 bits, or beyond
            2**+-500.

    Example:
        >>> fmt = gs.formats.CodebookFormat((-1.0, 0.0, 0.25, 1.0))
        >>> gs.quantize(torch.tensor([0.1, 0.2, 7.0]), fmt)
        tensor([0.0000, 0.2500, 1.0000])
    """

    points: tuple[float, ...]
    boundaries: tuple[float, ...] | None = None
    tie: str = "even"
    nan: bool = False
    first_code: int = 0
    #: Name other than the list of values, where there is one.
    label: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _numbers("values", self.points))
        if not 2 <= len(self.points) <= _MOST:
            raise format_error(f"codebook of {len(self.points)} values", f"2 to {_MOST}", "Give more or fewer.")
        if any(x >= y for x, y in zip(self.points, self.points[1:], strict=False)):
            raise format_error("codebook whose values do not ascend", "each value larger than the last", "Sort them.")
        halves = [(Fraction(x) + Fraction(y)) / 2 for x, y in zip(self.points, self.points[1:], strict=False)]
        if self.boundaries is not None:
            given = _numbers("boundaries", self.boundaries)
            object.__setattr__(self, "boundaries", given)
            inside = len(given) == len(halves) and all(
                x <= b <= y for x, b, y in zip(self.points, given, self.points[1:], strict=False)
            )
            if not inside:
                raise format_error(
                    f"codebook of {len(self.points)} values with {len(given)} boundaries",
                    "one boundary between (or at one of) each two neighbours",
                    "Leave them out for those half-way.",
                )
            if [Fraction(b) for b in given] == halves:
                object.__setattr__(self, "boundaries", None)
        else:
            _numbers("boundaries half-way", [_exact(half) for half in halves])
        if self.tie not in TIES:
            raise format_error(f"codebook: tie={self.tie!r}", ", ".join(TIES), "Choose one of them.")
        check_int("codebook", "first_code", self.first_code, 0, (1 << self.bits) - 1)

    # Structure

    @cached_property
    def bits(self) -> int:
        """Width of the codes."""
        return max(1, (len(self.points) - 1 + int(self.nan)).bit_length())

    @property
    def nan_code(self) -> int | None:
        """The code before that of the lowest value, if there is a NaN."""
        return (self.first_code - 1) % (1 << self.bits) if self.nan else None

    @cached_property
    def limits(self) -> tuple[float, ...]:
        """Boundaries, those half-way included."""
        if self.boundaries is not None:
            return self.boundaries
        return tuple(
            _exact((Fraction(x) + Fraction(y)) / 2) for x, y in zip(self.points, self.points[1:], strict=False)
        )

    @cached_property
    def _dyadic(self) -> tuple[tuple[int, int], ...]:
        """(odd significand, exponent) of each value; (0, 0) of zero."""
        found = []
        for value in self.points:
            numerator, denominator = value.as_integer_ratio()
            zeros = (numerator & -numerator).bit_length() - 1 if numerator else 0
            found.append((numerator >> zeros, zeros - denominator.bit_length() + 1))
        return tuple(found)

    @cached_property
    def p(self) -> int:
        """Significant bits of the longest value."""
        return max(abs(significand).bit_length() for significand, _ in self._dyadic) or 1

    @cached_property
    def quantum_exponent(self) -> int:
        """Exponent of the largest power of two of which every value is a multiple."""
        return min((exponent for significand, exponent in self._dyadic if significand), default=0)

    @property
    def emin(self) -> int:
        """``quantum_exponent + p - 1``, as if all values below were subnormal."""
        return self.quantum_exponent + self.p - 1

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest magnitude."""
        return math.frexp(max(self.points[-1], -self.points[0]))[1] - 1

    @property
    def signed(self) -> bool:
        """Whether a value is negative."""
        return self.points[0] < 0

    @cached_property
    def has_zero(self) -> bool:
        """Whether 0 is a value."""
        return 0.0 in self.points

    @property
    def has_inf(self) -> bool:
        """False."""
        return False

    @property
    def has_nan(self) -> bool:
        """``nan``."""
        return self.nan

    @property
    def has_negative_zero(self) -> bool:
        """False."""
        return False

    @property
    def fits_float64(self) -> bool:
        """True: the values are float64 numbers."""
        return True

    @property
    def max(self) -> float:
        """Largest value."""
        return self.points[-1]

    @property
    def min(self) -> float:
        """Lowest value."""
        return self.points[0]

    @property
    def max_fraction(self) -> Fraction:
        """Largest value, exact."""
        return Fraction(self.points[-1])

    @property
    def min_fraction(self) -> Fraction:
        """Lowest value, exact."""
        return Fraction(self.points[0])

    @property
    def smallest_normal(self) -> float:
        """Smallest magnitude other than zero."""
        return min(abs(value) for value in self.points if value)

    @property
    def smallest_subnormal(self) -> float:
        """``smallest_normal``."""
        return self.smallest_normal

    @property
    def tiny(self) -> float:
        """``smallest_normal``, as ``torch.finfo`` has it."""
        return self.smallest_normal

    @cached_property
    def eps(self) -> float:
        """Distance from the value nearest to 1 to the next larger one (from the one before, at the upper end)."""
        at = min(range(len(self.points)), key=lambda i: abs(self.points[i] - 1))
        at = at if at + 1 < len(self.points) else at - 1
        return self.points[at + 1] - self.points[at]

    @property
    def resolution(self) -> float:
        """``eps``."""
        return self.eps

    # Codes

    @overload
    def decode(self, code: int) -> float: ...

    @overload
    def decode(self, code: Tensor, *, dtype: torch_dtype | None = None) -> Tensor: ...

    def decode(self, code: Any, *, dtype: Any = None) -> Any:
        """The value of ``code``. For tensors see ``FloatFormat.decode``.

        Raises:
            FormatError: for a code that is out of range or not used, and for ``dtype`` with a single number.

        Example:
            >>> gs.formats.codebook([-1, 0, 0.25, 1]).decode(2)
            0.25
        """
        if is_tensor(code):
            return decode_tensor(self, code, dtype)
        check_scalar_arguments(self, dtype=dtype)
        code = check_int(self, "code", code, 0, (1 << self.bits) - 1)
        place = (code - self.first_code) % (1 << self.bits)
        if place < len(self.points):
            return self.points[place]
        if code != self.nan_code:
            raise format_error(f"{self}: code {code:#x} is not used", "the codes that codes() lists", "Check the code.")
        return math.nan

    def decode_exact(self, code: int) -> Fraction | None:
        """Finite value of ``code`` as a Fraction, None for NaN. ``FormatError`` as ``decode``."""
        value = self.decode(code)
        return None if math.isnan(value) else Fraction(value)

    @overload
    def encode(self, value: float | Fraction) -> int: ...

    @overload
    def encode(
        self, value: Tensor, *, rounding: object = None, overflow: object = None, seed: int | None = None
    ) -> Tensor: ...

    def encode(self, value: Any, *, rounding: Any = None, overflow: Any = None, seed: int | None = None) -> Any:
        """The code of ``value``, which must be one of the values (or NaN). For tensors see ``FloatFormat.encode``.

        Raises:
            FormatError: for any other value, and for ``rounding``, ``overflow`` or ``seed`` with a single number.

        Example:
            >>> gs.formats.codebook([-1, 0, 0.25, 1]).encode(0.25)
            2
        """
        if is_tensor(value):
            return encode_tensor(self, value, rounding, overflow, seed)
        check_scalar_arguments(self, rounding=rounding, overflow=overflow, seed=seed)
        code = self._code_or_none(value)
        if code is None:
            allowed = f"the {len(self.points)} values that values() lists"
            raise format_error(f"{self}: {value!r} is not one of its values", allowed, "Round with quantize first.")
        return code

    def is_representable(self, value: float | Fraction) -> bool:
        """Whether ``value`` (NaN too) has a code."""
        return self._code_or_none(value) is not None

    def codes(self) -> list[int]:
        """All codes in use, ascending."""
        found = {(self.first_code + place) % (1 << self.bits) for place in range(len(self.points))}
        return sorted(found | ({self.nan_code} if self.nan_code is not None else set()))

    def values(self) -> list[float]:
        """All values, ascending."""
        return list(self.points)

    def _code_or_none(self, value: float | Fraction) -> int | None:
        if isinstance(value, float) and not math.isfinite(value):
            return self.nan_code if math.isnan(value) else None
        exact = as_fraction(self, value)
        place = bisect.bisect_left(self.points, exact)
        if place == len(self.points) or self.points[place] != exact:
            return None
        return (self.first_code + place) % (1 << self.bits)

    # Text

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        if self.label is not None:
            return self.label
        parts = [",".join(map(_text, self.points))]
        parts += [] if self.boundaries is None else [",".join(map(_text, self.boundaries))]
        parts += [] if self.tie == "even" else [self.tie]
        parts += ["nan"] if self.nan else []
        parts += [f"code={self.first_code}"] if self.first_code else []
        return f"codebook({'|'.join(parts)})"

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        """Values, boundaries and special values in words, one fact a line."""
        ends = [number_text(self.min_fraction), number_text(self.max_fraction)]
        middle = "half-way" if self.boundaries is None else "at boundaries of its own"
        words = {"even": "of even place", "odd": "of odd place", "low": "below", "high": "above"}[self.tie]
        shown = self.name if len(self.name) <= 80 else f"{self.name[:77]}..."
        return "\n".join(
            [
                f"{shown}: {self.bits}-bit codes of {len(self.points)} values",
                f"  from {ends[0]} to {ends[1]}, smallest magnitude {number_text(Fraction(self.smallest_normal))}",
                f"  rounding changes {middle}; at a tie the value {words}",
                f"  no infinity, {'NaN' if self.nan else 'no NaN'}, {'0' if self.has_zero else 'no zero'}, no -0",
                f"  beyond max or min: the last value; infinities {'are NaN' if self.nan else 'too'}",
            ]
        )

    def to_json(self) -> dict[str, object]:
        """Plain dictionary of the fields; ``from_json`` reads it back."""
        return {
            "kind": "codebook",
            "name": self.name,
            "points": list(self.points),
            "boundaries": None if self.boundaries is None else list(self.boundaries),
            "tie": self.tie,
            "nan": self.nan,
            "first_code": self.first_code,
            "label": self.label,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> CodebookFormat:
        """Format written by ``to_json``; ``FormatError`` for missing, unknown or impossible fields."""
        optional = ("boundaries", "tie", "nan", "first_code", "label")
        fields: dict[str, Any] = json_fields(
            "CodebookFormat", "codebook", data, required=("points",), optional=optional
        )
        label = fields.pop("label", None)
        found = cls(fields.pop("points"), **fields)
        if label is not None:
            named = read_name("scalar", str(label))
            return named if isinstance(named, cls) and named == found else found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.points, self.boundaries, self.tie, self.nan, self.first_code, self.label)


def codebook(
    values: Iterable[float], boundaries: Iterable[float] | None = None, *, tie: str = "even", nan: bool = False
) -> CodebookFormat:
    """The format with these values (numbers or elements of tensors, in any order); see ``CodebookFormat``.

    A value or boundary of more than 51 bits, such as 0.1, becomes the float32 number nearest to it.

    Raises:
        FormatError: for values that are equal, not finite or too long, and for boundaries that are not between them.

    Example:
        >>> fmt = gs.formats.codebook([1, -1, 0, 4, -4])
        >>> fmt.values(), fmt.bits
        ([-4.0, -1.0, 0.0, 1.0, 4.0], 3)
    """
    points = sorted(_numbers("values", values, rounds=True))
    limits = None if boundaries is None else _numbers("boundaries", boundaries, rounds=True)
    return CodebookFormat(tuple(points), limits, tie, nan)


def _numbers(name: str, values: Any, rounds: bool = False) -> tuple[float, ...]:
    """``values`` as floats; ``FormatError`` for what is not a number of at most 51 bits (``rounds``: or becomes one)
    within the range.
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    found = []
    for value in values:
        try:
            number = float(value) + 0.0  # +0 for -0
        except (TypeError, ValueError, OverflowError):
            raise format_error(f"codebook: {value!r} among the {name}", "real numbers", "Give floats.") from None
        if rounds and 2.0**-126 <= abs(number) < 2.0**127 and _length(number) > _BITS:
            number = struct.unpack("f", struct.pack("f", number))[0]
        long = math.isfinite(number) and _length(number) > _BITS
        if not math.isfinite(number) or long or (number and not 2.0**-_EXPONENT <= abs(number) <= 2.0**_EXPONENT):
            allowed = (
                f"finite numbers of at most {_BITS} significant bits, of magnitude 0 or 2^-{_EXPONENT} to 2^{_EXPONENT}"
            )
            raise format_error(f"codebook: {value!r} among the {name}", allowed, "Round them to float32 first.")
        found.append(number)
    return tuple(found)


def _length(number: float) -> int:
    """Significant bits."""
    numerator = abs(number.as_integer_ratio()[0])
    return (numerator >> ((numerator & -numerator).bit_length() - 1)).bit_length() if numerator else 0


def _exact(value: Fraction) -> float:
    """``value`` as a float; one that float64 does not hold is refused by ``_numbers`` for its length."""
    number = float(value)
    if Fraction(number) == value:
        return number
    raise format_error(
        f"codebook: {value} half-way between two values",
        "values whose midpoints float64 holds",
        "Give boundaries, or values of fewer bits.",
    )


def _text(value: float) -> str:
    return repr(value).removesuffix(".0")


@call("codebook(values[|boundaries][|tie][|nan])")
def _parse_codebook(name: str, fields: list[str]) -> CodebookFormat:
    """codebook(values[|boundaries][|tie][|nan][|code=n]), lists separated by commas."""
    usage = "codebook(value,value,...[|boundary,...][|even|odd|low|high][|nan][|code=n])"
    numbers, *parts = ",".join(fields).split("|")
    given: dict[str, object] = {}
    for part in parts:
        key: str
        value: object
        if part in TIES:
            key, value = "tie", part
        elif part == "nan":
            key, value = "nan", True
        elif part.startswith("code="):
            key, value = "first_code", integer(name, usage, part.removeprefix("code="))
        else:
            key, value = "boundaries", _reals(name, usage, part)
        if key in given:
            raise format_error(f"format {name!r}: {part!r}", usage, "Give each part once.")
        given[key] = value
    first_code = given.pop("first_code", 0)
    points = _reals(name, usage, numbers)
    found = codebook(points, **given)  # type: ignore[arg-type]
    if list(points) != sorted(points):
        raise format_error(f"format {name!r}", "values in ascending order", "Sort them.")
    return replace(found, first_code=first_code)  # type: ignore[arg-type]


def _reals(name: str, usage: str, text: str) -> tuple[float, ...]:
    found = []
    for part in text.split(","):
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", part) is None:
            raise format_error(f"format {name!r}: {part!r} is not a number", usage, "Write decimal numbers.")
        found.append(float(part))
    return tuple(found)
