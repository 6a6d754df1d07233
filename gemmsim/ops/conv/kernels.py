"""Convolutions on ordinary tensors, as products of their windows with the weight.

The windows are read in place, through index tables. They become a matrix in memory where native products are asked for
(``cublas_acceleration``), for exact sums, which a native product may prove to have, and for operands in block formats;
for deterministic specs no more than a block of images at a time.
Everything here runs below PyTorch's dispatcher: no autograd, no tracing, no modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Palette, SpecError
from gemmsim.backends import route
from gemmsim.backends.convert import cast_into
from gemmsim.backends.gathered import Gathered
from gemmsim.backends.product import Product
from gemmsim.formats import Cast

from .. import state
from ..errors import message
from ..product import kernels, operand_overflow
from ..product.blocks import Seconds
from ..product.finishing import is_wide
from ..product.general import NOTHING, general_matmul
from ..rounding import cast_operand
from ..seeds import Site
from .arguments import Geometry
from .blocks import blocks_matmul, share
from .overlap import overlap_add, start
from .windows import Windows, place, span

__all__ = ["check_spec", "conv", "conv_weight", "conv_with_operands"]

#: Most elements of a matrix of windows in memory, if one image has not more.
_BLOCK = 1 << 24
#: The same of the results that an overlap-add adds: what the caches hold.
_COLUMNS = 1 << 20
_NAN, _INF = float("nan"), float("inf")


class _How(NamedTuple):
    """How a convolution is computed: random bits, dtype and addend, the cast of x that is left, the spec as named."""

    bits: int
    dtype: torch.dtype
    c: Tensor | None
    cast: Cast | None
    named: GemmSpec


class _Product(NamedTuple):
    """The product of the windows of ``a`` with the matrices ``b`` of each group, written to ``out``.

    ``layout``: strides of ``out`` for groups, outer rows, inner rows and columns.
    """

    a: Tensor
    windows: Windows
    b: Tensor
    spec: GemmSpec
    out: Tensor
    layout: tuple[int, int, int, int]
    bits: int
    c: Tensor | None
    named: GemmSpec
    seconds: Seconds


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
    dtype = kernels.result_dtype("conv", x, weight, out_dtype)
    check_spec("conv", spec)
    how = _How(kernels.call_seed(spec, seed, stream), dtype, c, spec.cast_a, spec)
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
    dtype = kernels.result_dtype("conv", x, weight, out_dtype)
    check_spec("conv", spec)
    bits = kernels.call_seed(spec, seed, stream)
    cast_x = x.new_empty(0) if spec.cast_a is None else cast_operand(x, spec.cast_a, bits, Site.OPERAND_A)
    cast_w = x.new_empty(0) if spec.cast_b is None else cast_operand(weight, spec.cast_b, bits, Site.OPERAND_B)
    left, right = (x if spec.cast_a is None else cast_x), (weight if spec.cast_b is None else cast_w)
    ready = spec if spec.cast_b is None or not spec.cast_b.is_stochastic else replace(spec, b=None)
    out = _conv(left, right, ready, where, _How(bits, dtype, c, None, spec))
    return _looked_at(out, x, weight, spec), cast_x, cast_w


def _conv(x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: _How) -> Tensor:
    groups, kernel = where.groups, weight.shape[2:]
    bits, dtype, c, cast, named = how
    x, weight, spec, seconds = share(x, weight, spec, bits)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        weight = cast_operand(weight, spec.cast_b, bits, Site.OPERAND_B)
    if where.transposed and where.order == "col2im":
        return _col2im(x, weight, spec, where, how, seconds)
    if where.transposed:
        reach = tuple(d * (k - 1) for d, k in zip(where.dilation, kernel, strict=True))
        before = tuple(r - p for r, p in zip(reach, where.padding, strict=True))
        size = tuple(n + r for n, r in zip(where.output_size, reach, strict=True))
        large, step = place(x, before, where.stride, size, cast, bits, Site.OPERAND_A), (1,) * len(kernel)
        b = _flipped(weight, groups)
    else:
        size = span(where.output_size, where.stride, kernel, where.dilation)
        large, step = place(x, where.padding, (1,) * len(kernel), size, cast, bits, Site.OPERAND_A), where.stride
        b = weight.reshape(groups, weight.shape[0] // groups, weight[0].numel()).mT
    batch, channels = x.shape[0], x.shape[1] // groups
    out = torch.empty((batch, groups * b.shape[2], *where.output_size), dtype=dtype, device=x.device)
    strides = large.stride()
    windows = Windows(
        where.output_size,
        tuple(s * t for s, t in zip(strides[2:], step, strict=True)),
        (channels, *kernel),
        (strides[1], *(s * d for s, d in zip(strides[2:], where.dilation, strict=True))),
        batch,
        strides[0],
        channels * strides[1],
    )
    positions = out.stride(1)
    layout = (b.shape[2] * positions, out.stride(0), 1, positions)
    c = None if c is None else c.expand(groups * b.shape[2]).view(groups, -1)
    _run("conv", _Product(large, windows, b, spec, out, layout, bits, c, named, seconds))
    return out


def _col2im(x: Tensor, weight: Tensor, spec: GemmSpec, where: Geometry, how: _How, seconds: Seconds) -> Tensor:
    """The products of x with the weight at each kernel position, a few images at a time, and their overlap-add.

    The addend is the first number of the overlap-add, or its last where ``spec`` takes it last.
    """
    bits, dtype, c, cast, named = how
    kernel, groups = tuple(weight.shape[2:]), where.groups
    x = place(x, (0,) * len(kernel), (1,) * len(kernel), x.shape[2:], cast, bits, Site.OPERAND_A)
    addend_last, spec = getattr(spec.accumulator, "init", "") == "c_last", _without_addend(spec, c)
    wide = is_wide(spec) or dtype == torch.float64 or (c is not None and c.dtype == torch.float64)
    work = torch.float64 if wide else torch.float32
    c = None if c is None else c.to(work).view(groups, -1)
    b = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], count_of(kernel))
    out = torch.empty((x.shape[0], groups * weight.shape[1], *where.output_size), dtype=dtype, device=x.device)
    images = x.shape[0]
    if not spec.is_stochastic:  # the random bits of an element belong to its place among all images
        images = max(1, min(images, _COLUMNS // max(1, groups * b[0, 0].numel() * count_of(x.shape[2:]))))
    plan: object = NOTHING
    columns = torch.empty((images, *x.shape[2:], groups, b[0, 0].numel()), dtype=work, device=x.device)
    for first in range(0, x.shape[0] if out.numel() else 0, images):
        block, target = x[first : first + images], out[first : first + images]
        total = torch.empty((block.shape[0], *where.output_size, groups, weight.shape[1]), dtype=work, device=x.device)
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
    state.record("conv", state.backend_name(x), named.key, plan)
    return out


def _without_addend(spec: GemmSpec, c: Tensor | None) -> GemmSpec:
    """``spec`` of the products where the addend ``c`` belongs to their overlap-add."""
    if c is None:
        return spec
    return replace(spec, accumulator=replace(spec.accumulator, init="zero"))  # type: ignore[call-arg]


def _columns(x: Tensor, b: Tensor, spec: GemmSpec, how: _How, seconds: Seconds, out: Tensor) -> object:
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
    return _plan(_Product(x, windows, b, spec, out, layout, how.bits, None, how.named, seconds))


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
    dtype = kernels.result_dtype("conv_weight", large, small, out_dtype)
    check_spec("conv_weight", spec)
    bits, groups, named, given = kernels.call_seed(spec, seed, stream), where.groups, spec, (large, small)
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
    _run("conv_weight", _Product(placed, windows, b, spec, out, layout, bits, None, named, seconds))
    return _looked_at(out, *given, named)


def _looked_at(out: Tensor, a: Tensor, b: Tensor, spec: GemmSpec) -> Tensor:
    """``out``, the product of ``a`` and ``b`` that ``spec`` means, after a look for operands that became NaN."""
    if operand_overflow.may_overflow(spec):
        operand_overflow.look(a, b, spec, out)
    return out


def count_of(sizes: Sequence[int]) -> int:
    """Product of sizes."""
    count = 1
    for size in sizes:
        count *= size
    return count


def _run(op: str, product: _Product) -> None:
    """Compute ``product`` and record what ran."""
    plan = _plan(product)
    state.record(op, state.backend_name(product.a), product.named.key, plan)


def _plan(product: _Product) -> object:
    """Compute ``product``; what ran."""
    a, windows, b, spec, out, layout, bits, c, named, _ = product
    if not out.numel():
        return NOTHING
    if route.reads_windows(spec):
        rows, cols = windows.rows(a.device), windows.cols(a.device)
        tables = Gathered(rows, cols, windows.outer, windows.group, windows.outer_stride, *layout)
        return route.run(Product(a, b, spec, out, bits, c, named=named, windows=tables))
    if spec.out is not None and spec.out.is_stochastic:
        raw = torch.empty_like(out, dtype=torch.float64)
        plan = _explicit(product._replace(spec=replace(spec, out=None), out=raw))
        cast_into(raw, spec.out, out, bits, Site.OUTPUT)
        return plan
    return _explicit(product)


def _explicit(whole: _Product) -> object:
    """``whole`` with the windows as matrices in memory, an ordinary product for each group; what ran."""
    a, windows, b, spec, out, layout, bits, c, named, seconds = whole
    if spec.cast_b is not None and not spec.cast_b.is_stochastic:
        b = cast_operand(b, spec.cast_b, bits, Site.OPERAND_B)
    stripped = kernels.without_operand_casts(spec)
    n, inner = b.shape[2], count_of(windows.row_sizes)
    images = windows.outer
    if not spec.is_stochastic:
        images = max(1, _BLOCK // max(1, inner * b.shape[1]))
    plan: object = ""
    for group in range(b.shape[0]):
        # An element's random bits belong to its column among all groups: columns before it are computed, too.
        skipped = group * n if spec.is_stochastic else 0
        right = b[group]
        addend = None if c is None else c[group]
        if skipped:
            right = torch.cat([right.new_zeros(right.shape[0], skipped), right], 1)
            addend = None if addend is None else torch.cat([addend.new_zeros(skipped), addend])
        for first in range(0, windows.outer, images):
            last = min(windows.outer, first + images)
            left = windows.matrix(a, group, first, last)
            if stripped.has_blocks:
                product, plan = blocks_matmul(left, right, stripped, bits, out.dtype, addend, seconds)
            else:
                product, plan = general_matmul(left, right, stripped, bits, out.dtype, addend, None, named)
            start = out.storage_offset() + group * layout[0] + first * layout[1]
            target = out.as_strided((last - first, inner, n), layout[1:], start)
            target.copy_(product[:, skipped:].reshape(last - first, inner, n))
    return plan
