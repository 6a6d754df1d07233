"""The operators that block-format tensors have: a table from ATen operators to functions on codes and scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .errors import MXOperatorError
from .tensor import MXTensor

__all__ = ["dispatch", "implements", "operators"]

_TABLE: dict[Any, Callable[..., Any]] = {}


def implements(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for these operators; it is called with the operator's arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            _TABLE[operator] = function
        return function

    return register


def operators() -> list[str]:
    """Names of the operators that block-format tensors have."""
    _load()
    return sorted(str(operator) for operator in _TABLE)


def _load() -> None:
    from . import tensor_collectives, tensor_groups, tensor_products, tensor_shapes, tensor_values  # noqa: F401


def dispatch(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator's result; ``MXOperatorError`` for operators not in the table."""
    if not _TABLE or operator not in _TABLE:
        _load()
    function = _TABLE.get(operator)
    if function is None:
        formats = sorted({str(a.format) for a in _flat([args, [*kwargs.values()]]) if isinstance(a, MXTensor)})
        raise MXOperatorError(
            f"{operator} on an MXTensor of {', '.join(formats)}; allowed: products, sums, conversions and operations "
            "on shapes (docs/reference/mx.md lists them).\n"
            "  Use t.dequantize() for a plain tensor, and gemmsim.mx.to_mx to encode again."
        )
    if torch.is_inference_mode_enabled() and not torch.compiler.is_compiling():
        # A wrapper that is made in inference mode cannot be the view of one that was not: PyTorch refuses t() of it.
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)
    return function(*args, **kwargs)


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for value in args:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found
