"""Operators of ``torch.ops.gemmsim``: one call defines one, with its kernel, its fake kernel and its batching rule.

Their kernels are one function for CPU and CUDA, which takes the backend of its tensors' device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from . import functionalized, subnormals
from .errors import GradError, message

__all__ = ["LIBRARY", "TAGS", "define"]

functionalized.install()
LIBRARY = torch.library.Library("gemmsim", "DEF")
#: Of operators that draw from the generator: never merged with an equal call, never recomputed.
TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides)


def _nothing(*args: object) -> None:
    """Fake kernel of the operators that write into given tensors."""


def _keeping_subnormals(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel``, in which PyTorch's steps around products keep subnormals, also where compiled code calls it."""

    @wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        if subnormals.are_flushed():
            return subnormals.kept(kernel, *args, **kwargs)
        return kernel(*args, **kwargs)

    return call


def define(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any] = _nothing,
    *,
    vmap: Callable[..., Any] | None = None,
    instead: str | None = None,
    tags: tuple[torch.Tag, ...] = TAGS,
) -> Any:
    """Registers the operator of this schema ("name(Tensor x, ...) -> Tensor"); the result is what calls it.

    Args:
        schema: as PyTorch reads it.
        kernel: computes the result on CPU and CUDA.
        fake: gives the result's shape and dtype and makes the checks that need no values.
        vmap: batching rule ``vmap(operator, info, in_dims, *arguments)``; it is given the operator, so that files of
            rules need not know the file that registers it.
        instead: makes a gradient through the raw operator a ``GradError``, which ends with this sentence.
        tags: what compilers are told.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=tags)
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, _keeping_subnormals(kernel), key)
    torch.library.register_fake(f"gemmsim::{name}", fake, lib=LIBRARY)
    operator = getattr(torch.ops.gemmsim, name).default
    if vmap is not None:
        torch.library.register_vmap(f"gemmsim::{name}", partial(vmap, operator), lib=LIBRARY)
    if instead is not None:
        torch.library.register_autograd(
            f"gemmsim::{name}", _refused(instead), setup_context=_remembers(f"gemmsim::{name}"), lib=LIBRARY
        )
    return operator


def _refused(instead: str) -> Callable[..., None]:
    """A backward pass that raises: ``instead`` says what has one."""

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise GradError(message(f"gradient of the raw operator {ctx.op}", "gradients of the public functions", instead))

    return backward


def _remembers(name: str) -> Callable[..., None]:
    """A context that keeps the name of the operator for the error."""

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.op = name

    return setup_context
