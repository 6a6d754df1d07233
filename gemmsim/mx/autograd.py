"""Conversions with gradients: each rounding counts as the identity."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from .arguments import BlockLike, block_of
from .convert import decode, encode
from .tensor import MXTensor

__all__ = ["FromMX", "NoopFwToMXBw", "ToMX", "requantize"]


@torch.compiler.allow_in_graph
class ToMX(torch.autograd.Function):
    """``ToMX.apply(x, fmt, dim=-1, packing=None, tensor_scale=None, act_format=None)``: an ``MXTensor``.

    The gradient of ``x`` is that of the result.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        fmt: BlockLike,
        dim: int = -1,
        packing: str | None = None,
        tensor_scale: Tensor | float | None = None,
        act_format: BlockLike | None = None,
    ) -> MXTensor:
        """``x`` encoded."""
        return encoded_tensor(x, fmt, dim, packing, tensor_scale, act_format)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, as it is."""
        return grads[0], None, None, None, None, None


@torch.compiler.allow_in_graph
class FromMX(torch.autograd.Function):
    """``FromMX.apply(t, dtype)``: the values of an ``MXTensor``; the gradient of ``t`` is that of the result."""

    @staticmethod
    def forward(ctx: Any, t: MXTensor, dtype: torch.dtype) -> Tensor:
        """``t`` decoded."""
        ctx.dtype = t.dtype
        return decoded_tensor(t, dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient in ``t``'s dtype."""
        return grads[0].to(ctx.dtype), None


@torch.compiler.allow_in_graph
class NoopFwToMXBw(torch.autograd.Function):
    """``NoopFwToMXBw.apply(x, fmt, dim=-1)``: ``x`` itself; its gradient becomes an ``MXTensor``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fmt: BlockLike, dim: int = -1) -> Tensor:
        """``x``."""
        ctx.format, ctx.dim = str(block_of(fmt)), dim
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient encoded."""
        grad = grads[0]
        return grad if isinstance(grad, MXTensor) else encoded_tensor(grad, ctx.format, ctx.dim), None, None


def encoded_tensor(
    x: Tensor,
    fmt: BlockLike,
    dim: int,
    packing: str | None = None,
    tensor_scale: Tensor | float | None = None,
    act_format: BlockLike | None = None,
) -> MXTensor:
    """``x`` encoded, without a gradient."""
    found = encode(x.detach(), fmt, dim=dim, packing=packing, tensor_scale=tensor_scale)
    return MXTensor(
        found.codes,
        found.scales,
        fmt,
        dim=dim,
        size=x.shape[dim],
        packing=packing,
        tensor_scale=found.tensor_scale,
        dtype=x.dtype,
        act_format=act_format,
    )


def decoded_tensor(t: MXTensor, dtype: torch.dtype) -> Tensor:
    """The values of ``t``, without a gradient."""
    return decode(t.encoded, t.format, dim=t.block_dim, size=t.shape[t.block_dim], packing=t.packing, dtype=dtype)


def requantize(t: MXTensor, dim: int, fmt: BlockLike | None = None) -> MXTensor:
    """The values of ``t`` encoded again with blocks along ``dim``, in ``fmt`` (by default ``t``'s format).

    A second rounding: what blocks along ``dim`` cannot hold is rounded once more. Where the original is at hand,
    encode that with ``to_mx`` instead. The gradient is the identity.

    Raises:
        FormatError, ShapeError: for a format or ``dim`` that does not fit.
    """
    meaning = t.format if fmt is None else block_of(fmt)
    values = t.dequantize(torch.float32)
    packing = t.packing if meaning.element.bits == t.format.element.bits else None
    again: MXTensor = ToMX.apply(values, meaning, dim, packing, None, t.act_format)
    if again.dtype != t.dtype:
        again = cast(MXTensor, again.to(t.dtype))
    return again
