"""Names for how a value is rounded and what happens when it is too large."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from .checks import check_int
from .errors import FormatError, format_error, shown, suggestion, unknown

__all__ = [
    "DEFAULT_RANDOM_BITS",
    "Overflow",
    "Rounding",
    "RoundingMode",
    "is_overflow_name",
    "is_rounding_name",
    "overflow_names",
    "parse_overflow",
    "parse_rounding",
    "rounding_names",
]

#: Random bits of a stochastic rounding that does not say how many.
DEFAULT_RANDOM_BITS = 16


class RoundingMode(Enum):
    """The rule that chooses between the two neighbours of a value. Numbers of the format never change.

    To nearest, with ties: ``RNE`` to even, ``RNA`` away from zero, ``RND`` toward -infinity, ``RNU`` toward +infinity.
    Directed: ``RTZ`` toward zero, ``RU`` up, ``RD`` down. ``RO``: to the neighbour with the odd significand.
    Stochastic, where nu is the discarded fraction of the ulp and R a random integer, uniform in [0, 2^r):
    ``SR`` rounds away from zero if floor(nu*2^r) + R >= 2^r, ``SRB`` if floor(nu*2^(r+1)) + 2R + 1 >= 2^(r+1),
    ``SRC`` if roundTiesToEven(nu*2^r) + R >= 2^r (P3109 v4.0 StochasticA, B and C).

    Example:
        >>> x = torch.tensor([17.0, -17.0])  # half-way between 16 and 18 in e4m3
        >>> [gs.quantize(x, f"e4m3/{mode}").tolist() for mode in ("rne", "rna", "rd")]
        [[16.0, -16.0], [18.0, -18.0], [16.0, -18.0]]
    """

    #: Nearest, ties to the even significand (IEEE 754-2019 4.3.1 roundTiesToEven).
    RNE = "rne"
    #: Nearest, ties away from zero (roundTiesToAway).
    RNA = "rna"
    #: Toward zero (roundTowardZero).
    RTZ = "rtz"
    #: Toward +infinity (roundTowardPositive).
    RU = "ru"
    #: Toward -infinity (roundTowardNegative).
    RD = "rd"
    #: The neighbour with the odd significand (P3109 v4.0 ToOdd; Boldo and Melquiond, IEEE TC 57(4), 2008).
    RO = "ro"
    #: Stochastic, P3109 v4.0 StochasticA: away from zero iff floor(nu*2^r) + R >= 2^r.
    SR = "sr"
    #: Stochastic, P3109 v4.0 StochasticB: away from zero iff floor(nu*2^(r+1)) + 2R + 1 >= 2^(r+1).
    SRB = "srb"
    #: Stochastic, P3109 v4.0 StochasticC: away from zero iff roundTiesToEven(nu*2^r) + R >= 2^r.
    SRC = "src"
    #: Nearest, ties toward -infinity.
    RND = "rnd"
    #: Nearest, ties toward +infinity.
    RNU = "rnu"

    def __str__(self) -> str:
        return str(self.value)

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self in (RoundingMode.SR, RoundingMode.SRB, RoundingMode.SRC)


@dataclass(frozen=True, repr=False)
class Rounding:
    """A rounding mode and, for the stochastic ones, its number of random bits r (1 to 32; 0 means the default, 16).

    The docstring of ``RoundingMode`` describes the modes. All of them leave NaN, infinities, zeros and numbers of the
    format as they are.

    Example:
        >>> gs.formats.Rounding(gs.formats.RoundingMode.SR, bits=8) == gs.formats.parse_rounding("sr8")
        True
    """

    mode: RoundingMode
    bits: int = 0

    RNE: ClassVar[Rounding]
    RNA: ClassVar[Rounding]
    RTZ: ClassVar[Rounding]
    RU: ClassVar[Rounding]
    RD: ClassVar[Rounding]
    RO: ClassVar[Rounding]
    SR: ClassVar[Rounding]
    SRB: ClassVar[Rounding]
    SRC: ClassVar[Rounding]
    RND: ClassVar[Rounding]
    RNU: ClassVar[Rounding]

    def __post_init__(self) -> None:
        if not isinstance(self.mode, RoundingMode):
            raise format_error(
                f"Rounding: mode={self.mode!r}",
                "a RoundingMode (" + ", ".join(mode.name for mode in RoundingMode) + ")",
                "Use parse_rounding(text) for a name.",
            )
        if self.mode.is_stochastic:
            bits = check_int("Rounding", "bits", self.bits, 0, 32) or DEFAULT_RANDOM_BITS
            object.__setattr__(self, "bits", bits)
        elif check_int("Rounding", "bits", self.bits, 0, 32):
            raise format_error(
                f"Rounding: bits={self.bits} with mode {self.mode}",
                "random bits only for sr, srb and src",
                f"Leave bits out, or use mode SR for stochastic rounding with {self.bits} random bits.",
            )

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.mode.is_stochastic

    def __str__(self) -> str:
        return f"{self.mode.value}{self.bits}" if self.bits else str(self.mode.value)

    def __repr__(self) -> str:
        bits = f", {self.bits}" if self.bits else ""
        return f"Rounding(RoundingMode.{self.mode.name}{bits})"

    def describe(self) -> str:
        """One clause in words."""
        text = _MODE_WORDS[self.mode]
        return f"{text}, {self.bits} random bits" if self.bits else text

    def to_json(self) -> str:
        """The canonical name; ``from_json`` reads it back."""
        return str(self)

    @classmethod
    def from_json(cls, data: object) -> Rounding:
        """The rounding written by ``to_json``; ``FormatError`` for anything else.

        Example:
            >>> gs.formats.Rounding.from_json("sr8")
            Rounding(RoundingMode.SR, 8)
        """
        return parse_rounding(data)


_MODE_WORDS = {
    RoundingMode.RNE: "to nearest, ties to even",
    RoundingMode.RNA: "to nearest, ties away from zero",
    RoundingMode.RTZ: "toward zero",
    RoundingMode.RU: "toward +infinity",
    RoundingMode.RD: "toward -infinity",
    RoundingMode.RO: "to odd",
    RoundingMode.SR: "stochastic (P3109 A)",
    RoundingMode.SRB: "stochastic (P3109 B)",
    RoundingMode.SRC: "stochastic (P3109 C)",
    RoundingMode.RND: "to nearest, ties toward -infinity",
    RoundingMode.RNU: "to nearest, ties toward +infinity",
}

Rounding.RNE = Rounding(RoundingMode.RNE)
Rounding.RNA = Rounding(RoundingMode.RNA)
Rounding.RTZ = Rounding(RoundingMode.RTZ)
Rounding.RU = Rounding(RoundingMode.RU)
Rounding.RD = Rounding(RoundingMode.RD)
Rounding.RO = Rounding(RoundingMode.RO)
Rounding.SR = Rounding(RoundingMode.SR)
Rounding.SRB = Rounding(RoundingMode.SRB)
Rounding.SRC = Rounding(RoundingMode.SRC)
Rounding.RND = Rounding(RoundingMode.RND)
Rounding.RNU = Rounding(RoundingMode.RNU)


class Overflow(Enum):
    """What happens to a result beyond the largest finite value, and to an infinite input.

    "Beyond" is decided after rounding with unbounded exponent. NaN stays NaN under every policy.
    ``INFINITY`` gives infinity where the format has one, otherwise NaN where it has one, otherwise the largest value.
    For directed roundings it follows IEEE 754-2019, 7.4: rtz gives the largest value, ru and rd depend on the sign. In
    P3109's finite domain it clamps, although there is NaN.
    ``SATURATE`` clamps finite results; an infinite input stays infinite in IEEE-like formats and clamps in others.
    ``PROPAGATE`` clamps finite results; an infinite input stays infinite where the format has infinity.
    ``CLAMP`` clamps everything, in every format.

    Example:
        >>> x = torch.tensor([1e6, float("inf")])
        >>> gs.quantize(x, "fp16/sat"), gs.quantize(x, "fp16/clamp"), gs.quantize(x, "e4m3")
        (tensor([65504.,    inf]), tensor([65504., 65504.]), tensor([nan, nan]))
    """

    #: Infinity where the format has one, else NaN where it has one, else the largest value. Directed roundings follow
    #: IEEE 754-2019 7.4: rtz gives the largest value, ru and rd by sign. P3109 SatNone: there the finite domain clamps
    #: although it has NaN.
    INFINITY = "infinity"
    #: A finite result clamps to max or min; an infinite input stays infinite where the format is IEEE-like and clamps
    #: elsewhere. For P3109 formats this is SatFinite.
    SATURATE = "sat"
    #: A finite result clamps; an infinite input stays if the format has infinity, else clamps. P3109 SatPropagate.
    PROPAGATE = "satprop"
    #: Everything clamps, infinite inputs too, in every format. P3109 SatFinite.
    CLAMP = "clamp"

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"Overflow.{self.name}"

    def describe(self) -> str:
        """One clause in words."""
        return _OVERFLOW_WORDS[self]

    def to_json(self) -> str:
        """The canonical name; ``from_json`` reads it back."""
        return str(self)

    @classmethod
    def from_json(cls, data: object) -> Overflow:
        """The policy written by ``to_json``; ``FormatError`` for anything else.

        Example:
            >>> gs.formats.Overflow.from_json("sat")
            Overflow.SATURATE
        """
        return parse_overflow(data)


_OVERFLOW_WORDS = {
    Overflow.INFINITY: "overflow to infinity (NaN, else the largest value, where there is none)",
    Overflow.SATURATE: "finite overflow saturates, infinity stays in IEEE-like formats",
    Overflow.PROPAGATE: "finite overflow saturates, infinity stays where the format has it",
    Overflow.CLAMP: "everything saturates, infinity too",
}

_MODE_NAMES: dict[str, RoundingMode] = {mode.value: mode for mode in RoundingMode} | {
    "nearest": RoundingMode.RNE,
    "nearest_even": RoundingMode.RNE,
    "half_even": RoundingMode.RNE,
    "ties_to_even": RoundingMode.RNE,
    "nearest_away": RoundingMode.RNA,
    "half_away": RoundingMode.RNA,
    "ties_to_away": RoundingMode.RNA,
    "half_down": RoundingMode.RND,
    "half_up": RoundingMode.RNU,
    "toward_zero": RoundingMode.RTZ,
    "truncate": RoundingMode.RTZ,
    "rz": RoundingMode.RTZ,
    "up": RoundingMode.RU,
    "toward_positive": RoundingMode.RU,
    "down": RoundingMode.RD,
    "toward_negative": RoundingMode.RD,
    "odd": RoundingMode.RO,
    "to_odd": RoundingMode.RO,
    "stochastic": RoundingMode.SR,
    "stochastic_a": RoundingMode.SR,
    "stochastic_b": RoundingMode.SRB,
    "stochastic_c": RoundingMode.SRC,
    # IEEE 754-2019 4.3, and the short names of CUDA, MPFR and RISC-V.
    "roundtiestoeven": RoundingMode.RNE,
    "roundtiestoaway": RoundingMode.RNA,
    "roundtowardzero": RoundingMode.RTZ,
    "roundtowardpositive": RoundingMode.RU,
    "roundtowardnegative": RoundingMode.RD,
    "rn": RoundingMode.RNE,
    "rndn": RoundingMode.RNE,
    "rtn": RoundingMode.RD,
    "rdn": RoundingMode.RD,
    "rtp": RoundingMode.RU,
    "rup": RoundingMode.RU,
}

_OVERFLOW_NAMES: dict[str, Overflow] = {policy.value: policy for policy in Overflow} | {
    "inf": Overflow.INFINITY,
    "ieee": Overflow.INFINITY,
    "satnone": Overflow.INFINITY,
    "overflow_infinity": Overflow.INFINITY,
    "saturate": Overflow.SATURATE,
    "propagate": Overflow.PROPAGATE,
    "satpropagate": Overflow.PROPAGATE,
    "saturate_propagate": Overflow.PROPAGATE,
    # SatFinite clamps infinities whatever the format, which is CLAMP; for P3109 formats SATURATE is the same map.
    "satfinite": Overflow.CLAMP,
    "saturate_finite": Overflow.CLAMP,
}

_WITH_BITS = re.compile(r"(srb|src|sr|stochastic(?:_[abc])?)\s*(?:\(\s*([0-9]{1,6})\s*\)|([0-9]{1,6}))")


def rounding_names() -> list[str]:
    """Every name ``parse_rounding`` accepts without random bits, sorted."""
    return sorted(_MODE_NAMES)


def overflow_names() -> list[str]:
    """Every name ``parse_overflow`` accepts, sorted."""
    return sorted(_OVERFLOW_NAMES)


def is_rounding_name(text: str) -> bool:
    """Whether ``text`` (lower case) has the shape of a rounding, with or without random bits."""
    return text in _MODE_NAMES or _WITH_BITS.fullmatch(text) is not None


def is_overflow_name(text: str) -> bool:
    """Whether ``text`` (lower case) names an overflow policy."""
    return text in _OVERFLOW_NAMES


def parse_rounding(text: object) -> Rounding:
    """The rounding named by ``text``: "rne", "truncate", "sr" (16 random bits), "sr8", "sr(8)", "srb8".

    A ``Rounding`` is returned as it is; a ``RoundingMode`` gets its default bits. Case does not matter, nor "-" for
    "_".

    Raises:
        FormatError: for an unknown name (the message suggests the nearest ones), random bits outside 1..32, and for
            what is not a name.

    Example:
        >>> gs.formats.parse_rounding("truncate"), gs.formats.parse_rounding("sr").bits
        (Rounding(RoundingMode.RTZ), 16)
    """
    if isinstance(text, Rounding):
        return text
    if isinstance(text, RoundingMode):
        return Rounding(text)
    if not isinstance(text, str):
        raise format_error(
            f"rounding {shown(text)} of type {type(text).__name__}", "a name or a Rounding", "Try 'rne'."
        )
    name = text.strip().lower().replace("-", "_")
    if name in _MODE_NAMES:
        return Rounding(_MODE_NAMES[name])
    match = _WITH_BITS.fullmatch(name)
    if match is None:
        raise _unknown("rounding", text, name, _MODE_NAMES, "rne rna rnd rnu rtz ru rd ro sr srN srbN srcN")
    bits = int(match[2] or match[3])
    if not 1 <= bits <= 32:
        raise format_error(
            f"rounding {shown(text)} with {bits} random bits", "1 to 32", "Use 'sr' for the default, 16."
        )
    return Rounding(_MODE_NAMES[match[1]], bits)


def parse_overflow(text: object) -> Overflow:
    """The overflow policy named by ``text``: ``"infinity"``, ``"sat"``, ``"satprop"``, ``"clamp"`` or an alias.

    An ``Overflow`` is returned as it is.

    Raises:
        FormatError: for an unknown name (the message suggests the nearest ones), and for what is not a name.

    Example:
        >>> gs.formats.parse_overflow("sat")
        Overflow.SATURATE
    """
    if isinstance(text, Overflow):
        return text
    if not isinstance(text, str):
        raise format_error(
            f"overflow {shown(text)} of type {type(text).__name__}", "a name or an Overflow", "Try 'sat'."
        )
    name = text.strip().lower().replace("-", "_")
    if name not in _OVERFLOW_NAMES:
        raise _unknown("overflow policy", text, name, _OVERFLOW_NAMES, "infinity sat satprop clamp")
    return _OVERFLOW_NAMES[name]


def _unknown(
    what: str, text: str, name: str, known: dict[str, RoundingMode] | dict[str, Overflow], short: str
) -> FormatError:
    aliases = f"Other names: {', '.join(sorted({*known} - {*short.split()}))}."
    return unknown(f"unknown {what} {shown(text)}", suggestion(name, known), "Names", short, aliases)
