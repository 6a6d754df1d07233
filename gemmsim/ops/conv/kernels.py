"""Convolutions on ordinary tensors, as products of their windows with the weight.

Everything here runs below PyTorch's dispatcher: no autograd, no tracing, no modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Palette, SpecError
from gemmsim.backends.backend import backend_name

from .. import last_run
from ..errors import message
from ..product import eager, operand_overflow
from ..product.broadcasting import NOTHING
from ..quantize_eager import cast_operand
from ..seeds import Site
from .arguments import Geometry
from .blocks import share
from .im2col_indices import Windows, place, span
from .products import How, Reading, WindowProduct, compute, count_of, window_product
from .transposed import transposed

__all__ = ["check_spec", "conv", "conv_weight", "conv_with_operands"]


def check_spec(owner: str, spec: GemmSpec) -> None:
    """``SpecError`` for what a convolution has no place for: a palette's indices."""
    if isinstance(spec.accumulator, Palette):
        asked_for = f"{owner} with {str(spec)!r}"
        raise SpecError(message(asked_for, "accumulators other than palette(...)", "Use gemmsim.qmatmul with select."))


def conv(
    x: Tensor,
    weight: Tensor,
    spec: GemmSpec,
    where: Geometry,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
) -> Tensor:
    """The convolution of x (B, C, ...) and the weight that ``where`` and ``spec`` mean; ``c``: addend (channels,).

    Raises:
        SpecError: for a palette.
        DTypeError: for tensors of other numbers.
    """
    dtype = eager.result_dtype("conv", x, weight, out_dtype)
    check_spec("conv", spec)
    how = How(eager.call_seed(spec, seed, stream), dtype, c, spec.cast_a, spec)
    return _looked_at(_conv(x, weight, spec, where, how), x, weight, spec)


def conv_with_operands(
    x: Tensor,
    weight: Tensor,
    spec: GemmSpec,
    where: Geometry,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """``conv`` and the operands it multiplied, cast, for the backward pass; empty where ``spec`` has no cast.

    Raises:
        SpecError: for a palette.
        DTypeError: for tensors of other numbers.
    """
    dtype = eager.result_dtype("conv", x, weight, out_dtype)
    check_spec("conv", spec)
    bits = eager.call_seed(spec, seed, stream)
    cast_x = x.new_empty(0) if spec.cast_a is None else cast_operand(x, spec.cast_a, bits, Site.OPERAND_A)
    cast_w = x.new_empty(0) if spec.cast_b is None else cast_operand(weight, spec.cast_b, bits, Site.OPERAND_B)
    left, right = (x if spec.cast_a is None else cast_x), (weight if spec.cast_b is None else cast_w)
    ready = spec if spec.cast_b is None or not spec.cast_b.is_stochastic else replace(spec, b=None)
    out = _conv(left, right, ready, where, How(bits, dtype, c, None, spec))
    return _looked_at(out, x, weight, spec), cast_x, cast_w


def _conv(x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: How) -> Tensor:
    groups, kernel = where.groups, weight.shape[2:]
    x, weight, spec, seconds = share(x, weight, spec, how.bits)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        weight = cast_operand(weight, spec.cast_b, how.bits, Site.OPERAND_B)
    filters = groups * weight.shape[1] if where.transposed else weight.shape[0]
    out = torch.empty((x.shape[0], filters, *where.output_size), dtype=how.dtype, device=x.device)
    plan: object = NOTHING
    if where.transposed and out.numel():
        plan = transposed(x, weight, spec, where, how, seconds, out)
    elif out.numel():
        size = span(where.output_size, where.stride, kernel, where.dilation)
        large = place(x, where.padding, (1,) * len(kernel), size, how.cast, how.bits, Site.OPERAND_A)
        b = weight.reshape(groups, weight.shape[0] // groups, weight[0].numel()).mT
        plan = window_product(large, Reading(where.stride, where.dilation, kernel), b, spec, how, seconds, out)
    last_run.record("conv", backend_name(x), how.named.key, plan)
    return out


def conv_weight(
    large: Tensor,
    small: Tensor,
    spec: GemmSpec,
    kernel: Sequence[int],
    where: Geometry,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    stream: int = 0,
) -> Tensor:
    """Gradient of a weight (channels of small, channels of large / groups, \\*kernel).

    ``large`` holds the windows and is the spec's first operand, ``small`` one number for each of them.

    Raises:
        SpecError: for a palette.
        DTypeError: for tensors of other numbers.
    """
    dtype = eager.result_dtype("conv_weight", large, small, out_dtype)
    check_spec("conv_weight", spec)
    bits, groups, named, given = eager.call_seed(spec, seed, stream), where.groups, spec, (large, small)
    large, small, spec, seconds = share(large, small, spec, bits)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        small = cast_operand(small, spec.cast_b, bits, Site.OPERAND_B)
    kernel, count = tuple(kernel), tuple(small.shape[2:])
    size, ones = span(count, where.stride, kernel, where.dilation), (1,) * len(kernel)
    placed = place(large, where.padding, ones, size, spec.cast_a, bits, Site.OPERAND_A)
    batch, channels, outputs = large.shape[0], large.shape[1] // groups, small.shape[1] // groups
    b = small.transpose(0, 1).reshape(groups, outputs, batch * count_of(count)).mT
    out = torch.empty((small.shape[1], channels, *kernel), dtype=dtype, device=large.device)
    strides = placed.stride()
    windows = Windows(
        (channels, *kernel),
        (strides[1], *(s * d for s, d in zip(strides[2:], where.dilation, strict=True))),
        (batch, *count),
        (strides[0], *(s * t for s, t in zip(strides[2:], where.stride, strict=True))),
        1,
        0,
        channels * strides[1],
    )
    row = out[0].numel()
    layout = (outputs * row, 0, 1, row)
    plan = compute(WindowProduct(placed, windows, b, spec, out, layout, bits, None, named, seconds))
    last_run.record("conv_weight", backend_name(placed), named.key, plan)
    return _looked_at(out, *given, named)


def _looked_at(out: Tensor, a: Tensor, b: Tensor, spec: GemmSpec) -> Tensor:
    """``out``, the product of ``a`` and ``b`` that ``spec`` means, after a look for operands that became NaN."""
    if operand_overflow.may_overflow(spec):
        operand_overflow.look(a, b, spec, out)
    return out
