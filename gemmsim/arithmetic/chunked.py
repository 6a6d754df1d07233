"""Runs of n terms, whose totals are added in a register of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats import FP32, Cast
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, IntKind, argument, optional
from .totals import TOTALS, How, check_tree, explain_how
from .wrappers import Blocks, even_sizes, needs_register

__all__ = ["BLOCK", "Chunked", "Promote"]

#: Sizes and counts of blocks.
BLOCK = IntKind(1, 2**31 - 1)


class _Runs(Blocks):
    """``S = R(S + t_j)`` for j ascending; t_j is the inner accumulator's result of terms j*n to j*n + n-1."""

    n: int
    outer: Cast | Accumulator | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer is None:
            needs_register(self, "Give outer, for example fixed(32,0).")
        check_tree(self.how, None, self.name)

    @property
    def how(self) -> How:
        """``outer``, or a running sum in the register of ``inner``."""
        return self.inner.add_cast if self.outer is None else self.outer

    def sizes(self, K: int) -> list[tuple[int, int]]:
        """Runs of ``n`` terms; the last one may be shorter."""
        return even_sizes(K, self.n)

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then how its totals are added."""
        words = f"each {self.n} terms are added as above, starting from +0 (the last chunk may be shorter)"
        if isinstance(self.how, Accumulator):
            return [*self.inner.explain_lines(), ("chunks", words), *explain_how(self.how, self.add_cast, "chunk")]
        total = f"S = R(S + t) for each chunk's sum t in order, to {self.add_cast.words()}"
        return [*self.inner.explain_lines(), ("chunks", words), ("", total)]


@register("chunked")
@dataclass(frozen=True, repr=False)
class Chunked(_Runs):
    """Chunks of ``n`` terms, each in ``inner`` from +0; then ``S = R_outer(S + t_j)``, j ascending, S from +0.

    Args:
        n: terms of a chunk; the last one may be shorter.
        inner: accumulator of a chunk; a format means the sequential one.
        outer: rounding of the sum of partial sums, or an accumulator whose terms are the partial sums, each times 1, as
            in FABsum, ``chunked(64, fp16, kahan(fp16))``; None is the format of the inner accumulator.

    NaN, infinities, -0 and overflow follow ``inner`` and ``outer``. S never starts as -0, so partial sums that are all
    -0 give +0.
    Source: Wang et al., "Training deep neural networks with 8-bit floating point numbers", NeurIPS 2018.

    Example:
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), "bf16")  # stagnates at 256
        tensor([[256.]])
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), gs.arithmetic.Chunked(64, "bf16", "fp32"))
        tensor([[4096.]])
    """

    n: int = field(metadata=argument(BLOCK))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    outer: Cast | Accumulator | None = field(default=None, metadata=argument(optional(TOTALS)))


@register("promote")
@dataclass(frozen=True, repr=False)
class Promote(_Runs):
    """``chunked(n, inner, outer)`` under its name on tensor cores.

    Every ``n`` terms the partial sum is added to a wider accumulator and restarts from zero.

    Args:
        inner: accumulator of a chunk, any kind.
        n: terms of a chunk; the last one may be shorter.
        outer: rounding of the wider accumulator, or an accumulator whose terms are the partial sums.

    NaN, infinities, -0 and overflow as ``Chunked``.
    Source: CUTLASS' two-level FP8 accumulation; DeepSeek-V3 technical report, 3.3.2.

    Example:
        >>> gs.arithmetic.Promote("e8m13/rtz", 128)
        Accumulator.parse('promote(e8m13/rtz, 128)')
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    n: int = field(metadata=argument(BLOCK))
    outer: Cast | Accumulator = field(default=Cast(FP32), metadata=argument(TOTALS))
