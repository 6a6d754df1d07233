"""PyTorch's own convolutions with the index maps of ``Geometry``: for the roles that name no spec."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import state
from .conv_windows import span

__all__ = ["native_conv", "native_weight"]

_backward = torch.ops.aten.convolution_backward.default


def _record() -> None:
    if not torch.compiler.is_compiling():
        state.record("conv", "torch", "", "PyTorch's convolution: the formats name no spec for this product")


def _fit(x: Tensor, before: Sequence[int], size: Sequence[int]) -> Tensor:
    """Elements -before to size - before of each dimension of ``x``, zeros beyond it."""
    amounts: list[int] = []
    for n, b, total in zip(reversed(x.shape[2:]), reversed(before), reversed(size), strict=True):
        amounts += [b, total - b - n]
    return torch.nn.functional.pad(x, amounts) if any(amounts) else x


def native_conv(
    x: Tensor,
    weight: Tensor,
    dtype: torch.dtype,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    transposed: bool,
) -> Tensor:
    """PyTorch's convolution, in the dtype its operands promote to."""
    _record()
    common = torch.promote_types(x.dtype, weight.dtype)
    x, weight = x.to(common), weight.to(common)
    none = [0] * len(stride)
    if transposed:
        full = torch.convolution(x, weight, None, stride, none, dilation, True, none, groups)
        return _fit(full, [-p for p in padding], output_size).to(dtype)
    x = _fit(x, padding, span(output_size, stride, weight.shape[2:], dilation))
    return torch.convolution(x, weight, None, stride, none, dilation, False, none, groups).to(dtype)


def native_weight(
    large: Tensor,
    small: Tensor,
    dtype: torch.dtype,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """PyTorch's gradient of a weight: ``large`` holds the windows, ``small`` one number for each of them."""
    _record()
    common = torch.promote_types(large.dtype, small.dtype)
    large, small = large.to(common), small.to(common)
    none = [0] * len(stride)
    large = _fit(large, padding, span(small.shape[2:], stride, kernel, dilation))
    weight = large.new_empty((small.shape[1], large.shape[1] // groups, *kernel))
    mask = [False, True, False]
    found: Tensor = _backward(small, large, weight, None, stride, none, dilation, False, none, groups, mask)[1]
    return found.to(dtype)
