"""Where blocks of formats of tensors lie in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from gemmsim.formats import FiniteFloatFormat, Sharing, TensorFormat

__all__ = ["BlockDim", "arranged"]

#: How the elements of a format that has no blocks are cut.
_PIECE = 2048


class BlockDim(NamedTuple):
    """A dimension of a tensor: its size, strides of source and result, and of the row-major index."""

    size: int
    src: int
    dst: int
    place: int


def arranged(x: Tensor, fmt: TensorFormat, out: Tensor) -> tuple[list[BlockDim], list[BlockDim], int]:
    """Dimensions that tell blocks apart, those inside a block, and how the last one is cut (0: not at all)."""
    by_tensor = fmt.sharing is Sharing.TENSOR
    elements = isinstance(fmt, FiniteFloatFormat)
    at = 0 if by_tensor else fmt.dim % x.dim()
    shape: Sequence[int] = x.shape
    if x.is_contiguous() and out.is_contiguous():
        # three dimensions say it all: before, at and after
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
