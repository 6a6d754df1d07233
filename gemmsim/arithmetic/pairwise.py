"""A binary tree over short runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, ChoiceKind, argument
from .chunked import BLOCK
from .totals import How
from .wrappers import Blocks, even_sizes, needs_register

__all__ = ["Pairwise"]


@register("pairwise")
@dataclass(frozen=True, repr=False)
class Pairwise(Blocks):
    """Groups of ``leaf`` terms from +0 in ``inner``, then level by level ``R(x_2i + x_2i+1)`` in its format.

    An odd last element passes to the next level unchanged. A leaf of one term is R(0 + q).

    Args:
        inner: accumulator of a leaf; its format also rounds the sums of the tree. A format means the sequential one.
        leaf: terms in a leaf; the last one may have fewer.
        pairs: "adjacent", as above; "halves": ``R(x_i + x_(i+n/2))``, then n/4, ..., 1, n the power of two at or above
            the number of leaves. An element without a partner passes on unchanged.

    NaN, infinities, -0 and overflow follow the accumulator's cast; a sum of the tree is -0 if both addends are.
    Source: Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993).

    Example:
        >>> a, b = torch.ones(1, 4096), torch.ones(4096, 1)
        >>> gs.qmatmul(a, b, "bf16").item(), gs.qmatmul(a, b, gs.arithmetic.Pairwise("bf16")).item()
        (256.0, 4096.0)
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    leaf: int = field(default=1, metadata=argument(BLOCK))
    pairs: str = field(default="adjacent", kw_only=True, metadata=argument(ChoiceKind("adjacent", "halves")))

    def __post_init__(self) -> None:
        super().__post_init__()
        needs_register(self, "Give another inner accumulator; the order does not change a sum that wraps.")

    @property
    def how(self) -> How:
        """The word for the tree."""
        return "pairwise" if self.pairs == "adjacent" else "halves"

    def sizes(self, K: int) -> list[tuple[int, int]]:
        """The leaves; the last one may have fewer terms."""
        return even_sizes(K, self.leaf)

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then the tree."""
        leaves = f"each {self.leaf} terms are added as above" if self.leaf > 1 else "each term by itself as above"
        tree = f"adjacent pairs, level by level, R(x + y) to {self.add_cast.words()}; an odd last one moves up"
        if self.pairs == "halves":
            tree = (
                f"x_i + x_(i+n/2), then n/4, ..., R(x + y) to {self.add_cast.words()}; n the power of two at or above "
                "the number of leaves, an unpaired one moves up unchanged"
            )
        return [*self.inner.explain_lines(), ("leaves", leaves), ("tree", tree)]
