"""Convolutions with quantised operands; sums are PyTorch's, in the tensors' dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .elementwise import quantize_elemwise_op
from .gemms import _blocks
from .module import Specified
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "conv1d", "conv2d", "conv3d", "conv_transpose2d"]

# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_CONVS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_conv_transpose2d = functional.conv_transpose2d
_Size = int | Sequence[int]


def _sizes(value: Any, count: int) -> list[int]:
    sizes = [value] * count if isinstance(value, int) else list(value)
    return sizes * count if len(sizes) == 1 else sizes


def _padding(padding: Any, weight: Tensor, dilation: list[int]) -> list[int]:
    """Numbers for "valid" and for a symmetric "same"."""
    count = weight.dim() - 2
    if padding == "valid":
        return [0] * count
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if any(t % 2 for t in total):
            asked = "padding='same' with a kernel of even extent"
            raise ValueError(f"{asked}; allowed: odd extents. Pad the input and use padding='valid'.")
        return [t // 2 for t in total]
    return _sizes(padding, count)


class _ConvFunction(torch.autograd.Function):
    """Convolution, transposed or not. ``shape`` is stride, padding, dilation, transposed, output padding, groups."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, specs: MxSpecs) -> Tensor:
        """Blocks along the input channels."""
        given = x, weight
        x = quantize_elemwise_op(x, specs, specs["round_output"])
        weight = quantize_elemwise_op(weight, specs, specs["round_weight"])
        ctx.save_for_backward(*((x, weight) if specs["quantize_backprop"] else given))
        ctx.specs, ctx.shape, ctx.has_bias = get_backwards_mx_specs(specs), shape, bias is not None
        if bias is not None:
            bias = quantize_elemwise_op(bias, specs, specs["round_weight"])
        left = _blocks(x, specs, "a_elem_format", 1)
        right = _blocks(weight, specs, "w_elem_format", 0 if shape[3] else 1)
        stride, padding, dilation, transposed, output_padding, groups = shape
        if transposed:
            out = _conv_transpose2d(left, right, bias, stride, padding, output_padding, groups, dilation)
        else:
            out = _CONVS[x.dim() - 2](left, right, bias, stride, padding, dilation, groups)
        return quantize_elemwise_op(out, specs, specs["round_output"])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Blocks along the batch for W's gradient, along the output channels for x's."""
        specs, shape = ctx.specs, ctx.shape
        x, weight = ctx.saved_tensors
        grad = quantize_elemwise_op(grads[0], specs, specs["round_grad_input"])

        def products(g: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> Any:
            return torch.ops.aten.convolution_backward(g, x, weight, None, *shape, wanted)

        rows, columns = (_blocks(t, specs, "a_elem_format", 0) for t in (x, grad))
        grad_weight = products(columns, rows, weight, [False, True, False])[1]
        grad_weight = quantize_elemwise_op(grad_weight, specs, specs["round_grad_weight"])
        left = _blocks(grad, specs, "a_elem_format", 1)
        right = _blocks(weight, specs, "w_elem_format", 1 if shape[3] else 0)
        grad_x = products(left, x, right, [True, False, False])[0]
        grad_x = quantize_elemwise_op(grad_x, specs, specs["round_grad_input"])
        grad_bias = None
        if ctx.has_bias:
            total = grad.sum([0, *range(2, grad.dim())])
            grad_bias = quantize_elemwise_op(total, specs, specs["round_grad_weight"])
        return grad_x, grad_weight, grad_bias, None, None


def _conv(
    rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[Any, ...], mx_specs: Any
) -> Tensor:
    mx_assert_test(mx_specs)
    stride, padding, dilation, groups = shape
    if mx_specs is None:
        return _CONVS[rank](input, weight, bias, stride, padding, dilation, groups)
    spread = _sizes(dilation, rank)
    whole = (_sizes(stride, rank), _padding(padding, weight, spread), spread, False, [0] * rank, groups)
    single = input.dim() == rank + 1
    batch = input[None] if single else input
    result: Tensor = _ConvFunction.apply(batch, weight, bias, whole, apply_mx_specs(mx_specs))
    return result[0] if single else result


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """``torch.nn.functional.conv1d`` with rounded operands and result. With ``mx_specs`` None it is PyTorch's.

    Blocks lie along the input channels, for W's gradient along the batch, and for x's along the output channels. The
    backward pass has the forward formats, and blocks are always rounded to nearest (ties away), as in microxcaling.

    Raises:
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for settings that mean nothing; with ``MX_ASSERT=True`` in the environment for None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "fp4_e2m1", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.conv1d(torch.full((1, 1, 3), 1.3), torch.ones(1, 1, 2), mx_specs=specs)
        tensor([[[3., 3.]]])
    """
    return _conv(1, input, weight, bias, (stride, padding, dilation, groups), mx_specs)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """``conv1d`` with two spatial dimensions.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "fp4_e2m1", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.conv2d(torch.full((1, 1, 2, 3), 1.3), torch.ones(1, 1, 2, 2), mx_specs=specs)
        tensor([[[[6., 6.]]]])
    """
    return _conv(2, input, weight, bias, (stride, padding, dilation, groups), mx_specs)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """``conv1d`` with three spatial dimensions.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "fp4_e2m1", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.conv3d(torch.full((1, 1, 1, 2, 3), 1.3), torch.ones(1, 1, 1, 2, 2), mx_specs=specs)
        tensor([[[[[6., 6.]]]]])
    """
    return _conv(3, input, weight, bias, (stride, padding, dilation, groups), mx_specs)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """``torch.nn.functional.conv_transpose2d`` with rounded operands and result.

    With ``mx_specs`` None it is PyTorch's. Blocks lie along the input channels, for W's gradient along the batch, and
    for x's along the output channels. Errors are those of ``conv1d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "fp4_e2m1", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.conv_transpose2d(torch.full((1, 1, 1, 1), 1.3), torch.ones(1, 1, 2, 2), mx_specs=specs)
        tensor([[[[1.5000, 1.5000],
                  [1.5000, 1.5000]]]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    stride, padding, spread, extra = (_sizes(value, 2) for value in (stride, padding, dilation, output_padding))
    single = input.dim() == 3
    batch = input[None] if single else input
    whole = (stride, padding, spread, True, extra, groups)
    result: Tensor = _ConvFunction.apply(batch, weight, bias, whole, apply_mx_specs(mx_specs))
    return result[0] if single else result


class _ConvModule(Specified):
    """A convolution of PyTorch's through the function of the same rank."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        mx_specs: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )
        self._specify(mx_specs, name)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        module: Any = self
        specs = None if self.mx_none else self.mx_specs
        shape = (module.stride, module.padding, module.dilation, module.groups)
        return _conv(weight.dim() - 2, input, weight, bias, shape, specs)


class Conv1d(_ConvModule, torch.nn.Conv1d):
    """``torch.nn.Conv1d`` through ``conv1d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "int8", "scale_bits": 8}
        >>> mx.Conv1d(2, 3, 3, mx_specs=specs)(torch.ones(1, 2, 8)).shape
        torch.Size([1, 3, 6])
    """


class Conv2d(_ConvModule, torch.nn.Conv2d):
    """``torch.nn.Conv2d`` through ``conv2d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "int8", "scale_bits": 8}
        >>> mx.Conv2d(2, 3, 3, mx_specs=specs)(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 3, 6, 6])
    """


class Conv3d(_ConvModule, torch.nn.Conv3d):
    """``torch.nn.Conv3d`` through ``conv3d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "int8", "scale_bits": 8}
        >>> mx.Conv3d(2, 3, 3, mx_specs=specs)(torch.ones(1, 2, 4, 4, 4)).shape
        torch.Size([1, 3, 2, 2, 2])
    """


class ConvTranspose2d(Specified, torch.nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` through ``conv_transpose2d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "int8", "scale_bits": 8}
        >>> mx.ConvTranspose2d(2, 3, 3, mx_specs=specs)(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 3, 10, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        mx_specs: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation
        )
        self._specify(mx_specs, name)

    def forward(self, inputs: Tensor, output_size: list[int] | None = None) -> Tensor:
        """The transposed convolution of ``inputs``, of ``output_size`` where given."""
        if self.mx_none:
            return super().forward(inputs, output_size)
        module: Any = self
        where = (self.stride, self.padding, self.kernel_size, 2, self.dilation)
        extra = module._output_padding(inputs, output_size, *where)
        rest: Any = (self.stride, self.padding, extra, self.groups, self.dilation, self.mx_specs)
        return conv_transpose2d(inputs, self.weight, self.bias, *rest)
