"""Binary8: the eight-bit formats of the P3109 working group's 2024 drafts, as mptorch 0.3.0 rounds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from .checks import check_bool, check_int, number_text
from .constructor_syntax import call, check_flags, integer
from .errors import format_error, shown
from .json_fields import json_fields
from .sign_magnitude_codec import MagnitudeFormat

__all__ = ["Binary8Format", "Binary8Policy"]


class Binary8Policy(Enum):
    """What a value beyond the largest one becomes. The policy also says whether a code is reserved for infinity.

    Example:
        >>> [str(policy) for policy in gs.formats.Binary8Policy]
        ['saturate_infty', 'saturate_propagate', 'saturate_maxfloat', 'saturate_maxfloat2']
    """

    SATURATE_INFTY = "saturate_infty"  # a code is infinity; overflow in every rounding gives it
    SATURATE_PROPAGATE = "saturate_propagate"  # a code is infinity; infinities stay, finite overflow saturates below it
    SATURATE_MAXFLOAT = "saturate_maxfloat"  # a code is infinity, but everything saturates below it, infinities too
    SATURATE_MAXFLOAT2 = "saturate_maxfloat2"  # that code is one more number; everything saturates

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"Binary8Policy.{self.name}"


@dataclass(frozen=True)
class Binary8Format(MagnitudeFormat):
    """Eight-bit floats of precision ``p`` by rules older than P3109 v4.0, whose ``binary8pP`` differ from these.

    Args:
        p: precision in bits with the implicit one, 1 to 7, unsigned also 8.
        signed: whether negative values exist. In an unsigned format everything below zero is NaN, before rounding.
        subnormals: without them the lowest binade holds normal numbers of exponent -bias, except that its first code is
            zero. The smallest value then is (1 + 2**(1-p)) * 2**-bias.
        policy: the overflow policy. A cast to this format has no other.

    The bias is 2**(7-p) (unsigned 2**(8-p)), one less for p = 1. There is one zero and one NaN: 0x80 signed, 0xff
    unsigned. Overflow is judged after rounding with unbounded exponent, in every rounding mode.
    Source: docs/reference/formats.md#binary8-by-the-old-rules; for p >= 2 the value sets are those of P3109 v4.0.

    Raises:
        FormatError: for fields that describe no format.

    Example:
        >>> fmt = gs.formats.Binary8Format(p=4)
        >>> fmt.name, fmt.bias, fmt.emax
        ('binary8(4)', 8, 7)
    """

    p: int
    signed: bool = True
    subnormals: bool = True
    policy: Binary8Policy = Binary8Policy.SATURATE_MAXFLOAT2

    def __post_init__(self) -> None:
        check_bool("Binary8Format", "signed", self.signed)
        check_bool("Binary8Format", "subnormals", self.subnormals)
        object.__setattr__(self, "p", check_int("Binary8Format", "p", self.p, 1, 7 if self.signed else 8))
        try:
            object.__setattr__(self, "policy", Binary8Policy(self.policy))
        except ValueError:
            known = ", ".join(str(member) for member in Binary8Policy)
            raise format_error(f"Binary8Format: policy={self.policy!r}", known, "Choose one of them.") from None

    # Structure

    @property
    def bits(self) -> int:
        """8."""
        return 8

    @property
    def exponent_bits(self) -> int:
        """Width of the exponent field."""
        return 8 - self.p if self.signed else 9 - self.p

    @property
    def trailing_bits(self) -> int:
        """Width of the significand field."""
        return self.p - 1

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.exponent_bits - 1)) - int(self.p == 1)

    @property
    def emin(self) -> int:
        """Exponent of the lowest binade with ``p`` bits: one lower where ``skips_first``."""
        return -self.bias if self.skips_first else 1 - self.bias

    @property
    def skips_first(self) -> bool:
        """Whether 2**emin is not a value: without subnormals, where there are trailing bits."""
        return not self.subnormals and self.p > 1

    @property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return (self.max_magnitude >> self.trailing_bits) - self.bias

    @property
    def max_magnitude(self) -> int:
        """Magnitude of the largest finite value."""
        return (0x7F if self.signed else 0xFE) - int(self.has_inf)

    @property
    def has_inf(self) -> bool:
        """Whether a code is infinity."""
        return self.policy is not Binary8Policy.SATURATE_MAXFLOAT2

    @property
    def has_nan(self) -> bool:
        """True."""
        return True

    @property
    def has_negative_zero(self) -> bool:
        """False."""
        return False

    @property
    def quantum_exponent(self) -> int:
        """emin - p + 1."""
        return self.emin - self.p + 1

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value that is no subnormal."""
        return self.smallest_subnormal if self.skips_first else float(Fraction(2) ** self.emin)

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger value of ``p`` bits, 2**(1-p)."""
        return float(2.0 ** (1 - self.p))

    @property
    def resolution(self) -> float:
        """``eps``."""
        return self.eps

    @property
    def _nan_code(self) -> int:
        return 0x80 if self.signed else 0xFF

    def _parts(self, magnitude: int) -> tuple[int, int]:
        field, trailing = magnitude >> self.trailing_bits, magnitude & ((1 << self.trailing_bits) - 1)
        implicit = 1 << self.trailing_bits
        if field == 0 and self.skips_first:
            return (implicit + trailing if trailing else 0), -self.bias - self.trailing_bits
        if field == 0:
            return trailing, 1 - self.bias - self.trailing_bits
        return implicit + trailing, field - self.bias - self.trailing_bits

    # Text

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        fields = [str(self.p)]
        fields += [] if self.signed else ["unsigned"]
        fields += [] if self.policy is Binary8Policy.SATURATE_MAXFLOAT2 else [str(self.policy)]
        return f"binary8({','.join(fields)}){'' if self.subnormals else '/ftz'}"

    def describe(self) -> str:
        """Layout, range and special values in words, one fact a line."""
        sign = "1 sign" if self.signed else "0 sign (unsigned)"
        beyond = {
            Binary8Policy.SATURATE_INFTY: "infinity, in every rounding",
            Binary8Policy.SATURATE_PROPAGATE: "saturates; infinities stay",
            Binary8Policy.SATURATE_MAXFLOAT: "saturates, including infinities; the code of infinity is never a result",
            Binary8Policy.SATURATE_MAXFLOAT2: "saturates, including infinities",
        }[self.policy]
        lines = [
            f"{self}: 8-bit float by the rules before P3109 v4.0",
            f"  {sign} + {self.exponent_bits} exponent + {self.trailing_bits} trailing significand bits "
            f"(p = {self.p}), bias {self.bias}",
            f"  max {number_text(self.max_fraction)}, min {number_text(self.min_fraction)}, "
            f"smallest value {number_text(Fraction(self.smallest_subnormal))}",
            f"  {'infinity' if self.has_inf else 'no infinity'}, NaN (code {self._nan_code:#x}), one zero",
            f"  beyond max: {beyond}" + ("" if self.signed else "; below zero: NaN"),
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary of the name and the fields; ``from_json`` reads it back."""
        return {
            "kind": "binary8",
            "name": self.name,
            "p": self.p,
            "signed": self.signed,
            "subnormals": self.subnormals,
            "policy": str(self.policy),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Binary8Format:
        """Format written by ``to_json``; ``FormatError`` for missing, unknown or impossible fields."""
        optional = ("signed", "subnormals", "policy")
        fields: dict[str, Any] = json_fields("Binary8Format", "binary8", data, required=("p",), optional=optional)
        return cls(**fields)


@call("binary8(P[,unsigned][,policy])")
def _parse_binary8(name: str, fields: list[str]) -> Binary8Format:
    """binary8(P[,unsigned][,policy])."""
    policies = [str(policy) for policy in Binary8Policy]
    usage = f"binary8(P[,unsigned][,{'|,'.join(policies)}])"
    if not fields:
        raise format_error(f"format {shown(name)}", usage, "Give the precision, as in 'binary8(3)'.")
    flags = fields[1:]
    check_flags(name, usage, flags, ("unsigned", *policies))
    chosen = [flag for flag in flags if flag in policies] or [str(Binary8Policy.SATURATE_MAXFLOAT2)]
    if len(chosen) > 1:
        raise format_error(f"format {shown(name)}", "one overflow policy", "Drop the others.")
    return Binary8Format(integer(name, usage, fields[0]), "unsigned" not in flags, policy=Binary8Policy(chosen[0]))
