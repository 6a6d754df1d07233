"""One register, terms in ascending k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..formats import Cast
from .accumulator import Accumulator, register
from .argument_kinds import CAST, ChoiceKind, IntKind, argument, optional
from .errors import spec_error

__all__ = ["Sequential"]


@register("sequential")
@dataclass(frozen=True, repr=False)
class Sequential(Accumulator):
    """``s = R_add(s + q_k)`` for k ascending; ``q_k = a_k * b_k`` exactly, or ``R_mul(a_k * b_k)``.

    Args:
        add: rounding of each sum.
        mul: rounding of each product; None is the fused multiply-add, one rounding a step.
        seed: fixes the random bits of stochastic roundings; None takes a new seed at each call.
        init: the addend C: "zero" for none (s starts at +0), "c_first" (s starts as C), "c_last" (one more step).

    NaN, infinities and signed zeros follow IEEE 754, except that a sum of exactly zero is -0 only if both addends are
    -0, in every rounding mode. Overflow follows each cast's policy. Strings and formats are accepted as casts.
    Source: docs/reference/accumulators.md.

    Example:
        >>> a, b = torch.tensor([[-1.015625, 1.0078125]]), torch.tensor([[1.0], [1.0078125]])
        >>> gs.qmatmul(a, b, gs.arithmetic.Sequential("bf16"))  # exact: 2**-14
        tensor([[6.1035e-05]])
        >>> gs.qmatmul(a, b, gs.arithmetic.Sequential("bf16", mul="bf16"))  # the product is rounded first
        tensor([[0.]])
    """

    add: Cast = field(metadata=argument(CAST))
    mul: Cast | None = field(default=None, metadata=argument(optional(CAST), keyword=True))
    seed: int | None = field(default=None, kw_only=True, metadata=argument(optional(IntKind(0, 2**64 - 1))))
    init: str = field(default="zero", kw_only=True, metadata=argument(ChoiceKind("zero", "c_first", "c_last")))

    def casts(self) -> Iterator[Cast]:
        yield self.add
        if self.mul is not None:
            yield self.mul

    @property
    def add_cast(self) -> Cast:
        """Rounding of each sum."""
        return self.add

    @property
    def rounding_alone(self) -> Cast | None:
        """``add``, where products are exact, no seed is fixed and there is no addend."""
        return self.add if (self.mul, self.seed, self.init) == (None, None, "zero") else None

    @property
    def product_cast(self) -> Cast | None:
        """Rounding of each product; None for the fused multiply-add."""
        return self.mul

    @property
    def fixed_seed(self) -> int | None:
        """``seed``."""
        return self.seed

    def with_product(self, product: Cast) -> Sequential:
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

    def text(self, *, nested: bool = False) -> str:
        """A bare format where that says all, ``mul=..., add=...`` at the top level, else the constructor."""
        if self.seed is None and self.init == "zero":
            if self.mul is None:
                return str(self.add)
            if not nested:
                return f"mul={self.mul}, add={self.add}"
        return super().text(nested=nested)

    def explain_lines(self) -> list[tuple[str, str]]:
        """Product, step and order in words."""
        if self.mul is None:
            product, step = "exact (fused multiply-add)", f"s = R(s + a*b), one rounding to {self.add.words()}"
        else:
            product, step = f"q = R(a*b), rounded to {self.mul.words()}", f"s = R(s + q), to {self.add.words()}"
        start = {
            "zero": "from +0",
            "c_first": "starting with C (+0 where there is none)",
            "c_last": "from +0, then C as one more addend",
        }[self.init]
        return [("product", product), ("each step", step), ("order", f"sequential, k ascending {start}")]
