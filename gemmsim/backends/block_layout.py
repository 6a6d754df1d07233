"""Computes where the blocks of a tensor's format lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from gemmsim.formats import FiniteFloatFormat, ScaledCast, Sharing, TensorFormat

__all__ = ["BlockDim", "arranged"]

#: Number of elements per piece for a format that has no blocks.
_PIECE = 2048


class BlockDim(NamedTuple):
    """A dimension of a tensor: its size, and its strides in the source, in the result and in the row-major index."""

    size: int
    src: int
    dst: int
    place: int


def arranged(x: Tensor, fmt: TensorFormat, out: Tensor) -> tuple[list[BlockDim], list[BlockDim], int]:
    """Return the dimensions across blocks, the dimensions in a block, and the length into which the last one is
    divided.

    The length is 0 if the last dimension is not divided.
    """
    assert not isinstance(fmt, ScaledCast)  # those are computed with PyTorch's operators
    by_tensor = fmt.sharing is Sharing.TENSOR
    elements = isinstance(fmt, FiniteFloatFormat)
    at = 0 if by_tensor else fmt.dim % x.dim()
    shape: Sequence[int] = x.shape
    if x.is_contiguous() and out.is_contiguous():
        # three dimensions suffice: before, at and after
        before, after = math.prod(shape[:at]), math.prod(shape[at + 1 :])
        shape = (1, x.numel(), 1) if by_tensor else (before, shape[at], after)
        if fmt.sharing is Sharing.BLOCK and after == 1 and shape[1] % fmt.block_size == 0:
            shape = (1, x.numel(), 1)
        at = 1
        strides: list[Sequence[int]] = [_row_major(shape)] * 3
    else:
        strides = [x.stride(), out.stride(), _row_major(shape)]
    dims = [BlockDim(*values) for values in zip(shape, *strides, strict=True)]
    if elements:
        real = _real(dims)
        return real[:-1], real[-1:] or [BlockDim(1, 1, 1, 1)], _PIECE
    if fmt.sharing is Sharing.INDEX:
        outer, inner = [dims[at]], _real(dims[:at] + dims[at + 1 :])
    elif fmt.sharing is Sharing.TENSOR:
        outer, inner = [], _real(dims)
    else:
        outer, inner = [dim for dim in dims[:at] + dims[at + 1 :] if dim.size != 1], [dims[at]]
    return outer, inner or [BlockDim(1, 1, 1, 1)], fmt.block_size


def _real(dims: list[BlockDim]) -> list[BlockDim]:
    return [dim for dim in dims if dim.size != 1]


def _row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[at + 1 :]) for at in range(len(shape))]
