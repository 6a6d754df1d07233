"""Runs of n terms, whose totals are added in a register of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..formats import FP32, Cast
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, TOTALS, IntKind, argument, optional
from .wrappers import Blocks, needs_register

__all__ = ["BLOCK", "Chunked", "Promote"]

#: Sizes and counts of blocks.
BLOCK = IntKind(1, 2**31 - 1)


class _Runs(Blocks):
    """``S = R(S + t_j)`` for j ascending; t_j is the inner accumulator's result of terms j*n to j*n + n-1."""

    n: int

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then how its totals are added."""
        words = f"each {self.n} terms as above from +0 (the last run may be shorter)"
        total = f"S = R(S + t) for each run's total t in order, to {self.add_cast.words()}"
        return [*self.inner.explain_lines(), ("runs", words), ("", total)]


@register("chunked")
@dataclass(frozen=True, repr=False)
class Chunked(_Runs):
    """Each run of ``n`` terms from +0 in ``inner``; totals ``S = R_outer(S + t_j)``, j ascending, S from +0.

    Args:
        n: terms in a run; the last one may be shorter.
        inner: accumulator of a run; a format is the sequential one.
        outer: rounding of the sum of totals; None is the inner accumulator's register.

    NaN, infinities, -0 and overflow follow ``inner`` and ``outer``; S never starts as -0, so all totals -0 give +0.

    Source: Wang et al., "Training deep neural networks with 8-bit floating point numbers", NeurIPS 2018.
    """

    n: int = field(metadata=argument(BLOCK))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    outer: Cast | None = field(default=None, metadata=argument(optional(TOTALS)))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer is None:
            needs_register(self, "Give outer, for example fixed(32,0).")

    def own_casts(self) -> Iterator[Cast]:
        """``outer``, or the inner register again."""
        yield self.add_cast

    @property
    def add_cast(self) -> Cast:
        """``outer``, or the inner register."""
        return self.inner.add_cast if self.outer is None else self.outer


@register("promote")
@dataclass(frozen=True, repr=False)
class Promote(_Runs):
    """``chunked(n, inner, outer)`` under the name it has on tensor cores: every ``n`` terms the partial register is
    added to a wider one and zeroed.

    Args:
        inner: accumulator of a run, whatever it is.
        n: terms in a run; the last one may be shorter.
        outer: rounding of the wider register.

    NaN, infinities, -0 and overflow as ``Chunked``.

    Source: CUTLASS' two-level FP8 accumulation; DeepSeek-V3 technical report, 3.3.2.
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    n: int = field(metadata=argument(BLOCK))
    outer: Cast = field(default=Cast(FP32), metadata=argument(TOTALS))

    def own_casts(self) -> Iterator[Cast]:
        """``outer``."""
        yield self.outer

    @property
    def add_cast(self) -> Cast:
        """``outer``."""
        return self.outer
