"""Supernormal floats: binades with a significand, and bare powers of two below and above them."""

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

__all__ = ["PowerTie", "SupernormalFormat"]

#: Exponents of float32's smallest and largest powers of two.
_FLOAT32_LOWEST, _FLOAT32_HIGHEST = -149, 127


class PowerTie(Enum):
    """The power of two that a value half-way between two of them becomes when rounded to nearest even.

    ``AWAY``: the larger one, also between 0 and the smallest value. ``EVEN_EXPONENT``: the one with the even exponent,
    and 0 below the smallest value.

    Example:
        >>> gs.formats.SupernormalFormat(4, 3).tie
        PowerTie.AWAY
    """

    AWAY = "away"  # the larger one, also between 0 and the smallest value
    EVEN_EXPONENT = "even_exponent"  # the one with the even exponent; 0 below the smallest value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"PowerTie.{self.name}"


@dataclass(frozen=True)
class SupernormalFormat(MagnitudeFormat):
    """Floats with ``trailing_bits`` bits after the leading one, whose outermost exponent codes hold powers of two.

    Args:
        exponent_bits: width of the exponent field, 1 to 8; the bias is 2**(exponent_bits-1).
        trailing_bits: width of the significand field, 1 to 23.
        lower, upper: how many exponent codes at the bottom and at the top are spent on powers of two, 1 to 8. Each code
            gives 2**trailing_bits powers of two instead of one binade. The lowest code is zero.
        saturate: use the highest code, which otherwise is infinity, for one more power of two.
        tie: the choice of ``rne`` between two powers of two.
        within_float32: leave out the powers of two that float32 does not hold, below 2**-149 and above 2**127.

    With emin = 1 - bias + lower - 1 and emax = bias - 2 - (upper - 1), the values are (1 + k*2**-trailing_bits) * 2**e
    for emin <= e <= emax. The powers 2**e are values for e from emin - lower*2**trailing_bits + 1 to emin - 1 and from
    emax + 1 to emax + upper*2**trailing_bits - 1 (one more if ``saturate``). All have a sign, and there are +0 and -0.
    There is no NaN code.
    Source: mptorch's SuperNormalFloat, docs/reference/formats.md#supernormal-floats.

    Raises:
        FormatError: for fields out of range, for more codes spent than there are, and where float64 does not hold
            every value, unless ``within_float32``.

    Example:
        >>> fmt = gs.formats.SupernormalFormat(exponent_bits=4, trailing_bits=3)
        >>> fmt.max, fmt.smallest_subnormal  # e4m3 ends at 448 and 2**-9
        (8192.0, 6.103515625e-05)
    """

    exponent_bits: int
    trailing_bits: int
    lower: int = 1
    upper: int = 1
    saturate: bool = False
    tie: PowerTie = PowerTie.AWAY
    within_float32: bool = False

    def __post_init__(self) -> None:
        limits = (("exponent_bits", 1, 8), ("trailing_bits", 1, 23), ("lower", 1, 8), ("upper", 1, 8))
        for name, low, high in limits:
            object.__setattr__(self, name, check_int("SupernormalFormat", name, getattr(self, name), low, high))
        check_bool("SupernormalFormat", "saturate", self.saturate)
        check_bool("SupernormalFormat", "within_float32", self.within_float32)
        try:
            object.__setattr__(self, "tie", PowerTie(self.tie))
        except ValueError:
            raise format_error(
                f"SupernormalFormat: tie={self.tie!r}", "away or even_exponent", "Choose one of them."
            ) from None
        if self.lower + self.upper > 1 << self.exponent_bits:
            raise format_error(
                f"SupernormalFormat: {self.lower} + {self.upper} exponent codes of {1 << self.exponent_bits}",
                "no more than there are",
                "Widen the exponent field, or spend fewer codes on powers of two.",
            )
        if self.lowest_exponent < -1074 or self.highest_exponent > 1023:
            raise format_error(
                f"SupernormalFormat: powers from 2^{self.lowest_exponent} to 2^{self.highest_exponent}",
                "powers that float64 holds, 2^-1074 to 2^1023",
                "Take fewer trailing bits, each of which doubles how far the powers of two reach, or within_float32.",
            )

    # Structure

    signed = True

    @property
    def bias(self) -> int:
        """2**(exponent_bits-1)."""
        return 1 << (self.exponent_bits - 1)

    @property
    def p(self) -> int:
        """Significand bits of the binades that have them, the implicit one included."""
        return self.trailing_bits + 1

    @property
    def first_binade(self) -> int:
        """Exponent of the lowest binade with ``p`` bits."""
        return self.lower - self.bias

    @property
    def last_binade(self) -> int:
        """Exponent of the highest binade with ``p`` bits; ``first_binade - 1`` without one."""
        return self.bias - 1 - self.upper

    @property
    def lowest_exponent(self) -> int:
        """Exponent of the smallest positive value."""
        lowest = self.first_binade - (self.lower << self.trailing_bits) + 1
        # Not above the last bit of the binades: 2**-150 for 23 trailing bits, of which float32 has all multiples there.
        return (
            max(lowest, min(_FLOAT32_LOWEST, self.first_binade - self.trailing_bits)) if self.within_float32 else lowest
        )

    @property
    def highest_exponent(self) -> int:
        """Exponent of the largest finite value."""
        highest = self.last_binade + (self.upper << self.trailing_bits) - 1 + int(self.saturate)
        return min(highest, _FLOAT32_HIGHEST) if self.within_float32 else highest

    @property
    def emin(self) -> int:
        """``first_binade``."""
        return self.first_binade

    @property
    def emax(self) -> int:
        """``highest_exponent``, as in float formats."""
        return self.highest_exponent

    @property
    def bits(self) -> int:
        """Sign, exponent and trailing bits."""
        return 1 + self.exponent_bits + self.trailing_bits

    @property
    def max_magnitude(self) -> int:
        """Magnitude of the largest finite value."""
        return self._first_high + self.highest_exponent - self.last_binade - 1

    @property
    def _first_high(self) -> int:
        """Magnitude of the first power of two above the binades."""
        return ((1 << self.exponent_bits) - self.upper) << self.trailing_bits

    @property
    def has_inf(self) -> bool:
        """Whether the highest code is infinity: unless ``saturate``."""
        return not self.saturate

    @property
    def has_nan(self) -> bool:
        """False."""
        return False

    @property
    def has_negative_zero(self) -> bool:
        """True."""
        return True

    @property
    def quantum_exponent(self) -> int:
        """Exponent of the smallest positive value."""
        return self.lowest_exponent

    @property
    def smallest_subnormal(self) -> float:
        """2**lowest_exponent."""
        return float(Fraction(2) ** self.lowest_exponent)

    @property
    def smallest_normal(self) -> float:
        """2**first_binade."""
        return float(Fraction(2) ** self.first_binade)

    @property
    def eps(self) -> float:
        """Relative spacing where it is finest, 2**-trailing_bits."""
        return float(2.0**-self.trailing_bits)

    @property
    def resolution(self) -> float:
        """``eps``."""
        return self.eps

    def _parts(self, magnitude: int) -> tuple[int, int]:
        if magnitude == 0:
            return 0, 0
        low, high = self.lower << self.trailing_bits, self._first_high
        if magnitude < low:
            exponent = self.first_binade - low + magnitude
            return (1, exponent) if exponent >= self.lowest_exponent else (0, 0)
        if magnitude >= high:
            return (1, self.last_binade + 1 + magnitude - high) if magnitude <= self.max_magnitude else (0, 0)
        binade, trailing = divmod(magnitude - low, 1 << self.trailing_bits)
        return (1 << self.trailing_bits) + trailing, self.first_binade + binade - self.trailing_bits

    # Text

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        fields = [str(self.exponent_bits), str(self.trailing_bits)]
        fields += [] if (self.lower, self.upper) == (1, 1) else [str(self.lower), str(self.upper)]
        fields += ["saturate"] if self.saturate else []
        fields += [] if self.tie is PowerTie.AWAY else [str(self.tie)]
        fields += ["within_float32"] if self.within_float32 else []
        return f"supernormal({','.join(fields)})"

    def describe(self) -> str:
        """Layout, range, spacing and special values in words, one fact a line."""
        power = [number_text(Fraction(2) ** e) for e in (self.lowest_exponent, self.first_binade, self.last_binade + 1)]
        codes = (
            f"{self.lower} exponent codes below and {self.upper} above" if (self.lower, self.upper) != (1, 1) else ""
        )
        tie = "the larger power" if self.tie is PowerTie.AWAY else "the power with the even exponent"
        lines = [
            f"{self}: {self.bits}-bit supernormal float",
            f"  1 sign + {self.exponent_bits} exponent + {self.trailing_bits} trailing significand bits, "
            f"bias {self.bias}; {codes or 'one exponent code below and one above'} hold powers of two",
            f"  max {number_text(self.max_fraction)}, min {number_text(self.min_fraction)}, smallest value {power[0]}",
            f"  p = {self.p} from {power[1]} up to {power[2]}, powers of two outside; rne takes {tie} at a tie",
            f"  {'+-infinity' if self.has_inf else 'no infinity'}, no NaN, +0 and -0",
            f"  beyond max without saturation: {'infinity' if self.has_inf else 'the largest value'}",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary of the name and the fields; ``from_json`` reads it back."""
        return {
            "kind": "supernormal",
            "name": self.name,
            "exponent_bits": self.exponent_bits,
            "trailing_bits": self.trailing_bits,
            "lower": self.lower,
            "upper": self.upper,
            "saturate": self.saturate,
            "tie": str(self.tie),
            "within_float32": self.within_float32,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> SupernormalFormat:
        """Format written by ``to_json``; ``FormatError`` for missing, unknown or impossible fields."""
        required, optional = ("exponent_bits", "trailing_bits"), ("lower", "upper", "saturate", "tie", "within_float32")
        fields: dict[str, Any] = json_fields(
            "SupernormalFormat", "supernormal", data, required=required, optional=optional
        )
        return cls(**fields)


@call("supernormal(X,Y[,lower,upper][,saturate])")
def _parse_supernormal(name: str, fields: list[str]) -> SupernormalFormat:
    """supernormal(X,Y[,lower[,upper]][,flag...]); one number of exponent codes serves both ends."""
    usage = "supernormal(X,Y[,lower[,upper]][,saturate][,even_exponent][,within_float32])"
    numbers = [field for field in fields if field[:1].isdigit()]
    flags = fields[len(numbers) :]
    if not 2 <= len(numbers) <= 4:
        raise format_error(f"format {shown(name)}", usage, "Give exponent and trailing bits, as in 'supernormal(4,3)'.")
    known = ("saturate", str(PowerTie.EVEN_EXPONENT), "within_float32")
    check_flags(name, usage, flags, known)
    widths = [integer(name, usage, field) for field in numbers]
    lower, upper = (1, 1) if len(widths) == 2 else (widths[2], widths[-1])
    tie = PowerTie.EVEN_EXPONENT if known[1] in flags else PowerTie.AWAY
    return SupernormalFormat(widths[0], widths[1], lower, upper, known[0] in flags, tie, known[2] in flags)
