"""Code that runs in the backward pass: it belongs to the context in which its forward pass ran."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["call", "closed", "opened"]

#: Calls that run a backward pass: a mode is not in force while it handles one.
_ENGINE = frozenset((Tensor.backward, torch.autograd.backward, torch.autograd.grad))


def opened() -> None:
    """A context opens in this thread."""


def closed() -> None:
    """A context closes."""


def call(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A call that is no product."""
    if func in _ENGINE:
        with mode:
            return func(*args, **kwargs)
    return func(*args, **kwargs)
