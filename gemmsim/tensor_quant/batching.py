"""``vmap`` of the operators: a batch dimension becomes the first one; amax and bias keep broadcasting from the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["affine", "blocks", "checked", "fake_quantize", "integers"]


def _front(t: Tensor | None, dim: int | None, size: int, rank: int, expand: bool = False) -> Tensor | None:
    """``t`` with its batch dimension first and ones after it up to ``rank`` further dimensions."""
    if t is None:
        return None
    if dim is None:
        return t.expand(size, *t.shape) if expand else t
    t = t.movedim(dim, 0)
    return t.reshape(t.shape[0], *([1] * (rank - t.dim() + 1)), *t.shape[1:])


def _inner(t: Tensor, dim: int | None) -> int:
    return t.dim() - int(dim is not None)


def fake_quantize(
    op: Any,
    info: Any,
    in_dims: Any,
    x: Tensor,
    amax: Tensor | None,
    grid: str,
    bias: Tensor | None = None,
    propagate: bool = False,
) -> Any:
    dims = (*in_dims, None)[:4]
    rank, n = _inner(x, dims[0]), info.batch_size
    args = _front(x, dims[0], n, rank, True), _front(amax, dims[1], n, rank), _front(bias, dims[3], n, rank)
    return op(args[0], args[1], grid, args[2], propagate), 0


def integers(op: Any, info: Any, in_dims: Any, x: Tensor, amax: Tensor, grid: str, propagate: bool = False) -> Any:
    rank, n = _inner(x, in_dims[0]), info.batch_size
    scale = _front(amax, in_dims[1], n, rank)
    q, s = op(_front(x, in_dims[0], n, rank, True), scale, grid, propagate)
    if in_dims[1] is None:
        return (q, s), (0, None)
    return (q, s.reshape(n, *amax.movedim(in_dims[1], 0).shape[1:])), (0, 0)


def affine(op: Any, info: Any, in_dims: Any, x: Tensor, low: Tensor, high: Tensor, num_bits: int) -> Any:
    rank, n = _inner(x, in_dims[0]), info.batch_size
    ends = _front(low, in_dims[1], n, rank), _front(high, in_dims[2], n, rank)
    return op(_front(x, in_dims[0], n, rank, True), *ends, num_bits), 0


def blocks(
    op: Any,
    info: Any,
    in_dims: Any,
    x: Tensor,
    grid: str,
    size: int,
    scale: str,
    amax: Tensor | None = None,
    propagate: bool = False,
) -> Any:
    amax_dim = in_dims[4] if len(in_dims) > 4 else None
    whole = _front(x, in_dims[0], info.batch_size, _inner(x, in_dims[0]), True)
    assert whole is not None
    if scale != "e4m3" or (amax is not None and amax_dim is None):
        return op(whole, grid, size, scale, amax, propagate), 0
    parts = [None] * len(whole) if amax is None or amax_dim is None else amax.movedim(amax_dim, 0).unbind()
    rows = [op(t, grid, size, scale, a, propagate) for t, a in zip(whole, parts, strict=True)]
    return torch.stack(rows), 0


def checked(op: Any, info: Any, in_dims: Any, amax: Tensor, owner: str, propagate: bool = False) -> Any:
    """The check of all examples at once; ``AmaxError`` if one of them fails it."""
    return op(amax, owner, propagate), in_dims[0]
