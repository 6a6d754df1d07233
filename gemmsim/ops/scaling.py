"""Tensor scaling: a power of two per matrix that brings its largest magnitude just below the largest of a format."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .dispatch import is_batch_of_gradients, transforms_active
from .torch_versions import VIEWS_UNDER_VMAP, has

__all__ = ["scale_by_power", "scale_exponent"]

_VIEWS = has(VIEWS_UNDER_VMAP)


def scale_exponent(t: Tensor, largest: float | str, margin: int, dims: tuple[int, ...]) -> Tensor:
    """``floor(log2(largest / amax)) - margin`` where amax is the largest finite magnitude of ``t`` over ``dims``.

    Integer tensor of ``t``'s shape with ``dims`` kept as size one. Exact: the logarithm is read off the exponents.
    ``largest`` may be the text of a number. NaN and infinities do not count; where nothing but zeros (or nothing at
    all) is left the exponent is 0.
    """
    if t.numel() == 0:
        shape = [1 if i in dims or i - t.dim() in dims else n for i, n in enumerate(t.shape)]
        return torch.zeros(shape, dtype=torch.int64, device=t.device)
    t = t.detach() if t.requires_grad else t  # a batch of gradients has no batching rule for detach
    magnitude = torch.where(torch.isfinite(t), t.abs(), torch.zeros((), dtype=t.dtype, device=t.device))
    amax = magnitude.amax(dims, keepdim=True).double()
    significand, exponent = torch.frexp(amax)
    top, top_exponent = math.frexp(float(largest))
    floor_log2 = top_exponent - exponent.long() - (significand > top).long()
    return torch.where(amax > 0, floor_log2 - margin, torch.zeros_like(floor_log2))


def scale_by_power(t: Tensor, exponent: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``t * 2**exponent``, computed in float64 and rounded once to ``dtype`` (default: that of ``t``).

    Infinities, NaN and the sign of zero stay; what leaves the range of ``dtype`` becomes infinity or zero.
    """
    exponent = exponent.clamp(-2044, 2046)
    half = exponent >> 1
    return (t.double() * _power_of_two(half) * _power_of_two(exponent - half)).to(t.dtype if dtype is None else dtype)


def _power_of_two(exponent: Tensor) -> Tensor:
    """2**exponent as float64, -1022 <= exponent <= 1023, written as bits because exp2 may be off by an ulp."""
    gradients = is_batch_of_gradients(exponent)
    if gradients or _transformed_without_views():
        powers = torch.tensor([2.0**k for k in range(-1022, 1024)], dtype=torch.float64, device=exponent.device)
        return torch.take(powers, exponent + 1022) if gradients else powers[exponent + 1022]
    return ((exponent + 1023) << 52).view(torch.float64)


def _transformed_without_views() -> bool:
    """Whether ``torch.func`` transforms the call, with a PyTorch that may not view the bits of a batch of it."""
    return not (_VIEWS or torch.compiler.is_compiling()) and transforms_active()
