"""PyTorch's own convolutions with the index maps of ``Geometry``: for the roles that name no spec."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import last_run
from .arguments import Geometry
from .im2col_indices import span

__all__ = ["native_conv", "native_gradients", "native_weight"]

_backward = torch.ops.aten.convolution_backward.default


def _record() -> None:
    if not torch.compiler.is_compiling():
        last_run.record("conv", "torch", "", "PyTorch's convolution: the formats name no spec for this product")


def _fit(x: Tensor, before: Sequence[int], size: Sequence[int]) -> Tensor:
    """Elements -before to size - before of each dimension of ``x``, zeros beyond it."""
    amounts: list[int] = []
    for n, b, total in zip(reversed(x.shape[2:]), reversed(before), reversed(size), strict=True):
        amounts += [b, total - b - n]
    return torch.nn.functional.pad(x, amounts) if any(amounts) else x


def _extra(
    x_size: Sequence[int], output_size: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
) -> list[int] | None:  # fmt: skip
    """PyTorch's output_padding (zeros of an ordinary convolution) where it has this index map, with as much padding
    behind as before; else None."""
    dims = list(zip(x_size, output_size, kernel, stride, padding, dilation, strict=True))
    if transposed:
        found = [out - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for n, out, k, s, p, d in dims]
        return found if all(0 <= e < max(s, d) for e, (*_, s, _, d) in zip(found, dims, strict=True)) else None
    same = all(p >= 0 and (n + 2 * p - d * (k - 1) - 1) // s + 1 == out for n, out, k, s, p, d in dims)
    return [0] * len(dims) if same else None


def native_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
    where: Geometry,
) -> Tensor:
    """PyTorch's convolution, in the dtype its operands promote to."""
    output_size, stride, padding, dilation, groups, transposed, _ = where
    _record()
    common = torch.promote_types(x.dtype, weight.dtype)
    x, weight = x.to(common), weight.to(common)
    bias = None if bias is None else bias.to(common)
    none = [0] * len(stride)
    extra = _extra(x.shape[2:], output_size, weight.shape[2:], stride, padding, dilation, transposed)
    if extra is not None:
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, extra, groups).to(dtype)
    if transposed:
        full = torch.convolution(x, weight, None, stride, none, dilation, True, none, groups)
        out = _fit(full, [-p for p in padding], output_size)  # the bias is in what is added around, too
        return (out if bias is None else out + bias.reshape(-1, *([1] * len(stride)))).to(dtype)
    x = _fit(x, padding, span(output_size, stride, weight.shape[2:], dilation))
    return torch.convolution(x, weight, bias, stride, none, dilation, False, none, groups).to(dtype)


def native_gradients(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    needed: Sequence[bool],
    where: Geometry,
) -> tuple[Tensor | None, ...] | None:
    """PyTorch's own gradients of input, weight and bias, as its autograd has them, in the dtype all promote to.

    None where PyTorch has no such convolution. The order of additions in the bias' is that of its convolution.
    """
    output_size, stride, padding, dilation, groups, transposed, _ = where
    extra = _extra(x.shape[2:], output_size, weight.shape[2:], stride, padding, dilation, transposed)
    if extra is None or not (grad.numel() and x.numel() and weight.numel()):
        return None
    _record()
    common = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), grad.dtype)
    operands = (t.to(common) for t in (grad, x, weight))
    more = (stride, padding, dilation, transposed, extra, groups, list(needed))
    found: tuple[Tensor | None, ...] = _backward(*operands, [grad.shape[1]], *more)
    return found


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
