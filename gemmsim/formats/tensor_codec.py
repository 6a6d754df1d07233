"""Codes of whole tensors, as ``encode`` and ``decode`` of the formats take them.

This package needs the standard library alone: the operators that compute on tensors are found by name, and only where
somebody has brought a tensor. It is the one place where a format calls what is built on it, and where type checkers
read PyTorch's types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import format_error

if TYPE_CHECKING:
    from torch import Tensor as Tensor
    from torch import dtype as dtype

__all__ = ["CODECS", "check_scalar_arguments", "decode_tensor", "encode_tensor", "is_tensor"]


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor of PyTorch, which is loaded then."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


#: ``encode`` and ``decode`` of gemmsim.ops.encode_decode, which puts them here.
CODECS: dict[str, Callable[..., Any]] = {}


def _codec(name: str) -> Callable[..., Any]:
    if not CODECS:
        import_module("gemmsim.ops.encode_decode")
    return CODECS[name]


def encode_tensor(fmt: object, x: object, rounding: object, overflow: object, seed: object) -> Any:
    """Codes of the elements of ``x``; see ``FloatFormat.encode``."""
    return _codec("encode")(x, fmt, rounding=rounding, overflow=overflow, seed=seed)


def decode_tensor(fmt: object, codes: object, dtype: object) -> Any:
    """Values of the elements of ``codes``; see ``FloatFormat.decode``."""
    return _codec("decode")(codes, fmt, dtype=dtype)


def check_scalar_arguments(fmt: object, **given: object) -> None:
    """``FormatError`` for arguments that only tensors have."""
    for name, value in given.items():
        if value is not None:
            raise format_error(
                f"{fmt}: {name}={value!r} with a single number",
                f"{name} for tensors; single numbers are encoded exactly",
                "Give a torch.Tensor, of no dimension for one number.",
            )
