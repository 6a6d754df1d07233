"""A rounding step: target format, rounding mode and overflow policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .any_format import FORMATS, Format, format_from_json
from .binary8 import Binary8Format
from .block_float import BlockFloatFormat, is_block_float_name, parse_block_float
from .codebook import CodebookFormat
from .errors import format_error, shown, suggestion
from .json_fields import json_fields
from .naming import is_shorthand
from .own_exponent import OwnExponentFormat, own_exponent
from .registry import parse_scalar
from .rounding import (
    Overflow,
    Rounding,
    RoundingMode,
    is_overflow_name,
    is_rounding_name,
    overflow_names,
    parse_overflow,
    parse_rounding,
    rounding_names,
)

__all__ = ["Cast", "parse_cast"]


@dataclass(frozen=True)
class Cast:
    """Rounding of a real number to ``format``, once, by ``rounding``, with ``overflow`` beyond the largest value.

    NaN stays NaN. Infinities follow ``overflow``. The sign of zero is kept where the format has -0, else zero is +0.
    In an unsigned FloatFormat a result below zero is NaN under ``Overflow.INFINITY``, 0 under the other policies; rtz
    and ru, P3109's finite domain and formats without NaN give 0 there too. A scale format (no zero) always gives NaN.
    A Binary8Format has its overflow policy itself, and so has an OwnExponentFormat, which saturates.

    Raises:
        FormatError: for fields of another type.
    """

    format: Format
    rounding: Rounding = Rounding.RNE
    overflow: Overflow = Overflow.INFINITY

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
            binary8 = "choose among saturate_infty, saturate_maxfloat and saturate_maxfloat2"
            other = binary8 if isinstance(self.format, Binary8Format) else "write bfp(...,inf) to keep infinities"
            raise format_error(
                f"Cast: overflow {self.overflow} with {self.format}",
                "the policy that is part of the format",
                f"Leave {self.overflow} out, or {other}.",
            )

        if isinstance(self.format, CodebookFormat):
            self._check_codebook()

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
        return f"{self.format}{rounding}{overflow}"

    def __str__(self) -> str:
        return self.name

    @cached_property
    def _hash(self) -> int:
        return hash((self.format, self.rounding.mode.value, self.rounding.bits, self.overflow.value))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Cast], tuple[Format, Rounding, Overflow]]:
        return Cast, (self.format, self.rounding, self.overflow)

    def describe(self) -> str:
        """Format, rounding and overflow in words, several lines."""
        if isinstance(self.format, OwnExponentFormat):
            return f"{self.format.describe()}\n  rounded {self.rounding.describe()}"
        return f"{self.format.describe()}\n  rounded {self.rounding.describe()}; {self.overflow.describe()}"

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {
            "kind": "cast",
            "name": self.name,
            "format": self.format.to_json(),
            "rounding": self.rounding.to_json(),
            "overflow": self.overflow.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> Cast:
        """Cast written by ``to_json``, or named by a string.

        Raises:
            FormatError: for missing, unknown or impossible fields.
        """
        if isinstance(data, str):
            return parse_cast(data)
        fields = json_fields("Cast", "cast", data, required=("format",), optional=("rounding", "overflow"))
        rounding = parse_rounding(fields.get("rounding", Rounding.RNE))
        return cls(
            format_from_json(fields["format"]), rounding, parse_overflow(fields.get("overflow", Overflow.INFINITY))
        )


def parse_cast(text: str | Format | BlockFloatFormat | Cast) -> Cast:
    """Cast named by ``text``: a format, then at most one each of "/rounding", "/overflow" and "/ftz", in any order.

    ``parse_cast(str(c)) == c`` for every cast. A cast is returned as it is; a format gets the default
    rne and ``Overflow.INFINITY``. Block floating point is that of single numbers, "bfp(8,1)/sr8" or such a
    ``BlockFloatFormat``: its format is an ``OwnExponentFormat``, its rounding its own; ``dim`` has no meaning then.

    Raises:
        FormatError: for an unknown format or option (the nearest ones are suggested) or a repeated option.
    """
    if isinstance(text, Cast):
        return text
    if isinstance(text, FORMATS):
        return Cast(text)
    if isinstance(text, str) and is_shorthand(text):
        from .shorthand import parse_shorthand

        found = parse_shorthand(text)
        return found if isinstance(found, Cast) else Cast(parse_scalar(text))  # raises
    if isinstance(text, BlockFloatFormat):
        return Cast(*own_exponent(text))
    if not isinstance(text, str):
        raise format_error(
            f"cast {shown(text)} of type {type(text).__name__}", "a name, a format or a Cast", "Try 'e4m3/sat'."
        )
    return _parse_cast(text)


def _parse_cast(text: str) -> Cast:
    base, *options = re.sub(r"\s+", "", text).lower().split("/")
    blocks = own_exponent(parse_block_float(base))[0] if is_block_float_name(base) else None
    kinds: dict[str, str] = {}
    for option in options:
        kind = _option_kind(text, option)
        if kind in kinds:
            raise format_error(
                f"cast {shown(text)}: {kinds[kind]!r} and {shown(option)}", f"one {kind}", "Drop one of them."
            )
        kinds[kind] = option
    fmt = (
        blocks if blocks is not None and "ftz" not in kinds else parse_scalar(f"{base}/ftz" if "ftz" in kinds else base)
    )
    rounding = parse_rounding(kinds["rounding"]) if "rounding" in kinds else Rounding.RNE
    overflow = parse_overflow(kinds["overflow policy"]) if "overflow policy" in kinds else Overflow.INFINITY
    return Cast(fmt, rounding, overflow)


def _option_kind(text: str, option: str) -> str:
    if option == "ftz":
        return "ftz"
    if is_rounding_name(option):
        return "rounding"
    if is_overflow_name(option):
        return "overflow policy"
    hint = suggestion(option, [*rounding_names(), *overflow_names(), "ftz"])
    allowed = (
        "a rounding (rne rna rtz ru rd ro sr srN srbN srcN), an overflow policy (sat satprop clamp infinity) or ftz"
    )
    raise format_error(f"cast {shown(text)}: unknown option {shown(option)}", allowed, hint or "Drop it.")
