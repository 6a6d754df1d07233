"""A binary tree over short runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, argument
from .chunked import BLOCK
from .wrappers import Blocks, needs_register

__all__ = ["Pairwise"]


@register("pairwise")
@dataclass(frozen=True, repr=False)
class Pairwise(Blocks):
    """Runs of ``leaf`` terms from +0 in ``inner``, then level by level ``R(x_2i + x_2i+1)`` in its register; an odd
    last element passes up unchanged. A leaf of one term is thereby R(0 + q).

    Args:
        inner: accumulator of a leaf; its register also takes the sums of the tree. A format is the sequential one.
        leaf: terms in a leaf; the last one may have fewer.

    NaN, infinities, -0 and overflow follow the register's cast; a sum of the tree is -0 if both addends are.

    Source: Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993).
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    leaf: int = field(default=1, metadata=argument(BLOCK))

    def __post_init__(self) -> None:
        super().__post_init__()
        needs_register(self, "Give another inner accumulator; the order does not change a sum that wraps.")

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then the tree."""
        leaves = f"each {self.leaf} terms as above" if self.leaf > 1 else "each term by itself as above"
        tree = f"adjacent pairs, level by level, R(x + y) to {self.add_cast.words()}; an odd last one passes up"
        return [*self.inner.explain_lines(), ("leaves", leaves), ("tree", tree)]
