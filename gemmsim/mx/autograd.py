"""Conversions with gradients: each rounding counts as the identity."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gemmsim.ops.errors import DTypeError, message
from gemmsim.ops.lazy_dynamo import allow_in_graph

from .arguments import BlockLike, block_of, check_dim
from .convert import decode, encode
from .errors import MXOperatorError
from .tensor import MXTensor

__all__ = ["FromMX", "NoopFwToMXBw", "ToMX", "requantize"]


@allow_in_graph
class ToMX(torch.autograd.Function):
    """``ToMX.apply(x, fmt, dim=-1, packing=None, tensor_scale=None, act_format=None)`` encodes ``x`` as an
    ``MXTensor``.

    The gradient of ``x`` is that of the result (straight-through). ``to_mx`` is the function around it.

    Example:
        >>> x = torch.tensor([1.0, 2.9], requires_grad=True)
        >>> gs.mx.ToMX.apply(x, "mxfp8_e4m3").dequantize().detach()
        tensor([1., 3.])
    """

    @staticmethod
    def forward(
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
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        fmt: BlockLike,
        dim: int = -1,
        packing: str | None = None,
        tensor_scale: Tensor | float | None = None,
        act_format: BlockLike | None = None,
    ) -> tuple[MXTensor, int]:
        """All examples as one tensor.

        Raises:
            MXOperatorError: where each example would have a scale of its own.
        """
        alone = len(in_dims) > 4 and in_dims[4] is not None
        if alone or (block_of(fmt).tensor_scale and tensor_scale is None):
            asked = f"mx.to_mx under torch.func.vmap in {block_of(fmt)}: a tensor_scale for each example"
            do = "Pass tensor_scale, or encode each example separately outside of vmap."
            raise MXOperatorError(message(asked, "one tensor_scale for all examples", do))
        place = example_dim("mx.to_mx", x, in_dims[0], dim)
        result: MXTensor = ToMX.apply(x, fmt, place, packing, tensor_scale, act_format)
        return result, in_dims[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, as it is."""
        return grads[0], None, None, None, None, None


@allow_in_graph
class FromMX(torch.autograd.Function):
    """``FromMX.apply(t, dtype)`` decodes an ``MXTensor``; the gradient of ``t`` is that of the result.

    Example:
        >>> encoded = gs.mx.to_mx(torch.tensor([1.0, 2.9]), "mxfp8_e4m3")
        >>> gs.mx.FromMX.apply(encoded, torch.bfloat16)
        tensor([1., 3.], dtype=torch.bfloat16)
    """

    @staticmethod
    def forward(t: MXTensor, dtype: torch.dtype) -> Tensor:
        """``t`` decoded."""
        return decoded_tensor(t, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """The gradient's dtype."""
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], t: MXTensor, dtype: torch.dtype) -> tuple[Tensor, int]:
        """All examples at once."""
        return FromMX.apply(t, dtype), in_dims[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient in ``t``'s dtype."""
        return grads[0].to(ctx.dtype), None


@allow_in_graph
class NoopFwToMXBw(torch.autograd.Function):
    """``NoopFwToMXBw.apply(x, fmt, dim=-1)`` returns ``x`` itself and encodes its gradient, which becomes an
    ``MXTensor``.

    Example:
        >>> x = torch.ones(32, requires_grad=True)
        >>> y = gs.mx.NoopFwToMXBw.apply(x, "mxfp8_e5m2")
        >>> torch.autograd.grad(y, x, torch.full((32,), 1.1))[0].dequantize().max()  # 1.1 in E5M2
        tensor(1.)
    """

    @staticmethod
    def forward(x: Tensor, fmt: BlockLike, dim: int = -1) -> Tensor:
        """``x``."""
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Where blocks of the gradient lie."""
        ctx.format, ctx.dim = str(block_of(inputs[1])), inputs[2] if len(inputs) > 2 else -1

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Refused: codes of a gradient would be examples inside of a tensor.

        Raises:
            MXOperatorError: always.
        """
        asked = "mx.NoopFwToMXBw under torch.func.vmap"
        do = "Apply it outside of vmap, to all examples at once."
        raise MXOperatorError(message(asked, "mx.ToMX and mx.FromMX there", do))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient encoded."""
        grad = grads[0]
        return grad if isinstance(grad, MXTensor) else encoded_tensor(grad, ctx.format, ctx.dim), None, None


def example_dim(owner: str, x: Tensor, examples: int, dim: int) -> int:
    """``dim`` of an example as a dimension of ``x``, whose dimension ``examples`` counts them."""
    place = check_dim(owner, x.dim() - 1, dim)
    return place + (place >= examples)


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
    """Encode the values of ``t`` again with blocks along ``dim``, in ``fmt`` (by default the format of ``t``).

    This rounds a second time: values that blocks along ``dim`` cannot hold are rounded again. Where you have the
    original tensor, encode it with ``to_mx`` instead. The gradient is the identity.

    Raises:
        FormatError, ShapeError: for a format or ``dim`` that does not fit.
        DTypeError: if ``t`` is not an ``MXTensor``.

    Example:
        >>> weight = gs.mx.to_mx(torch.ones(64, 32), "mxfp8_e4m3")
        >>> gs.mx.requantize(weight, 0).block_dim, weight.block_dim
        (-2, -1)
    """
    if not isinstance(t, MXTensor):
        raise DTypeError(message(f"mx.requantize: t is a {type(t).__name__}", "an MXTensor", "Use mx.to_mx(t)."))
    meaning = t.format if fmt is None else block_of(fmt)
    values = t.dequantize(torch.float32)
    packing = t.packing if meaning.element.bits == t.format.element.bits else None
    again: MXTensor = ToMX.apply(values, meaning, dim, packing, None, t.act_format)
    if again.dtype != t.dtype:
        again = cast(MXTensor, again.to(t.dtype))
    return again
