"""Lanes, as in SIMD and warp reductions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats import Cast
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, argument
from .chunked import BLOCK
from .totals import COMBINE, How, check_tree, explain_how
from .wrappers import Blocks, needs_register

__all__ = ["Interleaved"]


@register("interleaved")
@dataclass(frozen=True, repr=False)
class Interleaved(Blocks):
    """Lane l adds the terms l, l + lanes, l + 2*lanes, ... in ``inner`` from +0; then lanes are combined.

    They are combined in the format of ``inner``. Lanes without a term (K < lanes) do not take part. With ``width``,
    groups of ``width`` adjacent terms go to the lanes in turn.

    Args:
        lanes: number of lanes.
        inner: accumulator of a lane; a format means the sequential one.
        combine: "sequential": ``S = R(S + t_l)`` for l ascending, S from +0; "pairwise": the tree of ``Pairwise``;
            "halves": its tree of halves, the count-down shuffle of a warp. A rounding means the running sum in it; an
            accumulator has the partial sums as its terms, each times 1.
        width: adjacent terms that go to a lane together; group j of them belongs to lane j mod lanes.

    NaN, infinities, -0 and overflow follow the accumulator's cast.
    Source: docs/reference/accumulators.md#orders.

    Example:
        >>> a = torch.tensor([[2.0**24, 1.0, 1.0, 1.0]])
        >>> gs.qmatmul(a, torch.ones(4, 1), "fp32"), gs.qmatmul(a, torch.ones(4, 1), "interleaved(2, fp32)")
        (tensor([[16777216.]]), tensor([[16777218.]]))
    """

    lanes: int = field(metadata=argument(BLOCK))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    combine: str | Cast | Accumulator = field(default="sequential", metadata=argument(COMBINE, keyword=True))
    width: int = field(default=1, kw_only=True, metadata=argument(BLOCK))

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.combine, str):
            needs_register(self, "Give another inner accumulator; the order does not change a sum that wraps.")
        check_tree(self.combine, self.lanes, self.name)

    @property
    def how(self) -> How:
        """``combine``."""
        return self.combine

    def sizes(self, K: int) -> list[tuple[int, int]]:
        """The lanes that have terms."""
        rounds, rest = divmod(K, self.lanes * self.width)
        full, part = divmod(rest, self.width)
        base = rounds * self.width
        lanes = [(full, base + self.width), (int(part > 0), base + part), (self.lanes - full - int(part > 0), base)]
        return [(count, size) for count, size in lanes if count and size]

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then lanes and how they are combined."""
        lanes = f"{self.lanes}; lane l adds terms l, l+{self.lanes}, l+{2 * self.lanes}, ... as above"
        if self.width > 1:
            lanes = (
                f"{self.lanes}; groups of {self.width} adjacent terms go to the lanes in turn and are added as above"
            )
        register = self.inner.add_cast
        return [*self.inner.explain_lines(), ("lanes", lanes), *explain_how(self.combine, register, "lane")]
