"""The casts that PyTorch's autocast makes in front of a product.

Autocast is below the emulation, so overrides make its casts before they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["autocast", "autocast_on_accelerators", "full_precision", "is_enabled", "promoted", "untouched"]


def is_enabled(device: str) -> bool:
    """Whether autocast is on for a kind of device. It is off for meta tensors, which have no data."""
    return device != "meta" and torch.is_autocast_enabled(device)


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """Operands as autocast passes them to a product: floating-point ones in its dtype, float64 and others unchanged."""
    device = _device(tensors)
    if not is_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(_cast(t, dtype) for t in tensors)


def autocast_on_accelerators(*tensors: Any) -> tuple[Any, ...]:
    """``autocast`` for products of vectors, which are not in the CPU's list."""
    return tensors if _device(tensors) == "cpu" else autocast(*tensors)


def promoted(*tensors: Any) -> tuple[Any, ...]:
    """Operands of calls that autocast computes in the widest of their dtypes.

    On the CPU they are unchanged: its list has no such product.
    """
    device = _device(tensors)
    if device == "cpu" or not is_enabled(device):
        return tensors
    wide = any(isinstance(t, Tensor) and t.dtype == torch.float32 for t in tensors)
    dtype = torch.float32 if wide else torch.get_autocast_dtype(device)
    return tuple(_cast(t, dtype) for t in tensors)


def full_precision(*tensors: Any) -> tuple[Any, ...]:
    """Operands of calls that autocast computes in float32."""
    if not is_enabled(_device(tensors)):
        return tensors
    return tuple(_cast(t, torch.float32) for t in tensors)


def _device(tensors: tuple[Any, ...]) -> str:
    for t in tensors:
        if isinstance(t, Tensor):
            return t.device.type
    return "cpu"


def _cast(t: Any, dtype: torch.dtype) -> Any:
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.dtype == torch.float64:
        return t
    return t.to(dtype)


def untouched(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with autocast off on its tensors' device: autocast does not cast in in-place and ``out=`` forms."""

    def uncast(*args: Any, **kwargs: Any) -> Any:
        device = _device(args)
        if not is_enabled(device):
            return run(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return run(*args, **kwargs)

    return uncast
