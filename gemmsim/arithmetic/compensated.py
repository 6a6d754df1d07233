"""Sums that carry their rounding errors along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from ..formats import Cast, FixedFormat
from .accumulator import Accumulator, register
from .argument_kinds import CAST, argument, optional
from .errors import spec_error

__all__ = ["Compensated", "FastTwoSum", "Kahan", "Neumaier", "TwoSum"]

Self = TypeVar("Self", bound="Compensated")


@dataclass(frozen=True, repr=False)
class Compensated(Accumulator):
    """A sum S and a correction C, both from +0; every operation is rounded by ``fmt``.

    q is the exact product, or ``R_mul`` of it. The base class of ``Kahan``, ``Neumaier``, ``TwoSum`` and
    ``FastTwoSum``.

    Args:
        fmt: rounding of every operation; a signed float format.
        mul: rounding of each product; None: the product enters the first operation of the step exactly.

    NaN, infinities, signed zeros and overflow are those of the single operations. Once S is infinite, S - S is NaN, and
    the correction carries it into the result.

    Raises:
        SpecError: for a fixed-point, unsigned or scale format: a correction is a signed error far below the sum.

    Example:
        >>> isinstance(gs.acc.kahan("bf16"), gs.arithmetic.Compensated)
        True
    """

    fmt: Cast = field(metadata=argument(CAST))
    mul: Cast | None = field(default=None, metadata=argument(optional(CAST), keyword=True))

    _step: ClassVar[str] = ""
    _result: ClassVar[str] = "R(S + C)"

    def __post_init__(self) -> None:
        super().__post_init__()
        fmt = self.fmt.format
        if isinstance(fmt, FixedFormat) or not (fmt.signed and fmt.has_zero):
            raise spec_error(
                f"{self.name} in {fmt}",
                "signed float formats with a zero: sums of integers and fixed point have no rounding error to "
                "compensate, and the correction needs a sign",
                "Use int(...) or fixed(...) for integer accumulators, or a float format.",
            )

    def casts(self) -> Iterator[Cast]:
        """``fmt``, and ``mul`` if there is one."""
        yield self.fmt
        if self.mul is not None:
            yield self.mul

    @property
    def add_cast(self) -> Cast:
        """``fmt``."""
        return self.fmt

    @property
    def takes_totals(self) -> bool:
        """Whether products are exact and no rounding is stochastic."""
        return self.mul is None and not self.fmt.is_stochastic

    @property
    def product_cast(self) -> Cast | None:
        """``mul``."""
        return self.mul

    def with_product(self: Self, product: Cast) -> Self:
        """This accumulator with ``mul=product``.

        Raises:
            SpecError: if it already has another one.
        """
        if self.mul is not None and self.mul != product:
            raise spec_error(
                f"product={product} with an accumulator that has mul={self.mul}",
                "one rounding of the product",
                "Leave product out, or give the accumulator without mul.",
            )
        return replace(self, mul=product)

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, step, result and order in words."""
        product = "q = a*b, exact" if self.mul is None else f"q = R(a*b), rounded to {self.mul.words()}"
        return [
            ("product", product),
            ("each step", self._step),
            ("result", self._result),
            ("R", f"rounds to {self.fmt.words()}"),
            ("order", "sequential, k ascending, S and C from +0"),
        ]


@register("kahan")
@dataclass(frozen=True, repr=False)
class Kahan(Compensated):
    """``y=R(q-C); t=R(S+y); C=R(R(t-S)-y); S=t``; the result is S. q - C is one rounding of the exact difference.

    Arguments, NaN, infinities, -0, overflow and errors as ``Compensated``.
    Source: Kahan, "Further remarks on reducing truncation errors", CACM 8 (1965).

    Example:
        >>> a, b = torch.ones(1, 4096), torch.ones(4096, 1)
        >>> gs.qmatmul(a, b, "bf16").item(), gs.qmatmul(a, b, gs.arithmetic.Kahan("bf16")).item()
        (256.0, 4096.0)
    """

    _step = "y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t"
    _result = "S"


@register("neumaier")
@dataclass(frozen=True, repr=False)
class Neumaier(Compensated):
    """``x=R(q); t=R(S+x); C=R(C+R(R(hi-t)+lo)); S=t``; the result is R(S+C).

    hi is the larger of S and x in magnitude (S on a tie), and lo the other one.
    Arguments, NaN, infinities, -0, overflow and errors as ``Compensated``.
    Source: Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54 (1974).

    Example:
        >>> a, b = torch.tensor([[1.0, 512.0, 1.0, -512.0]]), torch.ones(4, 1)  # exact sum: 2
        >>> gs.qmatmul(a, b, "kahan(bf16)").item(), gs.qmatmul(a, b, gs.arithmetic.Neumaier("bf16")).item()
        (0.0, 2.0)
    """

    _step = "x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t; hi, lo: larger and smaller of |S|, |x|"


@register("two_sum")
@dataclass(frozen=True, repr=False)
class TwoSum(Compensated):
    """``x=R(q); t=R(S+x); z=R(t-S); e=R(R(S-R(t-z))+R(x-z)); C=R(C+e); S=t``; the result is R(S+C).

    Arguments, NaN, infinities, -0, overflow and errors as ``Compensated``.

    Source: Ogita, Rump, Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26 (2005), Sum2.

    Example:
        >>> a, b = torch.tensor([[1.0, 512.0, 1.0, -512.0]]), torch.ones(4, 1)
        >>> gs.qmatmul(a, b, gs.arithmetic.TwoSum("bf16")).item()
        2.0
    """

    _step = "x = R(q); t = R(S + x); z = R(t - S); e = R(R(S - R(t - z)) + R(x - z)); C = R(C + e); S = t"


@register("fast_two_sum")
@dataclass(frozen=True, repr=False)
class FastTwoSum(Compensated):
    """``x=R(q); t=R(S+x); e=R(x-R(t-S)); C=R(C+e); S=t``; the result is R(S+C).

    e is the error of t where |S| >= |x|; the operations are the same elsewhere, and e may then differ from the error.
    Arguments, NaN, infinities, -0, overflow and errors as ``Compensated``.
    Source: Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18 (1971).

    Example:
        >>> a, b = torch.tensor([[1.0, 512.0, 1.0, -512.0]]), torch.ones(4, 1)
        >>> gs.qmatmul(a, b, gs.arithmetic.FastTwoSum("bf16")).item()  # the first 1 is lost when |x| > |S|
        1.0
    """

    _step = "x = R(q); t = R(S + x); e = R(x - R(t - S)); C = R(C + e); S = t"
