"""Batching rules of the conversions: what ``torch.vmap`` makes of one call.

Blocks of different examples have nothing in common, so that all examples are one call. Where each has a scale of the
tensor of its own, they run one by one: an operator takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["decode", "encode", "quantize"]


def encode(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    format: str,
    dim: int,
    packing: str,
    tensor_scale: Tensor | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Batching rule of ``gemmsim::mx_encode``."""
    at = _scale_dim(in_dims, 4)
    if tensor_scale is None or at is None:
        return op(_front(x, in_dims[0]), format, dim + 1, packing, tensor_scale), (0, 0)
    made = _one_by_one(info, (in_dims[0], at), (x, tensor_scale), lambda t, second: op(t, format, dim, packing, second))
    codes, scales = zip(*made, strict=True)
    return (torch.stack(codes), torch.stack(scales)), (0, 0)


def decode(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    codes: Tensor,
    scales: Tensor,
    format: str,
    dim: int,
    size: int,
    packing: str,
    dtype: torch.dtype,
    tensor_scale: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Batching rule of ``gemmsim::mx_decode``."""
    at = _scale_dim(in_dims, 7)
    rest = format, dim, size, packing, dtype
    if tensor_scale is None or at is None:
        both = (_front(t, d, info.batch_size) for t, d in ((codes, in_dims[0]), (scales, in_dims[1])))
        return op(*both, format, dim + 1, size, packing, dtype, tensor_scale), 0
    made = _one_by_one(
        info, (*in_dims[:2], at), (codes, scales, tensor_scale), lambda c, s, second: op(c, s, *rest, second)
    )
    return torch.stack(made), 0


def quantize(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    format: str,
    dim: int,
    dtype: torch.dtype | None = None,
    tensor_scale: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Batching rule of ``gemmsim::mx_fake_quantize``."""
    at = _scale_dim(in_dims, 4)
    if tensor_scale is None or at is None:
        return op(_front(x, in_dims[0]), format, dim + 1, dtype, tensor_scale), 0
    made = _one_by_one(info, (in_dims[0], at), (x, tensor_scale), lambda t, second: op(t, format, dim, dtype, second))
    return torch.stack(made), 0


def _scale_dim(in_dims: tuple[int | None, ...], place: int) -> int | None:
    """The examples' dimension of the argument at ``place``, which may be left out."""
    return in_dims[place] if len(in_dims) > place else None


def _front(t: Tensor, dim: int | None, examples: int = 1) -> Tensor:
    """``t`` with the examples first; one that all examples share is repeated."""
    return t.expand(examples, *t.shape) if dim is None else t.movedim(dim, 0)


def _one_by_one(
    info: Any, dims: tuple[int | None, ...], tensors: tuple[Tensor, ...], call: Callable[..., Any]
) -> list[Any]:
    """The results of ``call`` on each example."""
    fronted = [_front(t, d, info.batch_size) for t, d in zip(tensors, dims, strict=True)]
    return [call(*(t[i] for t in fronted)) for i in range(info.batch_size)]
