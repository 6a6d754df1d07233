"""Transposed convolutions: a product followed by an overlap-add, or one sum for each place of the result.

Which, says ``Geometry.order``; ``QAffineFormats.transposed_sum`` has the meaning of each.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.convert import cast_into

from ..product.blocks import Seconds
from ..product.broadcasting import NOTHING
from ..product.epilogue import is_wide
from ..quantize_eager import cast_operand
from ..seeds import Site, derive_seed
from .arguments import Geometry
from .im2col_indices import Windows, place
from .overlap import contributing, overlap_add, start
from .products import How, Reading, WindowProduct, compute, count_of, window_product

__all__ = ["transposed"]

_NAN, _INF = float("nan"), float("inf")
#: Most results that an overlap-add adds at a time, if one image has not more: what the caches hold.
_COLUMNS = 1 << 20
#: The seed of random bits of the i-th remainder is that of stream ``_REMAINDERS + i``.
_REMAINDERS = 64


def transposed(
    x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: How, seconds: Seconds, out: Tensor
) -> object:
    """Write the transposed convolution of x (B, C, ...) and the weight, in the order of ``where``, to ``out``, which is
    contiguous and has elements; what ran."""
    order = {"col2im": _col2im, "taps": _by_remainder, "zeros": _with_zeros}[where.order]
    return order(x, weight, spec, where, how, seconds, out)


def _col2im(
    x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: How, seconds: Seconds, out: Tensor
) -> object:
    """The products of x with the weight at each kernel position, a few images at a time, and their overlap-add.

    The addend is the first number of the overlap-add, or its last where ``spec`` takes it last.
    """
    bits, _, c, cast, _ = how
    kernel, groups = tuple(weight.shape[2:]), where.groups
    x = place(x, (0,) * len(kernel), (1,) * len(kernel), x.shape[2:], cast, bits, Site.OPERAND_A)
    addend_last, spec = getattr(spec.accumulator, "init", "") == "c_last", _without_addend(spec, c)
    wide = is_wide(spec) or out.dtype == torch.float64 or (c is not None and c.dtype == torch.float64)
    work = torch.float64 if wide else torch.float32
    c = None if c is None else c.to(work).view(groups, -1)
    b = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], count_of(kernel))
    images = x.shape[0]
    if not spec.is_stochastic:  # the random bits of an element belong to its place among all images
        images = max(1, min(images, _COLUMNS // (groups * b[0, 0].numel() * count_of(x.shape[2:]) or 1)))
    plan: object = NOTHING
    columns = torch.empty((images, *x.shape[2:], groups, b.shape[2] * b.shape[3]), dtype=work, device=x.device)
    for first in range(0, x.shape[0], images):
        block, target = x[first : first + images], out[first : first + images]
        total = torch.empty((block.shape[0], *where.output_size, *b.shape[::2]), dtype=work, device=x.device)
        start(total, where, kernel, x.shape[2:])
        if c is not None and not addend_last:
            total.copy_(c.expand_as(total))
        results = columns[: block.shape[0]]
        plan = _columns(block, b, spec, how._replace(dtype=work), seconds, results)
        overlap_add(total, _by_position(results, b, spec), where, kernel)
        if c is not None and addend_last:
            total += c
        total.nan_to_num_(_NAN, _INF, -_INF)  # the sign of a NaN that an addition makes is the processor's
        cast_into(total.flatten(-2).movedim(-1, 1), spec.out, target, bits, Site.OVERLAP)
    return plan


def _without_addend(spec: GemmSpec, c: Tensor | None) -> GemmSpec:
    """``spec`` of the products where the addend ``c`` belongs to their overlap-add."""
    if c is None:
        return spec
    return replace(spec, accumulator=replace(spec.accumulator, init="zero"))  # type: ignore[call-arg]


def _columns(x: Tensor, b: Tensor, spec: GemmSpec, how: How, seconds: Seconds, out: Tensor) -> object:
    """Write the product of x (B, C, ...) with the weight ``b`` (groups, C / groups, channels, positions) to ``out``
    (B, ..., groups, columns); what ran.

    Columns are channels, positions fastest, as random bits count them; without such the other way round, so that the
    numbers of one position lie together.
    """
    channels, strides = b.shape[1], x.stride()
    if not spec.is_stochastic:
        b = b.transpose(2, 3)
    b = b.reshape(*b.shape[:2], -1)
    windows = Windows(
        tuple(x.shape[2:]), strides[2:], (channels,), (strides[1],), x.shape[0], strides[0], channels * strides[1]
    )
    layout = (b.shape[2], out.stride(0), out.shape[-2] * out.shape[-1], 1)
    return compute(WindowProduct(x, windows, b, spec, out, layout, how.bits, None, how.named, seconds))


def _by_position(columns: Tensor, b: Tensor, spec: GemmSpec) -> Tensor:
    """What ``_columns`` wrote, as (B, ..., groups, channels, positions)."""
    channels, positions = b.shape[2:]
    if spec.is_stochastic:
        return columns.unflatten(-1, (channels, positions))
    return columns.unflatten(-1, (positions, channels)).transpose(-1, -2)


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution as the matrices (groups, in x kernel positions from the last, out)."""
    n = weight.dim() - 2
    split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).flip(tuple(range(3, 3 + n)))
    moved = split.movedim(2, -1)
    return moved.reshape(groups, weight.shape[0] // groups * weight.shape[2:].numel(), weight.shape[1])


def _by_remainder(
    x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: How, seconds: Seconds, out: Tensor
) -> object:
    """One sum over channels and the kernel positions at which elements of ``x`` lie, by descending position.

    Places of the result with one remainder modulo the stride have the same positions: an ordinary convolution with
    stride 1. Random bits of each have a seed of their own.
    """
    bits, cast = how.bits, how.cast
    if cast is not None and cast.is_stochastic:
        x, cast = cast_operand(x, cast, bits, Site.OPERAND_A), None
    kernel, ones, every = weight.shape[2:], (1,) * (x.dim() - 2), (slice(None), slice(None))
    plan: object = NOTHING
    for index, remainders in enumerate(itertools.product(*map(range, where.stride))):
        taps = [contributing(where, axis, r, kernel[axis]) for axis, r in enumerate(remainders)]
        target = out[every + tuple(slice(r, None, s) for r, s in zip(remainders, where.stride, strict=True))]
        if not target.numel():
            continue
        b = _flipped(weight[every + tuple(one.taps for one in taps)], where.groups)
        number, dilation = [one.number for one in taps], [one.dilation for one in taps]
        size = [n + d * max(k - 1, 0) for n, k, d in zip(target.shape[2:], number, dilation, strict=True)]
        large = place(x, [one.before for one in taps], ones, size, cast, bits, Site.OPERAND_A)
        result = torch.empty_like(target, memory_format=torch.contiguous_format)
        own = how._replace(bits=derive_seed(bits, _REMAINDERS + index))
        plan = window_product(large, Reading(ones, dilation, number), b, spec, own, seconds, result)
        target.copy_(result)
    return plan


def _with_zeros(
    x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: How, seconds: Seconds, out: Tensor
) -> object:
    """The convolution with stride 1 of ``x``, ``stride - 1`` zeros between its elements, with the flipped kernel."""
    kernel, ones = weight.shape[2:], (1,) * (x.dim() - 2)
    reach = tuple(d * (k - 1) for d, k in zip(where.dilation, kernel, strict=True))
    before = tuple(r - p for r, p in zip(reach, where.padding, strict=True))
    size = tuple(n + r for n, r in zip(where.output_size, reach, strict=True))
    large = place(x, before, where.stride, size, how.cast, how.bits, Site.OPERAND_A)
    reading = Reading(ones, where.dilation, kernel)
    return window_product(large, reading, _flipped(weight, where.groups), spec, how, seconds, out)
