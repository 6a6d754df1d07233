"""Decides which tensors the emulation multiplies itself, and which belong to classes that handle calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["are_ours", "handlers_of"]

_PLAIN = (Tensor, nn.Parameter, nn.Buffer)
_NO_DISPATCH: Any = torch._C._disabled_torch_dispatch_impl
_NO_FUNCTION: Any = torch._C._disabled_torch_function_impl
#: Subclasses whose products have rules of their own in this package's operators, or that have no values at all.
_KNOWN = ("FakeTensor", "FunctionalTensor", "DTensor", "AsyncCollectiveTensor", "CausalBias")


def are_ours(args: Any, kwargs: Any) -> bool:
    """Whether all tensors are of classes whose values our operators see. Other classes define their own products."""
    # Traced backward passes cannot read a layout; compiled tensors are dense.
    dense = torch.compiler.is_compiling()
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            if not (type(value) in _PLAIN or type(value).__name__ in _KNOWN or (not dense and _is_thin(type(value)))):
                return False
            if not dense and (value.layout is not torch.strided or value.is_nested):
                return False
        elif isinstance(value, (list, tuple)) and not are_ours(value, {}):
            return False
    return True


@lru_cache(maxsize=256)
def _has_no_kernels(kind: type) -> bool:
    """Whether a tensor class uses PyTorch's operators unchanged, whatever it does to functions."""
    return issubclass(kind, Tensor) and kind.__torch_dispatch__ is _NO_DISPATCH


def _is_thin(kind: type) -> bool:
    """Whether tensors of this class are ordinary at this point of the program.

    Such a class changes no operator. If it handles functions (``torchvision``'s images do), it has already done so.
    """
    if not _has_no_kernels(kind):
        return False
    return kind.__torch_function__ is _NO_FUNCTION or not torch._C._is_torch_function_enabled()  # type: ignore[attr-defined]


def handlers_of(types: Sequence[type]) -> Sequence[type]:
    """The operands' classes ``types``, if they handle functions and none of them changes an operator.

    The result is empty otherwise, and in compiled code.
    """
    if torch.compiler.is_compiling() or not torch._C._is_torch_function_enabled():
        return ()
    return types if all(map(_has_no_kernels, types)) else ()
