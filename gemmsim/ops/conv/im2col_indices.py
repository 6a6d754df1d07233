"""Windows of a convolution as index tables, and its input with everything around it that is zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.backends.convert import cast_into
from gemmsim.backends.device_tables import Tables
from gemmsim.formats import Cast

from ..cast_arguments import carrier_dtype
from ..quantize_eager import cast_operand

__all__ = ["Windows", "offsets", "place", "span"]

#: Tables up to this many entries are kept for the next call.
_KEPT = 1 << 16
_tables = Tables(256)


class Windows(NamedTuple):
    """The matrix of windows: sizes and strides of the dimensions that make its rows and its columns.

    Rows are the ``outer`` of them, then ``row_sizes`` row-major; ``group`` is the distance from group to group.
    """

    row_sizes: tuple[int, ...]
    row_strides: tuple[int, ...]
    col_sizes: tuple[int, ...]
    col_strides: tuple[int, ...]
    outer: int
    outer_stride: int
    group: int

    def rows(self, device: torch.device) -> Tensor:
        """Offsets of the inner rows."""
        return offsets(self.row_sizes, self.row_strides, device)

    def cols(self, device: torch.device) -> Tensor:
        """Offsets of the terms."""
        return offsets(self.col_sizes, self.col_strides, device)

    def matrix(self, t: Tensor, group: int, first: int, last: int) -> Tensor:
        """Rows of ``outer`` indices first to last of one group, as a matrix in memory."""
        sizes = (last - first, *self.row_sizes, *self.col_sizes)
        start = t.storage_offset() + group * self.group + first * self.outer_stride
        view = t.as_strided(sizes, (self.outer_stride, *self.row_strides, *self.col_strides), start)
        terms = 1
        for size in self.col_sizes:
            terms *= size
        return view.reshape(-1 if terms else view.shape[: -len(self.col_sizes)].numel(), terms)


def _offsets(sizes: tuple[int, ...], strides: tuple[int, ...], device: torch.device) -> Tensor:
    table = torch.zeros(1, dtype=torch.int64, device=device)
    for size, stride in zip(sizes, strides, strict=True):
        step = torch.arange(size, dtype=torch.int64, device=device) * stride
        table = (table[:, None] + step).view(-1)
    return table


def offsets(sizes: tuple[int, ...], strides: tuple[int, ...], device: torch.device) -> Tensor:
    """Offset of every index of an array, row-major, int64 on ``device``, about to be read by a launch there."""
    count = 1
    for size in sizes:
        count *= size
    if count > _KEPT:
        return _offsets(sizes, strides, device)
    return _tables.get((sizes, strides), device, lambda where: (_offsets(sizes, strides, where),)).tensors[0]


def span(count: Sequence[int], step: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """How many elements ``count`` windows, ``step`` apart, reach over."""
    return tuple(
        (c - 1) * s + d * (k - 1) + 1 if c else 0 for c, s, k, d in zip(count, step, kernel, dilation, strict=True)
    )


def place(
    x: Tensor,
    before: Sequence[int],
    step: Sequence[int],
    size: Sequence[int],
    cast: Cast | None,
    bits: int,
    site: int,
) -> Tensor:
    """Zeros (B, C, \\*size) with ``cast`` of element i of ``x`` at ``before + i * step``, what falls outside dropped.

    A view of ``x`` where nothing is rounded and nothing lies around or between. Random bits of a cast belong to the
    index in ``x``.
    """
    if cast is not None and cast.is_stochastic:
        x, cast = cast_operand(x, cast, bits, site), None
    inside, places, whole = x, [], True
    for i, (n, b, s, total) in enumerate(zip(x.shape[2:], before, step, size, strict=True)):
        first = -(b // s) if b < 0 else 0
        last = max(first, min(n, (total - 1 - b) // s + 1))
        first = min(first, n)
        inside = inside.narrow(i + 2, first, max(0, min(last, n) - first))
        places.append(slice(b + first * s, b + (last - 1) * s + 1, s) if last > first else slice(0, 0))
        whole = whole and last - first == total and (s == 1 or total == 1)
    if whole and cast is None:
        return inside
    dtype = x.dtype if cast is None else carrier_dtype(cast.format, x.dtype)
    make = torch.empty if whole else torch.zeros
    out = make((*x.shape[:2], *size), dtype=dtype, device=x.device)
    inner = (slice(None), slice(None), *places)
    target = out if whole else out[inner]
    if target.numel() == 0:
        return out
    if cast is None:
        target.copy_(inside)
    else:
        cast_into(inside, cast, target, bits, site)
    return out
