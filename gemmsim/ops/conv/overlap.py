"""Where results of a transposed convolution go: the overlap-add of its products (col2im), and which kernel positions
contribute to a place of the result."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from .arguments import Geometry

__all__ = ["Taps", "contributing", "overlap_add", "start"]


class Taps(NamedTuple):
    """The kernel positions that contribute to places of one remainder, along one dimension: ``taps``, ``number`` of
    them.

    As windows of x they are ``dilation`` apart and begin ``before`` elements before it.
    """

    taps: slice
    number: int
    before: int
    dilation: int


def contributing(where: Geometry, axis: int, remainder: int, kernel: int) -> Taps:
    """What contributes along ``axis`` to the places ``remainder + stride * t`` of the result."""
    step, spread = where.stride[axis], where.dilation[axis]
    reached = [j for j in range(kernel) if (remainder + where.padding[axis] - j * spread) % step == 0]
    if not reached:
        return Taps(slice(0, 0), 0, 0, 1)
    between = reached[1] - reached[0] if len(reached) > 1 else 1
    first = (remainder + where.padding[axis] - reached[-1] * spread) // step
    dilation = between * spread // step if len(reached) > 1 else 1
    return Taps(slice(reached[0], reached[-1] + 1, between), len(reached), -first, dilation)


def start(out: Tensor, where: Geometry, kernel: Sequence[int], x_size: Sequence[int]) -> None:
    """Fill ``out`` (B, \\*output_size, channels...) with what the overlap-add begins from: the neutral -0, so that a
    result to which no other is added stays as it is, and +0 where no result falls."""
    out.fill_(-0.0)
    for axis in range(len(kernel)):
        reached = {
            where_to
            for tap in range(kernel[axis])
            for where_to in range(*_places(where, axis, tap, x_size[axis])[1].indices(out.shape[axis + 1]))
        }
        for place in set(range(out.shape[axis + 1])) - reached:
            out.select(axis + 1, place).zero_()


def overlap_add(out: Tensor, columns: Tensor, where: Geometry, kernel: Sequence[int]) -> None:
    """Add ``columns`` (B, \\*x_size, channels..., positions of the kernel) to ``out`` (B, \\*output_size, channels...).

    Element i at kernel position j goes to ``i * stride + j * dilation - padding``; what falls outside is dropped.
    Positions are added in ascending order, row-major, each addition rounded to nearest in the dtype of both.
    """
    x_size = columns.shape[1 : 1 + len(kernel)]
    for index, taps in enumerate(itertools.product(*map(range, kernel))):
        found = [_places(where, axis, tap, x_size[axis]) for axis, tap in enumerate(taps)]
        source, target = ((slice(None), *side) for side in zip(*found, strict=True))
        out[target].add_(columns.select(-1, index)[source])


def _places(where: Geometry, axis: int, tap: int, size: int) -> tuple[slice, slice]:
    """The elements of x along ``axis`` that a kernel position takes into the result, and where they go."""
    step, total = where.stride[axis], where.output_size[axis]
    offset = tap * where.dilation[axis] - where.padding[axis]
    first = -(offset // step) if offset < 0 else 0
    last = min(size, (total - 1 - offset) // step + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(first * step + offset, (last - 1) * step + offset + 1, step)
