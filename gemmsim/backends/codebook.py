"""Rounds tensors to lists of values (codebooks, posits, NF4) by PyTorch's binary search, on any device.

``edges[i]`` is the smallest float64 number that becomes value i + 1 or a later one. The index of a number's value is
therefore the number of edges that do not exceed it. A float64 number may stand for an exact number that was rounded to
odd. This is safe because boundaries have at most 51 bits: all numbers between a boundary and the next float64 number
round as that next number does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import FP64, Cast, CodebookFormat, RoundingMode
from gemmsim.formats.errors import shown

from .device_tables import Tables

__all__ = ["is_codebook", "points_on", "round_to_codebook"]

#: Largest number of dimensions of the tensors that backends round.
_MAX_DIMS = 16
_tables = Tables(64)


def is_codebook(cast: Cast | None) -> bool:
    """Whether ``cast`` rounds to a list of values."""
    return cast is not None and type(cast.format) is CodebookFormat


def round_to_codebook(
    x: Tensor, cast: Cast, out: Tensor, quantize: Callable[[Tensor, Cast, Tensor, int, int, int], None]
) -> None:
    """Write ``cast(x)`` to ``out``, of any float dtype, which may be ``x``; NaN stays NaN.

    A dtype that cannot represent the values rounds them to nearest even once more. ``quantize`` of the device's backend
    does this.
    """
    fmt = cast.format
    assert isinstance(fmt, CodebookFormat)
    edges, points = _tables.get((fmt, cast.rounding), x.device, lambda device: _numbers(cast, device)).tensors
    wide = x.to(torch.float64).contiguous()
    found = points[torch.bucketize(wide, edges, right=True)]
    odd = wide.isnan() | wide.isinf() if fmt.nan else wide.isnan()
    found = found.masked_fill_(odd, math.nan)
    if out.dtype in (torch.float64, torch.float32):
        out.copy_(found)
        return
    flat = out if out.dim() <= _MAX_DIMS else torch.empty(out.numel(), dtype=out.dtype, device=out.device)
    quantize(found.reshape(flat.shape), Cast(FP64), flat, 0, 0, 0)
    if flat is not out:
        out.copy_(flat.view(out.shape))


def points_on(fmt: CodebookFormat, device: torch.device) -> Tensor:
    """Return the values in float64 on ``device``, ascending. Callers must not write to them."""
    return _tables.get((fmt, Cast(fmt).rounding), device, lambda where: _numbers(Cast(fmt), where)).tensors[1]


def _numbers(cast: Cast, device: torch.device) -> tuple[Tensor, Tensor]:
    fmt = cast.format
    assert isinstance(fmt, CodebookFormat)
    if device.type == "cuda":  # this happens only while a graph is captured, which cannot wait for a copy
        from .cuda.errors import CudaError, message

        asked = f"{shown(str(fmt))} used for the first time while a CUDA graph is captured"
        raise CudaError(message(asked, "lists that are already on the GPU", "Run the product once before capturing."))
    return (
        torch.tensor(_edges(cast), dtype=torch.float64, device=device),
        torch.tensor(fmt.points, dtype=torch.float64, device=device),
    )


@lru_cache(maxsize=256)
def _edges(cast: Cast) -> tuple[float, ...]:
    fmt, mode = cast.format, cast.rounding.mode
    assert isinstance(fmt, CodebookFormat)
    edges = []
    for place, (low, high, limit) in enumerate(zip(fmt.points, fmt.points[1:], fmt.limits, strict=False)):
        if mode is RoundingMode.RU or (mode is RoundingMode.RTZ and high <= 0):
            edges.append(math.nextafter(low, math.inf))
        elif mode is RoundingMode.RD or (mode is RoundingMode.RTZ and low >= 0):
            edges.append(high)
        else:
            up = {"low": False, "high": True, "even": place % 2 == 1, "odd": place % 2 == 0}[fmt.tie]
            rises = limit > low and (up or limit == high)  # a number of the list stays itself
            edges.append(limit if rises else math.nextafter(limit, math.inf))
    return tuple(edges)
