"""Products of the windows of a tensor with a weight, and what computes them.

The windows are read in place, through index tables. They become a matrix in memory where native products are asked for
(``cublas_acceleration``), for exact sums, which a native product may prove to have, and for operands in block formats;
for deterministic specs no more than a block of images at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import route
from gemmsim.backends.convert import cast_into
from gemmsim.backends.implicit_im2col import Gathered
from gemmsim.backends.product import Product
from gemmsim.formats import Cast

from ..product import eager
from ..product.blocks import Seconds
from ..product.broadcasting import NOTHING, general_matmul
from ..quantize_eager import cast_operand
from ..seeds import Site
from .blocks import blocks_matmul
from .im2col_indices import Windows

__all__ = ["How", "Reading", "WindowProduct", "compute", "count_of", "window_product"]

#: Most elements of a matrix of windows in memory, if one image has not more.
_BLOCK = 1 << 24


class How(NamedTuple):
    """How a convolution is computed: random bits, dtype and addend, the cast of x that is left, the spec as named."""

    bits: int
    dtype: torch.dtype
    c: Tensor | None
    cast: Cast | None
    named: GemmSpec


class WindowProduct(NamedTuple):
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


def count_of(sizes: Sequence[int]) -> int:
    """Product of sizes."""
    count = 1
    for size in sizes:
        count *= size
    return count


class Reading(NamedTuple):
    """How windows lie in what they are read from: how far apart, how far apart their elements, and their size."""

    step: Sequence[int]
    dilation: Sequence[int]
    kernel: Sequence[int]


def window_product(
    large: Tensor, reading: Reading, b: Tensor, spec: GemmSpec, how: How, seconds: Seconds, out: Tensor
) -> object:
    """Write the products of the windows of ``large`` with the matrices ``b`` of the groups to ``out`` (B, groups *
    columns, ...), contiguous; what ran."""
    groups, channels, strides = b.shape[0], large.shape[1] // b.shape[0], large.stride()
    windows = Windows(
        tuple(out.shape[2:]),
        tuple(s * t for s, t in zip(strides[2:], reading.step, strict=True)),
        (channels, *reading.kernel),
        (strides[1], *(s * d for s, d in zip(strides[2:], reading.dilation, strict=True))),
        large.shape[0],
        strides[0],
        channels * strides[1],
    )
    positions = out.stride(1)
    layout = (b.shape[2] * positions, out.stride(0), 1, positions)
    c = None if how.c is None else how.c.expand(groups * b.shape[2]).view(groups, -1)
    return compute(WindowProduct(large, windows, b, spec, out, layout, how.bits, c, how.named, seconds))


def compute(product: WindowProduct) -> object:
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


def _explicit(whole: WindowProduct) -> object:
    """``whole`` with the windows as matrices in memory, an ordinary product for each group; what ran."""
    a, windows, b, spec, out, layout, bits, c, named, seconds = whole
    if spec.cast_b is not None and not spec.cast_b.is_stochastic:
        b = cast_operand(b, spec.cast_b, bits, Site.OPERAND_B)
    stripped = eager.without_operand_casts(spec)
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
