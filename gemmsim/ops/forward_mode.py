"""Forward-mode derivatives (``torch.func.jvp``, ``jacfwd``, dual tensors), which this package does not offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from .errors import GradError, message

__all__ = ["applied", "is_on", "refused"]


def is_on() -> bool:
    """Whether a context of forward-mode derivatives is open."""
    return forward_ad._current_level >= 0


@contextmanager
def refused(owner: str, *values: Any) -> Iterator[None]:
    """Around a call with these arguments: raises where one of them has a tangent, which would be lost.

    Raises:
        GradError: naming ``owner``.
    """
    if any(_has_tangent(value) for value in tree_leaves(values) if isinstance(value, Tensor)):
        raise _error(owner)
    try:
        yield
    except NotImplementedError as error:  # transforms inside one another hide tangents from us, not from PyTorch
        if "jvp" not in str(error):
            raise
        raise _error(owner) from None


def applied(owner: str, function: Any, *args: Any) -> Any:
    """``function.apply(*args)`` of an autograd function, which has no derivative in forward mode.

    Raises:
        GradError: naming ``owner``, for tensors with a tangent.
    """
    if torch.compiler.is_compiling() or not is_on():
        return function.apply(*args)
    with refused(owner, *args):
        return function.apply(*args)


def _has_tangent(tensor: Tensor) -> bool:
    while torch._C._functorch.is_batchedtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return forward_ad.unpack_dual(tensor).tangent is not None


def _error(owner: str) -> GradError:
    asked = f"{owner}: a derivative in forward mode (torch.func.jvp, jacfwd, hessian, dual tensors)"
    do = "Use reverse mode: torch.func.vjp, jacrev, grad, or backward()."
    return GradError(message(asked, "derivatives in reverse mode", do))
