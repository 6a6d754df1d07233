"""What accumulators made of an inner one have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypeVar

from ..formats import Cast
from .accumulator import Accumulator
from .errors import SpecError, spec_error
from .totals import How, casts_of, levels_of, register_of

__all__ = ["MAX_LEVELS", "Blocks", "Composite", "even_sizes", "needs_register"]

#: Nested combining constructors: their random bits have sites of their own, of which a byte holds this many.
MAX_LEVELS = 7

Self = TypeVar("Self", bound="Composite")


class Composite(Accumulator):
    """An accumulator with an ``inner`` one, whose casts, product rounding and seed it passes on."""

    inner: Accumulator

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inner(self)

    def own_casts(self) -> Iterator[Cast]:
        """Roundings beside those of ``inner``."""
        return iter(())

    def casts(self) -> Iterator[Cast]:
        """Every rounding, those of ``inner`` first."""
        yield from self.inner.casts()
        yield from self.own_casts()

    def grids(self) -> Iterator[int]:
        """Of ``inner`` and of the own roundings."""
        yield from self.inner.grids()
        yield from (one.format.quantum_exponent for step in self.own_casts() for one in step.steps)

    @property
    def add_cast(self) -> Cast:
        """Register of ``inner``, in which its totals are combined too."""
        return self.inner.add_cast

    @property
    def product_cast(self) -> Cast | None:
        """Rounding of each product, which ``inner`` makes."""
        return self.inner.product_cast

    @property
    def fixed_seed(self) -> int | None:
        """Seed of the random bits that ``inner`` fixes, for all roundings."""
        return self.inner.fixed_seed

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """As ``inner``."""
        return self.inner.operand_casts

    def transposed(self: Self) -> Self:
        """With ``inner`` transposed."""
        return dataclasses.replace(self, inner=self.inner.transposed())  # type: ignore[call-arg]

    @property
    def integer_operands(self) -> bool:
        """As ``inner``."""
        return self.inner.integer_operands

    @property
    def exact_sums(self) -> bool:
        """As ``inner``."""
        return self.inner.exact_sums

    @property
    def counts_overflows(self) -> bool:
        """As ``inner``."""
        return self.inner.counts_overflows

    @property
    def is_custom(self) -> bool:
        """As ``inner``."""
        return self.inner.is_custom

    def lost(self, K: int) -> int:
        """As ``inner``."""
        return self.inner.lost(K)

    def with_product(self: Self, product: Cast) -> Self:
        """This accumulator with the product rounding in its innermost step."""
        # Every subclass is a dataclass with a field of this name.
        return dataclasses.replace(self, inner=self.inner.with_product(product))  # type: ignore[call-arg]


class Blocks(Composite):
    """A composite that combines totals of ``inner``: a level of nesting, or several where the totals are the terms of
    another accumulator.
    """

    @property
    def how(self) -> How:
        """How totals are combined: a rounding of the running sum, a word, or an accumulator over them."""
        return self.inner.add_cast

    def own_casts(self) -> Iterator[Cast]:
        """The roundings of totals, where they are others than the register's of ``inner``."""
        if not isinstance(self.how, str):
            yield from casts_of(self.how, self.inner.add_cast)

    @property
    def add_cast(self) -> Cast:
        """The register in which totals are combined."""
        return register_of(self.how, self.inner.add_cast)

    @property
    def levels(self) -> int:
        """One more than ``inner``, and those of an accumulator over the totals."""
        return self.inner.levels + levels_of(self.how)

    @property
    def takes_totals(self) -> bool:
        """As ``inner``."""
        return self.inner.takes_totals

    def sizes(self, K: int) -> list[tuple[int, int]]:
        """How many totals there are of how many terms each, as pairs (count, terms), for K terms."""
        return [(1, K)]

    def lost(self, K: int) -> int:
        """As the totals of K terms lose them."""
        return sum(count * self.inner.lost(size) for count, size in self.sizes(K))


def even_sizes(K: int, size: int) -> list[tuple[int, int]]:
    """K terms in totals of ``size``; the last one may have fewer."""
    return [(K // size, size), (int(K % size > 0), K % size)] if K else []


def check_inner(outer: Composite) -> None:
    """``SpecError`` for an inner accumulator that has no meaning there."""
    inner = outer.inner
    if getattr(inner, "init", "zero") != "zero":
        raise spec_error(
            f"{outer.name} with inner {inner}",
            "init=zero inside other accumulators, since each chunk of the inner one starts from +0",
            "Leave init out and add C afterwards.",
        )
    if inner.needs_scales:
        raise spec_error(
            f"{outer.name} with {inner} inside",
            "scaled(...) outermost: it knows the scales of whole rows and columns",
            f"Write scaled({outer.name}(...), ...), or give scaled(...) alone.",
        )
    if inner.is_lookup:
        raise spec_error(
            f"{outer.name} with {inner} inside",
            "lookup(...) outermost: it says what every product is",
            f"Write lookup(..., {outer.name}(...)).",
        )
    if inner.name == "palette":
        raise spec_error(
            f"{outer.name} with a palette inside",
            "a palette outermost: it chooses one accumulator for each output element",
            f"Write palette({outer.name}(...), ...).",
        )
    if outer.levels > MAX_LEVELS and outer.is_stochastic:
        raise spec_error(
            f"{outer.name}: {outer.levels} nested constructors that combine partial sums with random bits",
            f"at most {MAX_LEVELS} with random bits",
            "Nest fewer, or round to nearest.",
        )


def needs_register(outer: Composite, do: str) -> None:
    """``SpecError`` unless totals of ``inner`` can be added in its own register."""
    if not outer.inner.combines:
        raise _no_register(outer, do)


def _no_register(outer: Composite, do: str) -> SpecError:
    return spec_error(
        f"{outer.name} with inner {outer.inner}, which wraps, or checks for overflow only at the end",
        "inner accumulators in which partial sums can be added: formats, or overflow=saturate, when=every",
        do,
    )
