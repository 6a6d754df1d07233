"""Assumptions of runs without values where only data could decide, and results that PyTorch's fakes lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

__all__ = ["assume", "assumptions", "call_fake"]

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("gemmsim_assumptions", default=None)


@contextmanager
def assumptions(listener: Callable[[str], None]) -> Iterator[None]:
    """Passes all assumptions of this thread to ``listener`` inside the context."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def assume(what: str) -> None:
    """Passes an assumption to the listener, if there is one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what)


def call_fake(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``func(*args, **kwargs)`` of fake tensors.

    PyTorch's kernels accept grouped products in float32 and float16, and its fake does not (2.13). These get their
    result here.
    """
    if func is _GROUPED and args[0].dtype in (torch.float32, torch.float16) and args[0].dtype == args[1].dtype:
        return _grouped(*args, **kwargs)
    return func(*args, **kwargs)


_GROUPED: Any = getattr(getattr(torch.ops.aten, "_grouped_mm", None), "default", None)


def _grouped(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """The result of a grouped product without values.

    Groups of rows or columns give a matrix, groups of terms give a stack. Rows begin at multiples of 16 bytes.
    """
    m, n = a.shape[-2], b.shape[-1]
    dtype = a.dtype if out_dtype is None else out_dtype
    unit = 16 // dtype.itemsize
    row = -(-n // unit) * unit
    if a.dim() != b.dim():
        return a.new_empty_strided((m, n), (row, 1), dtype=dtype)
    groups = a.shape[0] if offs is None else offs.shape[0]
    return a.new_empty_strided((groups, m, n), (m * row, row, 1), dtype=dtype)
