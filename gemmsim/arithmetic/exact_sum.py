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

    NaN products, and infinities of both signs, give NaN; infinities of one sign that infinity, as ``out`` casts it.
    An exact sum of zero is +0. Overflow follows ``out``, for the final sum alone. K = 0 gives +0.

    Source: Kulisch, "Computer Arithmetic and Validity", 2008 (the long accumulator).
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
    """One small exact register for each product exponent, spilled when it overflows.

    A finite product p other than zero belongs to the register of e = floor(log2 |p|). For k ascending: if the
    register's sum with p would leave [-2^(e+carry), 2^(e+carry)), its content b is spilled, ``S = R_out(S + b)``, and
    it restarts with p; else p is added exactly. At the end registers that are not zero are added in the same way, e
    ascending. S starts at +0.

    Args:
        out: rounding of each addition to S.
        carry: bits of a register above the leading bit of its products, 1 to 53.

    Zero products change nothing. NaN and infinite products are added to S at once. -0 comes only from underflow of S;
    overflow follows ``out``.

    Source: Natesh, Kung, Kong, "MGS: Markov greedy sums for accurate low-bitwidth floating-point accumulation",
    arXiv:2504.09072, 2025. The unit there rounds each product to E4M3, sums its 4-bit significands in 16 registers of 5
    bits (a carry of 1 here) and spills into a wide fixed-point accumulator. Here products stay exact, carry and the
    sum's format are free, and the moment of spilling is the one above.
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
            ("registers", f"one for each exponent e of a product, exact, of magnitude below 2^(e+{self.carry})"),
            ("each step", "the register takes the product; before it would overflow it is spilled and restarts"),
            ("spill", f"S = R(S + register), to {self.out.words()}; at the end all registers, e ascending"),
            ("order", "k ascending, S from +0"),
        ]
