"""Batches of tensors in an order that the epoch alone decides."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .files import TrainError

__all__ = ["Batches"]


class Batches:
    """Batches ``(x[i], y[i], ...)`` with index tensors i of ``size`` rows, shuffled anew in every epoch.

    ``batches(epoch)`` returns the batches of an epoch. Their order is a function of (``seed``, epoch) and does not
    use torch's default generator. The last batch may be smaller. ``shuffle=False`` keeps the order of the tensors.

    Raises:
        TrainError: for tensors of different lengths, and for sizes below one.

    Example:
        >>> batches = gs.train.Batches(torch.arange(5), size=2, shuffle=False)
        >>> [x.tolist() for (x,) in batches(0)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, *tensors: Tensor, size: int, seed: int = 0, shuffle: bool = True) -> None:
        lengths = {len(t) for t in tensors}
        if len(lengths) != 1 or size < 1:
            asked = f"Batches of tensors with {sorted(lengths)} rows, size {size}"
            raise TrainError(f"{asked}; allowed: equal lengths, sizes of one or more.\n  Check the tensors.")
        self.tensors, self.size, self.seed, self.shuffle = tensors, size, seed, shuffle

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.size)

    def __call__(self, epoch: int = 0) -> Iterator[tuple[Tensor, ...]]:
        count = len(self.tensors[0])
        order = torch.arange(count)
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(count, generator=generator)
        for chosen in order.split(self.size):
            yield tuple(t[chosen] for t in self.tensors)
