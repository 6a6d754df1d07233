"""Contiguous slices of K, reduced through a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..formats import Cast
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, TOTALS, argument
from .chunked import BLOCK
from .wrappers import Blocks

__all__ = ["SplitK"]


@register("splitk")
@dataclass(frozen=True, repr=False)
class SplitK(Blocks):
    """Slices of ceil(K / slices) adjacent terms in ``inner`` from +0; each total ``w = R_reduce(t)`` is rounded to the
    workspace format, then ``S = R_reduce(S + w)`` in order, S from +0. Fewer slices where K runs out.

    Args:
        slices: number of slices asked for.
        inner: accumulator of a slice; a format is the sequential one.
        reduce: rounding of the workspace and of the sums in it.

    NaN, infinities, -0 and overflow follow ``inner`` and ``reduce``.

    Source: split-K GEMM of CUTLASS and cuBLAS; docs/reference/accumulators.md#orders.
    """

    slices: int = field(metadata=argument(BLOCK))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    reduce: Cast = field(metadata=argument(TOTALS))

    def own_casts(self) -> Iterator[Cast]:
        """``reduce``."""
        yield self.reduce

    @property
    def add_cast(self) -> Cast:
        """``reduce``."""
        return self.reduce

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then slices and workspace."""
        return [
            *self.inner.explain_lines(),
            ("slices", f"{self.slices}, each ceil(K/{self.slices}) adjacent terms as above"),
            ("reduce", f"each total rounded, then S = R(S + w) in order, both to {self.reduce.words()}"),
        ]
