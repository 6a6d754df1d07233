"""Convolutions as matrix products: the windows of the image as rows, the filters as columns.

K runs over the channels of a group, slowest, then over the kernel's positions, row-major; M over images, then output
positions, row-major. Positions outside the image are zeros and terms like others.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from ..aten_products import Windows

__all__ = ["GroupProduct", "group_products", "order_of_k", "order_of_m"]

_AXES = {1: ("columns",), 2: ("rows", "columns"), 3: ("planes", "rows", "columns")}


class GroupProduct(NamedTuple):
    """The product of one group: a (M, K) and b (K, N)."""

    group: int
    a: Tensor
    b: Tensor


def order_of_k(axes: int) -> str:
    """What K runs over, slowest first, in a convolution of so many spatial dimensions."""
    return ", ".join(["channels", *(f"kernel {name}" for name in _AXES[axes])])


def order_of_m(axes: int) -> str:
    """What M runs over, slowest first."""
    return ", ".join(["images", *(f"output {name}" for name in _AXES[axes])])


def group_products(image: Tensor, weight: Tensor, where: Windows, rows: Tensor | None = None) -> Iterator[GroupProduct]:
    """The products whose sums are those of a convolution, one for each group.

    Args:
        image: (N, C, ...). weight: (F, C / groups, ...).
        where: stride, padding, dilation, size of the output and groups.
        rows: indices of the rows of a that are wanted; None: all. Only these are copied.
    """
    view = _windows(image, weight, where)  # (N, *out, C, *kernel)
    channels, filters = weight.shape[1], weight.shape[0] // where.groups
    places = view.shape[: 1 + len(where.output_size)]
    chosen = None if rows is None else torch.unravel_index(rows, places)
    at = len(places)
    for group in range(where.groups):
        own = view.narrow(at, group * channels, channels)
        taken = own if chosen is None else own[chosen]
        count = prod(places) if rows is None else len(rows)
        terms = channels * prod(weight.shape[2:])
        b = weight.narrow(0, group * filters, filters).reshape(filters, terms).mT
        yield GroupProduct(group, taken.reshape(count, terms), b)


def _windows(image: Tensor, weight: Tensor, where: Windows) -> Tensor:
    """The image as (N, *output, C, *kernel): a view of the image with zeros around it."""
    view = _padded(image, weight, where)
    for axis, kernel in enumerate(weight.shape[2:]):
        reach = where.dilation[axis] * (kernel - 1) + 1
        view = view.unfold(2 + axis, reach, where.stride[axis])[..., :: where.dilation[axis]]
    axes = len(where.output_size)
    for axis, size in enumerate(where.output_size):
        view = view.narrow(2 + axis, 0, size)
    return view.permute(0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))


def _padded(image: Tensor, weight: Tensor, where: Windows) -> Tensor:
    """The image with zeros before it, as many as the padding says, and after it, as many as the last window needs."""
    before, sizes = [], []
    for axis, kernel in enumerate(weight.shape[2:]):
        last = (where.output_size[axis] - 1) * where.stride[axis] + where.dilation[axis] * (kernel - 1) + 1
        before.append(where.padding[axis])
        sizes.append(max(last, where.padding[axis] + image.shape[2 + axis]))
    padded = image.new_zeros((*image.shape[:2], *sizes))
    inside = (slice(None), slice(None), *(slice(p, p + n) for p, n in zip(before, image.shape[2:], strict=True)))
    padded[inside] = image
    return padded
