"""mptorch's classes of number formats. Each is a value; ``format`` and ``overflow`` say what it is in gemmsim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gemmsim as gs
from gemmsim.formats import (
    Binary8Format,
    Binary8Policy,
    BlockFloatFormat,
    FixedFormat,
    FloatFormat,
    Overflow,
    OwnExponentFormat,
    PowerTie,
    Rounding,
    RoundingMode,
    Sharing,
    SupernormalFormat,
    binary_format,
    parse_rounding,
)

__all__ = [
    "Binary8",
    "BinaryK",
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatType",
    "FloatingPoint",
    "FormatError",
    "Number",
    "SuperNormalFloat",
]

_T = TypeVar("_T")

#: Where rounding to nearest may send ties of fixed-point numbers.
FIXED_TIES = ("even", "down")
#: mptorch's policies of ``Binary8``.
BINARY8_POLICIES = ("saturate_infty", "saturate_maxfloat", "saturate_maxfloat2")


class FormatError(gs.FormatError, AssertionError):
    """Arguments that describe no format. It is a ``ValueError`` as well as the ``AssertionError`` that mptorch raises.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> mptorch.FixedPoint(0, 4)
        Traceback (most recent call last):
            ...
        gemmsim.compat.mptorch.number.FormatError: FixedFormat: bits=0; allowed: an integer from 1 to 53...
    """


def check_choice(owner: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """``FormatError`` unless ``value`` is one of these names."""
    if value not in allowed:
        raise FormatError(f"{owner}: {name}={value!r}; allowed: {', '.join(allowed)}.\n  Choose one of them.")


def checked(make: Callable[[], _T]) -> _T:
    """What ``make`` returns, gemmsim's ``FormatError`` as this module's."""
    try:
        return make()
    except FormatError:
        raise
    except gs.FormatError as error:
        raise FormatError(str(error)) from error


def supernormal_format(
    exp: int, man: int, lower: int, upper: int, saturate: bool, tie: PowerTie = PowerTie.AWAY
) -> SupernormalFormat:
    """The format of these fields, within float32's range where its powers of two would leave float64's."""
    try:
        return SupernormalFormat(exp, man, lower, upper, saturate, tie)
    except gs.FormatError:
        return SupernormalFormat(exp, man, lower, upper, saturate, tie, within_float32=True)


class Number:
    """The base class of all formats.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> isinstance(mptorch.FixedPoint(8, 4), mptorch.Number)
        True
    """

    #: The value set, and what overflow gives; set by the constructors.
    format: Any
    overflow: Overflow | None = None

    def __repr__(self) -> str:
        raise NotImplementedError("Number has no text; its subclasses have")

    def __str__(self) -> str:
        return repr(self)

    def target(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast | BlockFloatFormat:
        """The target for ``gemmsim.quantize``: this format with ``rounding``.

        ``rbits``: random bits of a stochastic rounding, 0 for 32, which are all bits below the significand.
        """
        return gs.Cast(self.format, read_rounding(rounding, rbits), self.overflow or Overflow.INFINITY)

    def step(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast:
        """The target of the steps of products, sums, softmax and norms, which are single numbers: ``target``."""
        found = self.target(rounding, rbits)
        assert isinstance(found, gs.Cast)
        return found

    def _put(self, make: Callable[[], Any], overflow: Overflow | None = None) -> None:
        object.__setattr__(self, "format", checked(make))
        object.__setattr__(self, "overflow", overflow)


def read_rounding(rounding: str | Rounding, rbits: int = 0, zero: Rounding | None = None) -> Rounding:
    """A rounding by mptorch's names or gemmsim's, with ``rbits`` random bits where it is stochastic.

    ``zero``: what ``rbits=0`` means then; None for 32 bits. ``FormatError`` for anything else.
    """
    found = checked(lambda: parse_rounding(rounding))
    if not found.is_stochastic:
        return found
    if isinstance(rbits, bool) or not isinstance(rbits, int) or not 0 <= rbits <= 32:
        raise FormatError(f"{rbits!r} random bits; allowed: 0 to 32.\n  Give an int, 0 for the default.")
    if rbits == 0 and zero is not None:
        return zero
    # A rounding given as a value, or with its bits in its name, has said how many.
    if rbits == 0 and (isinstance(rounding, Rounding) or any(c.isdigit() for c in str(rounding))):
        return found
    return Rounding(found.mode, rbits or 32)


class FloatType(Number):
    """The base class of the floating-point formats.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> [isinstance(number, mptorch.FloatType) for number in (mptorch.Binary8(3), mptorch.FixedPoint(8, 4))]
        [True, False]
    """


@dataclass(frozen=True, repr=False)
class FixedPoint(Number):
    """Fixed point of ``wl`` bits, ``fl`` of them after the point; ``clamp=False`` is the grid without bounds.

    ``symmetric`` drops the lowest code. ``fl`` may be negative or exceed ``wl``. ``tie`` says where rounding "nearest"
    sends ties: "even" as mptorch's code does, or "down", toward minus infinity, as its documentation says. Other
    roundings have no ties.

    Raises:
        FormatError: for fields that describe no format.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> gs.quantize(torch.tensor([0.3, 100.0]), mptorch.FixedPoint(8, 4).target())
        tensor([0.3125, 7.9375])
    """

    wl: int
    fl: int
    clamp: bool = True
    symmetric: bool = False
    tie: str = field(default="even", kw_only=True)

    def __post_init__(self) -> None:
        check_choice("FixedPoint", "tie", self.tie, FIXED_TIES)
        symmetric = bool(self.symmetric and self.clamp)
        self._put(lambda: FixedFormat(self.wl, self.fl, symmetric=symmetric, clamp=bool(self.clamp)))

    def target(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast:
        """The target for ``gemmsim.quantize``; "nearest" as ``tie`` says."""
        found = read_rounding(rounding, rbits)
        down = self.tie == "down" and found == Rounding.RNE
        return gs.Cast(self.format, Rounding.RND if down else found)

    def __repr__(self) -> str:
        return f"FixedPoint (wl={self.wl}, fl={self.fl})"


@dataclass(frozen=True, repr=False)
class FloatingPoint(FloatType):
    """IEEE-like float with ``exp`` exponent bits and ``man`` trailing significand bits.

    The highest exponent code holds infinity and NaN. With ``saturate`` a finite overflow gives the largest value, and
    infinities stay. ``exp=1`` with ``subnormals`` has the values k * 2**(1-man) for k below 2**man; without, the
    numbers of ``man`` + 1 bits from 1/2 to below 2, as in mptorch.

    Raises:
        FormatError: for fields that describe no format.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> half = mptorch.FloatingPoint(exp=5, man=10, subnormals=True)
        >>> half.normal_max, half.subnormal_min == 2**-24, half.is_fp16
        (65504.0, True, True)
    """

    exp: int
    man: int
    subnormals: bool = False
    saturate: bool = True

    def __post_init__(self) -> None:
        if not (_is_int(self.exp, 1, 8) and _is_int(self.man, 0, 23)):
            asked = f"FloatingPoint: exp={self.exp!r}, man={self.man!r}"
            raise FormatError(f"{asked}; allowed: exp 1 to 8, man 0 to 23.\n  Try (5, 10).")
        self._put(self._format, Overflow.SATURATE if self.saturate else Overflow.INFINITY)

    def _format(self) -> FloatFormat:
        if self.exp == 1 and not self.subnormals:
            return FloatFormat(self.man + 1, -1, 0, subnormals=False)
        plain = gs.formats.parse(f"ieee_e{self.exp}m{self.man}")
        assert isinstance(plain, FloatFormat)
        return plain if self.subnormals else FloatFormat(plain.p, plain.emin, plain.emax, subnormals=False)

    def __repr__(self) -> str:
        return f"FloatingPoint (exponent={self.exp}, mantissa={self.man})"

    @property
    def is_fp32(self) -> bool:
        """Whether the widths are those of binary32."""
        return (self.exp, self.man) == (8, 23)

    @property
    def is_fp16(self) -> bool:
        """Whether the widths are those of binary16."""
        return (self.exp, self.man) == (5, 10)

    @property
    def is_bfloat16(self) -> bool:
        """Whether the widths are those of bfloat16."""
        return (self.exp, self.man) == (8, 7)

    @property
    def normal_max(self) -> float:
        """Largest finite value."""
        return float(self.format.max)

    @property
    def normal_min(self) -> float:
        """Smallest normal value."""
        return 2.0**self.format.emin

    @property
    def subnormal_min(self) -> float | None:
        """Smallest subnormal, None without."""
        return 2.0 ** (self.format.emin - self.man) if self.subnormals else None

    @property
    def subnormal_max(self) -> float | None:
        """Largest subnormal, None without."""
        return 2.0**self.format.emin * (1 - 2.0**-self.man) if self.subnormals else None


@dataclass(frozen=True, repr=False)
class SuperNormalFloat(FloatType):
    """Float whose outermost exponent codes hold powers of two: ``binades`` of them, one number or (lower, upper).

    Where the powers of two would leave float64's range, they end where float32's do: at 2**-149 and 2**127.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> number = mptorch.SuperNormalFloat(4, 3, (1, 2))
        >>> number.normal_max, number.supernormal_min, number.max_finite
        (32.0, 64.0, 1048576.0)
    """

    exp: int
    man: int
    binades: Any
    saturate: bool = False
    binades_l: int = field(init=False, repr=False, compare=False)
    binades_u: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pair = tuple(self.binades) if isinstance(self.binades, (tuple, list)) else (self.binades,)
        if len(pair) not in (1, 2):
            raise FormatError(f"SuperNormalFloat: binades={self.binades!r}; allowed: one or two.\n  Try (1, 1).")
        lower, upper = pair[0], pair[-1]
        self._put(lambda: supernormal_format(self.exp, self.man, lower, upper, bool(self.saturate)))
        for name, value in (("binades", (lower, upper)), ("binades_l", lower), ("binades_u", upper)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"SuperNormalFloat (exponent={self.exp}, mantissa={self.man}, binades={self.binades})"

    @property
    def max_finite(self) -> float:
        """Largest finite value, the target of scaling."""
        return float(self.format.max)

    @property
    def normal_max(self) -> float:
        """2**emax, where emax is the exponent of the highest binade with a significand (as mptorch has it)."""
        return 2.0**self.format.last_binade

    @property
    def normal_min(self) -> float:
        """Smallest value with a significand."""
        return 2.0**self.format.first_binade

    @property
    def subnormal_min(self) -> float:
        """Smallest power of two."""
        return 2.0**self.format.lowest_exponent

    @property
    def subnormal_max(self) -> float:
        """Largest power of two below ``normal_min``."""
        return self.normal_min / 2

    @property
    def supernormal_min(self) -> float:
        """Smallest power of two above the binades with a significand."""
        return 2 * self.normal_max

    @property
    def supernormal_max(self) -> float:
        """``max_finite``."""
        return self.max_finite


@dataclass(frozen=True, repr=False)
class BlockFloatingPoint(Number):
    """Integers of ``wl`` bits with one exponent for the tensor (``dim=-1``) or for each index of ``dim``.

    As the format of a step, a product or a sum, each number has its own exponent, and ``dim`` does not matter. This
    format is gemmsim's ``bfp(wl,1)``.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> rows = mptorch.BlockFloatingPoint(4, dim=0).target()
        >>> gs.quantize(torch.tensor([[1.0, 0.3], [8.0, 0.3]]), rows)
        tensor([[1.0000, 0.2500],
                [8.0000, 0.0000]])
    """

    wl: int
    dim: int = -1

    def __post_init__(self) -> None:
        if not _is_int(self.dim, -1, 63):
            raise FormatError(f"BlockFloatingPoint: dim={self.dim!r}; allowed: -1 or a dimension.\n  Try dim=-1.")
        sharing = {"sharing": Sharing.TENSOR} if self.dim == -1 else {"sharing": Sharing.INDEX, "dim": self.dim}
        self._put(lambda: BlockFloatFormat(self.wl, **sharing))

    def target(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> BlockFloatFormat:
        """The target for ``gemmsim.quantize``."""
        f: BlockFloatFormat = self.format
        return BlockFloatFormat(f.bits, f.block_size, f.dim, f.sharing, rounding=read_rounding(rounding, rbits))

    def step(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast:
        """The target of steps: blocks of one number."""
        return gs.Cast(OwnExponentFormat(self.wl), read_rounding(rounding, rbits))

    def __repr__(self) -> str:
        return f"BlockFloatingPoint (wl={self.wl}, dim={self.dim})"


@dataclass(frozen=True, repr=False)
class Binary8(FloatType):
    """Eight-bit float of precision ``P`` by the rules before P3109 v4.0. ``P=8`` is allowed unsigned.

    ``saturate_infty`` says what the policy of that name does with finite overflow. "coded", as in mptorch's code, gives
    infinity. "documented", as in its documentation, gives the largest value, and only infinities stay infinite.

    Raises:
        FormatError: for fields that describe no format, and for "documented" with another policy.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> gs.quantize(torch.tensor([0.3, 1e9]), mptorch.Binary8(3).target())
        tensor([3.1250e-01, 5.7344e+04])
    """

    P: int
    signed: bool = True
    subnormals: bool = True
    overflow_policy: str = "saturate_maxfloat2"
    saturate_infty: str = field(default="coded", kw_only=True)
    man: int = field(init=False, repr=False, compare=False)
    exp: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._put(lambda: Binary8Format(self.P, bool(self.signed), bool(self.subnormals), self._policy()))
        object.__setattr__(self, "man", self.P - 1)
        object.__setattr__(self, "exp", self.format.exponent_bits)

    def _policy(self) -> Binary8Policy:
        policy = str(self.overflow_policy)
        check_choice("Binary8", "overflow_policy", policy, BINARY8_POLICIES)
        check_choice("Binary8", "saturate_infty", self.saturate_infty, ("coded", "documented"))
        if self.saturate_infty == "coded":
            return Binary8Policy(policy)
        if policy != "saturate_infty":
            asked = f"Binary8: saturate_infty='documented' with overflow_policy={policy!r}"
            raise FormatError(f"{asked}; allowed: overflow_policy='saturate_infty'.\n  Leave saturate_infty out.")
        return Binary8Policy.SATURATE_PROPAGATE

    def target(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast:
        """The target for ``gemmsim.quantize``. Stochastic with ``rbits=0`` truncates, as in mptorch."""
        zero = Rounding(RoundingMode.RTZ)
        return gs.Cast(self.format, read_rounding(rounding, rbits, zero))

    def __repr__(self) -> str:
        return (
            f"Binary8 (P={self.P}, exp={self.exp}, man={self.man}, signed={self.signed}, "
            f"subnormals={self.subnormals}, overflow_policy={self.overflow_policy})"
        )

    @property
    def normal_max(self) -> float:
        """Largest finite value."""
        return float(self.format.max)

    @property
    def normal_min(self) -> float:
        """Smallest normal value."""
        return float(self.format.smallest_normal)

    @property
    def subnormal_min(self) -> float | None:
        """Smallest subnormal, None without."""
        has_some = self.subnormals and self.P > 1
        return float(self.format.smallest_subnormal) if has_some else None

    @property
    def subnormal_max(self) -> float | None:
        """Largest subnormal, None without."""
        has_some = self.subnormals and self.P > 1
        return self.normal_min - float(self.format.smallest_subnormal) if has_some else None


@dataclass(frozen=True, repr=False)
class BinaryK(FloatType):
    """Format of IEEE P3109 v4.0 with ``K`` bits and precision ``P``. mptorch 0.3.0 does not have it.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> gs.quantize(torch.tensor([0.3, 1e9]), mptorch.BinaryK(8, 4).target())
        tensor([0.3125,    inf])
    """

    K: int
    P: int
    signed: bool = True
    domain: str = "extended"
    bias: int | None = None
    subnormals: bool = True

    def __post_init__(self) -> None:
        if self.domain not in ("extended", "finite"):
            raise FormatError(f"BinaryK: domain={self.domain!r}; allowed: 'extended', 'finite'.\n  Choose one.")
        self._put(self._format)

    def _format(self) -> FloatFormat:
        extended = self.domain == "extended"
        full = binary_format(self.K, self.P, signed=bool(self.signed), extended=extended, bias=self.bias)
        if self.subnormals:
            return full
        return FloatFormat(full.p, full.emin, full.emax, full.specials, full.signed, subnormals=False)

    def target(self, rounding: str | Rounding = "nearest", rbits: int = 0) -> gs.Cast:
        """The target for ``gemmsim.quantize``. Stochastic with ``rbits=0`` truncates."""
        return gs.Cast(self.format, read_rounding(rounding, rbits, Rounding(RoundingMode.RTZ)))

    def __repr__(self) -> str:
        return f"BinaryK (K={self.K}, P={self.P}, signed={self.signed}, domain={self.domain})"

    @property
    def normal_max(self) -> float:
        """Largest finite value."""
        return float(self.format.max)


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
