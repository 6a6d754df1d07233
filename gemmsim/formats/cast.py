"""A rounding step: target format, rounding mode and overflow policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .any_format import FORMATS, Format, format_from_json
from .binary8 import Binary8Format
from .codebook import CodebookFormat
from .errors import format_error
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .json_fields import json_fields, read_name
from .own_exponent import OwnExponentFormat
from .rounding import Overflow, Rounding, RoundingMode, parse_overflow, parse_rounding

__all__ = ["Cast"]


@dataclass(frozen=True, repr=False)
class Cast:
    """One rounding of a real number to ``format`` by ``rounding``; ``overflow`` says what larger numbers become.

    With ``via`` the number is rounded twice: first to the format ``via``, to nearest even, and then by this cast.
    "bf16/via(fp32)" is what hardware computes that adds in binary32 and stores bfloat16.

    NaN stays NaN. Infinities follow ``overflow``. Zero keeps its sign where the format has -0; otherwise it is +0. In
    an unsigned FloatFormat a result below zero is NaN under ``Overflow.INFINITY`` and 0 under the other policies. It is
    also 0 for rtz and ru, in P3109's finite domain and in formats without NaN. A scale format (no zero) always gives
    NaN. A Binary8Format has its own overflow policy, and so has an OwnExponentFormat, which saturates.

    Raises:
        FormatError: for fields of the wrong type.

    Example:
        >>> cast = gs.formats.Cast(gs.formats.E4M3, gs.formats.Rounding.RTZ, gs.formats.Overflow.SATURATE)
        >>> cast.name, gs.formats.parse_cast("e4m3/rtz/sat") == cast
        ('e4m3/rtz/sat', True)
    """

    format: Format
    rounding: Rounding = Rounding.RNE
    overflow: Overflow = Overflow.INFINITY
    via: FloatFormat | None = None

    def __post_init__(self) -> None:
        checks = (
            ("format", self.format, FORMATS, "a format of single numbers"),
            ("rounding", self.rounding, (Rounding,), "a Rounding"),
            ("overflow", self.overflow, (Overflow,), "an Overflow"),
        )
        for name, value, kinds, allowed in checks:
            if not isinstance(value, kinds):
                raise format_error(f"Cast: {name}={value!r}", allowed, "Use parse_cast(text) for strings.")
        if isinstance(self.format, (Binary8Format, OwnExponentFormat)) and self.overflow is not Overflow.INFINITY:
            binary8 = "choose among saturate_infty, saturate_propagate, saturate_maxfloat and saturate_maxfloat2"
            other = binary8 if isinstance(self.format, Binary8Format) else "write bfp(...,inf) to keep infinities"
            raise format_error(
                f"Cast: overflow {self.overflow} with {self.format}",
                "the policy that is part of the format",
                f"Leave {self.overflow} out, or {other}.",
            )

        if isinstance(self.format, CodebookFormat):
            self._check_codebook()
        if self.via is not None:
            self._check_via()

    def _check_via(self) -> None:
        """``FormatError`` for a first rounding that is no plain one to a float format."""
        via = self.via
        usable = isinstance(via, FloatFormat) and via.signed and via.has_zero and via.fits_float64
        if not usable or isinstance(self.format, (CodebookFormat, OwnExponentFormat)):
            raise format_error(
                f"Cast: {self.format} with via={via}",
                "a signed float format with a zero before a float, fixed-point or binary8 format",
                "Try 'bf16/via(fp32)'.",
            )

    @property
    def steps(self) -> tuple[Cast, ...]:
        """The roundings, in order: this cast alone, or a cast to ``via`` followed by this cast without it.

        Example:
            >>> [str(step) for step in gs.formats.parse_cast("bf16/via(fp32)").steps]
            ['e8m23', 'e8m7']
        """
        if self.via is None:
            return (self,)
        return Cast(self.via), Cast(self.format, self.rounding, self.overflow)

    def _check_codebook(self) -> None:
        """``FormatError`` for what lists of values have no meaning for."""
        modes = (RoundingMode.RNE, RoundingMode.RTZ, RoundingMode.RU, RoundingMode.RD)
        if self.rounding.mode not in modes or self.overflow is not Overflow.INFINITY:
            asked = self.rounding if self.rounding.mode not in modes else self.overflow
            raise format_error(
                f"Cast: {asked} with {self.format}",
                "rne (by the list's boundaries), rtz, ru and rd; beyond the ends lies the last value",
                "Leave it out, or use a float or fixed-point format.",
            )

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.rounding.is_stochastic

    @cached_property
    def name(self) -> str:
        """Canonical name; ``parse_cast(name)`` gives this cast. Defaults (rne, infinity) are left out."""
        rounding = "" if self.rounding == Rounding.RNE else f"/{self.rounding}"
        overflow = "" if self.overflow is Overflow.INFINITY else f"/{self.overflow}"
        via = "" if self.via is None else f"/via({self.via})"
        return f"{self.format}{rounding}{overflow}{via}"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"parse_cast({self.name!r})"

    def __format__(self, width: str) -> str:
        return format(self.name, width)

    @cached_property
    def _hash(self) -> int:
        return hash((self.format, self.rounding.mode.value, self.rounding.bits, self.overflow.value, self.via))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Cast], tuple[Format, Rounding, Overflow, FloatFormat | None]]:
        return Cast, (self.format, self.rounding, self.overflow, self.via)

    def describe(self) -> str:
        """Format, rounding and overflow in words, on several lines.

        Example:
            >>> print(gs.formats.parse_cast("e2m1/sat").describe())
            e2m1: 4-bit finite float
              1 sign + 2 exponent + 1 trailing significand bits (p = 2), bias 1, emin 0, emax 2
              max 6, min -6, eps 2^-1 = 0.5
              smallest normal 1, smallest subnormal 2^-1 = 0.5
              no infinity, no NaN, +0 and -0
              beyond max without saturation: the largest value
              rounded to nearest, ties to even; finite overflow saturates, infinity stays in IEEE-like formats
        """
        if isinstance(self.format, OwnExponentFormat):
            return f"{self.format.describe()}\n  rounded {self.rounding.describe()}"
        first = "" if self.via is None else f"{self.via} to nearest even, then "
        return f"{self.format.describe()}\n  rounded {first}{self.rounding.describe()}; {self.overflow.describe()}"

    def words(self) -> str:
        """Format with its largest value, and the rounding: ``e5m10 (max 65504), to nearest, ties to even``."""
        first = "" if self.via is None else f"{self.via} to nearest even, then "
        return f"{first}{self.format} ({_range_words(self.format)}), {self.rounding.describe()}"

    def to_json(self) -> dict[str, object]:
        """The cast as a plain dictionary; ``from_json`` reads it back.

        Example:
            >>> gs.formats.parse_cast("bf16/rtz").to_json()["rounding"]
            'rtz'
        """
        return {
            "kind": "cast",
            "name": self.name,
            "format": self.format.to_json(),
            "rounding": self.rounding.to_json(),
            "overflow": self.overflow.to_json(),
            **({} if self.via is None else {"via": self.via.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> Cast:
        """The cast written by ``to_json``, or named by a string.

        Raises:
            FormatError: for missing, unknown or impossible fields.

        Example:
            >>> gs.formats.Cast.from_json("bf16/rtz")
            parse_cast('e8m7/rtz')
        """
        if isinstance(data, str):
            found: Cast = read_name("cast", data)
            return found
        fields = json_fields("Cast", "cast", data, required=("format",), optional=("rounding", "overflow", "via"))
        rounding = parse_rounding(fields.get("rounding", Rounding.RNE))
        overflow = parse_overflow(fields.get("overflow", Overflow.INFINITY))
        via = None if fields.get("via") is None else format_from_json(fields["via"])
        return cls(format_from_json(fields["format"]), rounding, overflow, via)  # type: ignore[arg-type]


def _range_words(fmt: Format) -> str:
    if isinstance(fmt, FixedFormat) and not fmt.clamp:
        return f"unbounded, step {fmt.eps:g}"
    largest = _number(fmt)
    if not fmt.signed:
        return f"max {largest}, unsigned"
    return f"max {largest}" if fmt.max_fraction == -fmt.min_fraction else f"max {largest}, min {fmt.min:.17g}"


def _number(fmt: Format) -> str:
    if not fmt.fits_float64:
        return f"about 2^{fmt.max_fraction.numerator.bit_length() - 1}"
    value = fmt.max
    return f"{value:.0f}" if value < 1e6 and value == int(value) else f"{value:.9g}"
