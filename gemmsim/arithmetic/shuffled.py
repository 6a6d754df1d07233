"""A fixed permutation of the terms, to study the influence of the order."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, IntKind, argument
from .permutation import permutation
from .wrappers import Composite

__all__ = ["Shuffled"]


@register("shuffled")
@dataclass(frozen=True, repr=False)
class Shuffled(Composite):
    """``inner`` over the terms in the order of ``permutation(K)``: its term at position i is product permutation(K)[i].

    Args:
        inner: accumulator; a format means the sequential one.
        seed: names the permutation. It does not influence random bits of stochastic roundings, whose k counts
            positions: the result is that of ``inner`` for operands with columns and rows permuted beforehand.

    NaN, infinities, -0 and overflow follow ``inner``.
    Source: docs/reference/accumulators.md#orders.

    Example:
        >>> gs.arithmetic.Shuffled("bf16", seed=1).permutation(6)
        tensor([5, 2, 4, 3, 1, 0])
    """

    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    seed: int = field(metadata=argument(IntKind(0, 2**64 - 1)))

    @property
    def levels(self) -> int:
        """As ``inner``: a permutation combines nothing."""
        return self.inner.levels

    @property
    def combines(self) -> bool:
        """As ``inner``."""
        return self.inner.combines

    def order(self, K: int) -> list[int]:
        """The permutation of 0 to K-1, by docs/reference/random_bits.md.

        Raises:
            ValueError: for negative K.
        """
        return permutation(self.seed, K)

    def permutation(self, K: int) -> Any:
        """``order(K)`` as a torch LongTensor: ``inner`` over ``a[..., p], b[..., p, :]`` is this accumulator.

        Raises:
            ValueError: for negative K.

        Example:
            >>> gs.arithmetic.Shuffled("bf16", seed=2).permutation(6)
            tensor([1, 0, 3, 4, 5, 2])
        """
        # By name: this package works without torch, and only whoever has tensors asks for one.
        torch = import_module("torch")
        return torch.tensor(self.order(K), dtype=torch.int64)

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then the permutation."""
        return [*self.inner.explain_lines(), ("shuffled", f"terms permuted beforehand, permutation {self.seed}")]
