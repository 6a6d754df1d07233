"""Lanes, as in SIMD and warp reductions."""

from __future__ import annotations

from dataclasses import dataclass, field

from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, ChoiceKind, argument
from .chunked import BLOCK
from .wrappers import Blocks, needs_register

__all__ = ["Interleaved"]


@register("interleaved")
@dataclass(frozen=True, repr=False)
class Interleaved(Blocks):
    """Lane l takes the terms l, l + lanes, l + 2*lanes, ... in ``inner`` from +0; the lanes' totals are combined in its
    register. Lanes without a term (K < lanes) do not take part.

    Args:
        lanes: number of lanes.
        inner: accumulator of a lane; a format is the sequential one.
        combine: "sequential": ``S = R(S + t_l)`` for l ascending, S from +0; "pairwise": the tree of ``Pairwise``.

    NaN, infinities, -0 and overflow follow the register's cast.

    Source: docs/reference/accumulators.md#orders.
    """

    lanes: int = field(metadata=argument(BLOCK))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    combine: str = field(default="sequential", metadata=argument(ChoiceKind("sequential", "pairwise"), keyword=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        needs_register(self, "Give another inner accumulator; the order does not change a sum that wraps.")

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then lanes and how they are combined."""
        how = "S = R(S + t) for lanes in order" if self.combine == "sequential" else "adjacent pairs, level by level"
        return [
            *self.inner.explain_lines(),
            ("lanes", f"{self.lanes}, lane l takes terms l, l+{self.lanes}, l+{2 * self.lanes}, ... as above"),
            ("combine", f"{how}, to {self.add_cast.words()}"),
        ]
