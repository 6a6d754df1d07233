"""Exponents that blocks share, and tensors cut into blocks, as microxcaling's helpers have them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .steps import floor_log2

__all__ = ["_reshape_to_blocks", "_shared_exponents", "_undo_reshape_to_blocks"]


def _shared_exponents(A: Tensor, method: str = "max", axes: Sequence[int] | None = None, ebits: int = 0) -> Tensor:
    """floor(log2) of the largest magnitude along ``axes``, which stay with one element, in ``A``'s dtype.

    The logarithm is rounded to float32 first, as there; of zeros it is -126, infinity and NaN stay.

    Args:
        method: "max", or "none" for an exponent of each element's own.
        axes: None for the one exponent of the whole tensor, without dimensions.
        ebits: bits of the exponents, if not 0: beyond e = 2^(ebits-1) - 1 they are NaN, below -e they become -e.

    Raises:
        Exception: for another ``method``.
    """
    x = A.detach() if A.dtype == torch.float64 else A.detach().float()
    largest = x.abs()
    if method not in ("max", "none"):
        raise Exception(f"Unrecognized shared exponent selection method {method}; allowed: max, none")
    if method == "max":
        largest = largest.amax() if axes is None else largest.amax(list(axes), keepdim=True) if axes else largest
    found = floor_log2(torch.where(largest == 0, 2.0**-126, largest))
    if ebits > 0:
        limit = 2.0 ** (ebits - 1) - 1
        found = torch.where(found > limit, torch.nan, found.clamp(min=-limit))
    return found.to(A.dtype)


def _reshape_to_blocks(
    A: Tensor, axes: Sequence[int] | None, block_size: int
) -> tuple[Tensor, list[int], torch.Size, torch.Size]:
    """(tensor, axes, shape, padded shape) of ``A`` with each of ``axes`` cut into blocks, filled up with zeros.

    Blocks are a new dimension behind each axis; the axes returned are those of the counts of blocks. The two shapes
    have a dimension of one element there, and are what ``_undo_reshape_to_blocks`` takes.

    Raises:
        Exception: without axes, and for blocks of 0.
        AssertionError: for an axis that ``A`` has not.
    """
    if axes is None:
        raise Exception("axes required in order to determine which dimension to apply block size to")
    if block_size == 0:
        raise Exception("block_size == 0 in _reshape_to_blocks; allowed: 1 or more")
    places = sorted(axis + A.dim() if axis < 0 else axis for axis in axes)
    if not all(0 <= place < A.dim() for place in places):
        raise AssertionError(f"axes {list(axes)} of a tensor of {A.dim()} dimensions; allowed: those it has")
    counts = [place + before for before, place in enumerate(places)]
    for place in counts:
        A = A.unsqueeze(place + 1)
    shape = A.size()
    padding = [end for place in reversed(range(A.dim())) for end in (0, -shape[place] % block_size * (place in counts))]
    A = torch.nn.functional.pad(A, padding)
    padded = A.size()
    cut = list(padded)
    for place in counts:
        cut[place : place + 2] = [padded[place] // block_size, block_size]
    return A.reshape(cut), counts, shape, padded


def _undo_reshape_to_blocks(
    A: Tensor, padded_shape: Sequence[int], orig_shape: Sequence[int], axes: Sequence[int]
) -> Tensor:
    """The tensor that ``_reshape_to_blocks`` cut, of these shapes and axes that it returned."""
    A = A.reshape(tuple(padded_shape))[tuple(slice(size) for size in orig_shape)]
    for axis in sorted(axes, reverse=True):
        A = A.squeeze(axis + 1)
    return A
