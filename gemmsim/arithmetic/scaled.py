"""Sums of element products of block formats, with the scales applied to the total of each group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..formats import FP32, Cast
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, argument, optional
from .chunked import BLOCK
from .totals import RUNNING
from .wrappers import Blocks

__all__ = ["Scaled"]


@register("scaled")
@dataclass(frozen=True, repr=False)
class Scaled(Blocks):
    """``S = R_outer(S + X_a * X_b * s_g)`` for the groups g of ``n`` adjacent terms in order, S from +0.

    ``s_g`` is the sum in ``inner``, from +0, of the group's exact products ``P_a * P_b`` of elements without their
    scales. ``X_a`` and ``X_b`` are the scales of the blocks that contain the group. Scales, product and sum are exact,
    and the result is rounded once. With a format that has a scale for the whole tensor the result is ``R_outer(T_a *
    T_b * S)``, one more rounding.

    Args:
        inner: accumulator of a group, any but those with scales of their own; a format means the sequential one.
        outer: rounding of the running sum.
        n: terms in a group, a divisor of both block sizes; None is their greatest common divisor. 1 scales each
            product, 2 each sum of a pair. The last group may be shorter.

    An operand that is not in a block format has scale 1. A NaN scale makes its groups NaN; 0 * infinity is NaN. All
    other NaN, infinities, -0 and overflow follow ``inner`` and ``outer``; S never starts as -0.

    Source: OCP Microscaling Formats rev. 1.0, 6.2 (the dot product of two blocks, in an order and precision that the
    implementation defines).

    Example:
        >>> gs.GemmSpec(a="mxfp8_e4m3", b="mxfp8_e4m3", accumulator=gs.arithmetic.Scaled("e8m13/rtz"))
        GemmSpec.parse('mxfp8_e4m3 : scaled(e8m13/rtz)')
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    outer: Cast = field(default=Cast(FP32), metadata=argument(RUNNING))
    n: int | None = field(default=None, metadata=argument(optional(BLOCK), keyword=True))

    def own_casts(self) -> Iterator[Cast]:
        """``outer``."""
        yield self.outer

    @property
    def add_cast(self) -> Cast:
        """``outer``."""
        return self.outer

    @property
    def exact_sums(self) -> bool:
        """True: a scaled partial sum is added exactly, which binary32 does not hold."""
        return True

    @property
    def needs_scales(self) -> bool:
        """True."""
        return True

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words on element products, then where the scales enter."""
        size = (
            "the terms of each block (greatest common divisor of both block sizes)"
            if self.n is None
            else f"each {self.n} terms"
        )
        return [
            ("elements", "multiplied without their scales"),
            *self.inner.explain_lines(),
            ("groups", f"{size} are added as above, starting from +0; s is the sum"),
            ("scales", f"S = R(S + Xa * Xb * s) for the groups in order, exact before R, to {self.outer.words()}"),
        ]
