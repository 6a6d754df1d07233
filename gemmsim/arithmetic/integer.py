"""Two's complement registers: integers and fixed point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..formats import Cast, FixedFormat, FormatError, Rounding
from .accumulator import register
from .argument_kinds import BOOL, ROUNDING, ChoiceKind, IntKind, argument
from .errors import SpecFormatError
from .exact_sum import ExactProducts

__all__ = ["Fixed", "Integer"]

#: Widths whose every value float64 holds.
_WIDTH = IntKind(1, 53)
_OVERFLOW = ChoiceKind("wrap", "saturate", sat="saturate")
_OVERFLOW_WORDS = {"wrap": "wraps modulo 2^{0}", "saturate": "saturates at the ends of {0} bits"}


@register("int")
@dataclass(frozen=True, repr=False)
class Integer(ExactProducts):
    """Integer products, each shifted right, added in a two's complement accumulator of ``P`` bits.

    ``q = floor(a*b / 2^shift)``; ``s = F(s + q)`` for k ascending, from 0. F brings a sum out of range back into range.
    The result is s as an integer (not shifted back).

    Args:
        P: width of the accumulator, sign included.
        overflow: F: "wrap", the sum modulo 2^P (the order has no influence); "saturate", the nearer end.
        when: "every": F after each addition; "end": F once, of the exact sum.
        signed: the range is -2^(P-1) to 2^(P-1)-1 if true, and 0 to 2^P-1 otherwise.
        shift: bits by which each product is shifted right, toward minus infinity.

    Operands must be integers, in any dtype. NaN, infinities and fractions raise ``ValueError`` when the product is
    computed. There is no -0.
    Source: docs/reference/accumulators.md#exact-registers.

    Example:
        >>> a, b = torch.full((1, 3), 100.0), torch.ones(3, 1)
        >>> gs.qmatmul(a, b, gs.arithmetic.Integer(8)), gs.qmatmul(a, b, gs.arithmetic.Integer(8, "saturate"))
        (tensor([[44.]]), tensor([[127.]]))
    """

    P: int = field(metadata=argument(_WIDTH))
    overflow: str = field(default="wrap", metadata=argument(_OVERFLOW, keyword=True))
    when: str = field(default="every", kw_only=True, metadata=argument(ChoiceKind("every", "end")))
    signed: bool = field(default=True, kw_only=True, metadata=argument(BOOL))
    shift: int = field(default=0, kw_only=True, metadata=argument(IntKind(0, 63)))

    def casts(self) -> Iterator[Cast]:
        """None: nothing rounds."""
        return iter(())

    def grids(self) -> Iterator[int]:
        """Integers."""
        yield 0

    @property
    def add_cast(self) -> Cast:
        """The accumulator as a saturating format; one that wraps has no cast, see ``combines``."""
        return Cast(FixedFormat(self.P, 0, self.signed))

    @property
    def rounding_alone(self) -> Cast | None:
        """``add_cast``, if the accumulator saturates at each addition."""
        return self.add_cast if self.combines and not self.shift else None

    @property
    def integer_operands(self) -> bool:
        """True."""
        return True

    @property
    def counts_overflows(self) -> bool:
        """True."""
        return True

    @property
    def combines(self) -> bool:
        """Only if each sum saturates."""
        return self.overflow == "saturate" and self.when == "every"

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, register, overflow and order in words."""
        shifted = f"q = floor(a*b / 2^{self.shift})" if self.shift else "q = a*b"
        step = "s = s + q" + (", brought into range at each step" if self.when == "every" else ", exactly")
        once = "" if self.when == "every" else ", once, at the end"
        return [
            ("product", f"{shifted}, of integers"),
            ("each step", step),
            ("accumulator", f"{self.P} bits, " + ("two's complement" if self.signed else "unsigned")),
            ("order", "sequential, k ascending from 0"),
            ("overflow", _OVERFLOW_WORDS[self.overflow].format(self.P) + once),
        ]


@register("fixed")
@dataclass(frozen=True, repr=False)
class Fixed(ExactProducts):
    """Products rounded to multiples of ``2^-frac``, added in a two's complement accumulator of ``P`` bits.

    ``q = R(a*b)``, a multiple of 2^-frac without bounds; ``s = F(s + q)`` for k ascending, from 0. F brings a sum out
    of range back into range.

    Args:
        P: width of the accumulator, sign included.
        frac: fraction bits; may be negative.
        rounding: R, of each exact product.
        overflow: F: "saturate", the nearer end; "wrap", the sum modulo 2^(P-frac) (the order has no influence).

    A NaN product makes the result NaN. An infinite one gives the end of the range of its sign, and NaN if the
    accumulator wraps. There is no -0.
    Source: docs/reference/accumulators.md#exact-registers.

    Example:
        >>> acc = gs.arithmetic.Fixed(8, frac=4)  # multiples of 1/16 up to 7.9375
        >>> gs.qmatmul(torch.tensor([[0.3, 0.3], [0.3, 100.0]]), torch.ones(2, 1), acc)
        tensor([[0.5000],
                [7.9375]])
    """

    P: int = field(metadata=argument(_WIDTH))
    frac: int = field(metadata=argument(IntKind(-1074, 1074)))
    # Always printed by name: fixed(16,8) alone is the format of that name.
    rounding: Rounding = field(default=Rounding.RTZ, kw_only=True, metadata=argument(ROUNDING))
    overflow: str = field(default="saturate", kw_only=True, metadata=argument(_OVERFLOW))

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            FixedFormat(self.P, self.frac)
        except FormatError as error:
            raise SpecFormatError(f"fixed: {error}") from error

    def casts(self) -> Iterator[Cast]:
        """The rounding of products to the grid."""
        yield self.product_cast

    @property
    def product_cast(self) -> Cast:
        """The rounding of products to the grid, which has no bounds."""
        return Cast(FixedFormat(self.P, self.frac, clamp=False), self.rounding)

    @property
    def add_cast(self) -> Cast:
        """The accumulator as a saturating format; one that wraps has no cast, see ``combines``."""
        return Cast(FixedFormat(self.P, self.frac), self.rounding)

    @property
    def counts_overflows(self) -> bool:
        """True."""
        return True

    @property
    def combines(self) -> bool:
        """Only if each sum saturates."""
        return self.overflow == "saturate"

    def text(self, *, nested: bool = False) -> str:
        """The constructor with ``rounding`` always in it, which no format has."""
        tail = "" if self.overflow == "saturate" else f", overflow={self.overflow}"
        return f"fixed({self.P}, {self.frac}, rounding={self.rounding}{tail})"

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, register, overflow and order in words."""
        return [
            ("product", f"q = R(a*b), to multiples of 2^{-self.frac}, {self.rounding.describe()}"),
            ("each step", "s = s + q, brought into range at each step"),
            ("accumulator", f"{self.P} bits, two's complement, {self.frac} of them fraction bits"),
            ("order", "sequential, k ascending from 0"),
            ("overflow", f"accumulator: {_OVERFLOW_WORDS[self.overflow].format(self.P)}"),
        ]
