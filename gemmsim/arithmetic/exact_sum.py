"""Sums without any rounding but the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ..formats import FP32, Cast
from .accumulator import Accumulator, register
from .argument_kinds import CAST, IntKind, argument
from .errors import spec_error

__all__ = ["Binned", "Exact", "ExactProducts"]

Self = TypeVar("Self", bound="ExactProducts")


class ExactProducts(Accumulator):
    """An accumulator whose registers take products as they are: there is nothing between product and register."""

    @property
    def product_cast(self) -> Cast | None:
        """None: products enter exactly."""
        return None

    @property
    def exact_sums(self) -> bool:
        """True."""
        return True

    def with_product(self: Self, product: Cast) -> Self:
        """This accumulator if it rounds products so by itself.

        Raises:
            SpecError: for every other rounding: the products are exact.
        """
        if product == self.product_cast:
            return self
        raise spec_error(
            f"product={product} with {self}",
            f"no product rounding: {self.name} takes exact products",
            "Leave product out, or use an accumulator with mul.",
        )


@register("exact")
@dataclass(frozen=True, repr=False)
class Exact(ExactProducts):
    """``R_out(sum_k a_k * b_k)``: the exact sum, rounded once. The order has no influence.

    Args:
        out: the one rounding.

    A NaN product, and infinities of both signs, give NaN. Infinities of one sign give that infinity, as ``out`` casts
    it. An exact sum of zero is +0. Overflow follows ``out`` and concerns the final sum only. K = 0 gives +0.

    Source: Kulisch, "Computer Arithmetic and Validity", 2008 (the long accumulator).

    Example:
        >>> gs.qmatmul(torch.tensor([[1e30, 1.0, -1e30]]), torch.ones(3, 1), gs.arithmetic.Exact("fp16"))
        tensor([[1.]])
    """

    out: Cast = field(default=Cast(FP32), metadata=argument(CAST))

    def casts(self) -> Iterator[Cast]:
        """``out``."""
        yield self.out

    @property
    def add_cast(self) -> Cast:
        """``out``."""
        return self.out

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, sum and the rounding in words."""
        return [
            ("product", "exact"),
            ("sum", "exact (Kulisch's long accumulator); the order has no influence"),
            ("result", f"one rounding to {self.out.words()}"),
        ]


@register("binned")
@dataclass(frozen=True, repr=False)
class Binned(ExactProducts):
    """One small exact accumulator per product exponent, which is added to the sum when it overflows.

    A finite product p other than zero belongs to the accumulator of e = floor(log2 |p|). For k ascending, p is added to
    it exactly. If the result would leave [-2^(e+carry), 2^(e+carry)), the content b before p is added to the sum
    instead, ``S = R_out(S + b)``, and the accumulator restarts with p. At the end the accumulators that are not zero
    are added to S in the same way, e ascending. S starts at +0.

    Args:
        out: rounding of each addition to S.
        carry: bits of an accumulator above the leading bit of its products, 1 to 53.

    Zero products change nothing. NaN and infinite products are added to S at once. Only underflow of S gives -0.
    Overflow follows ``out``.

    Source: Natesh, Kung, Kong, "MGS: Markov greedy sums for accurate low-bitwidth floating-point accumulation",
    arXiv:2504.09072, 2025. The unit there rounds each product to E4M3, sums its 4-bit significands in 16 registers of 5
    bits (a carry of 1 here) and adds overflowing ones to a wide fixed-point accumulator. Here products stay exact,
    carry and the sum's format are free, and the moment of each addition to S is the one above.

    Example:
        >>> a, b = torch.ones(1, 4096), torch.ones(4096, 1)
        >>> gs.qmatmul(a, b, "bf16").item(), gs.qmatmul(a, b, gs.arithmetic.Binned("bf16")).item()
        (256.0, 4096.0)
    """

    out: Cast = field(default=Cast(FP32), metadata=argument(CAST))
    carry: int = field(default=4, kw_only=True, metadata=argument(IntKind(1, 53)))

    def casts(self) -> Iterator[Cast]:
        """``out``."""
        yield self.out

    @property
    def add_cast(self) -> Cast:
        """``out``."""
        return self.out

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, registers and the rounding in words."""
        return [
            ("product", "exact"),
            ("bins", f"one for each exponent e of a product, exact, of magnitude below 2^(e+{self.carry})"),
            (
                "each step",
                "the product is added to its bin; a bin that would overflow is spilled first and restarts from 0",
            ),
            ("spill", f"S = R(S + bin), to {self.out.words()}; at the end all bins are spilled, e ascending"),
            ("order", "k ascending, S from +0"),
        ]
