"""Tensors cut into blocks along some of their dimensions, and put together again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .errors import BlockSizeError, message

__all__ = ["Blocking"]


class Blocking:
    """How tensors of one shape are cut: each dimension of ``sizes`` into blocks, zeros added at its end.

    ``cut(x)`` has an amax for each index of the dimensions ``kept`` (the numbers of the blocks, and the dimensions not
    cut); ``join`` undoes it. Blocks of the last dimension alone are rows of a matrix, as ModelOpt has them.
    """

    def __init__(self, shape: torch.Size, sizes: Mapping[int, int | None]) -> None:
        rank = len(shape)
        self.shape = shape
        self._sizes: dict[int, int] = {}
        for d, size in sizes.items():
            if not -rank <= d < rank:
                asked = f"block_sizes of dimension {d}, a tensor of {rank} dimensions"
                raise BlockSizeError(message(asked, "its dimensions", "Give another dimension."))
            self._sizes[d % rank] = max(shape[d], 1) if size is None else size
        self._padding = [(-shape[d]) % self._sizes.get(d, 1) for d in range(rank)]
        self._rows = list(self._sizes) == [rank - 1] and next(iter(sizes.values())) is not None
        split: list[int] = []
        self.kept: tuple[int, ...] = ()
        for d in range(rank):
            if d in self._sizes:
                self.kept += (len(split),)
                split += [(shape[d] + self._padding[d]) // self._sizes[d], self._sizes[d]]
            else:
                self.kept += (len(split),)
                split.append(shape[d])
        self._split = [-1, self._sizes[rank - 1]] if self._rows else split
        if self._rows:
            self.kept = (0,)

    def cut(self, x: Tensor) -> Tensor:
        """``x`` with a dimension for the number and one for the inside of each block."""
        if any(self._padding):
            x = torch.nn.functional.pad(x, [n for pad in reversed(self._padding) for n in (0, pad)])
        return x.reshape(self._split)

    def join(self, x: Tensor) -> Tensor:
        """The tensor that was cut."""
        padded = [n + pad for n, pad in zip(self.shape, self._padding, strict=True)]
        x = x.reshape(padded)
        for d, size in enumerate(self.shape):
            x = x.narrow(d, 0, size) if x.shape[d] != size else x
        return x
