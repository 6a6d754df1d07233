"""Refusing second derivatives: a rounding's gradient is a convention, and there is none for the second one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from . import subnormals
from .dispatch import is_batch_of_gradients
from .errors import GradError, message

__all__ = ["differentiable_once"]


class _Refusal(torch.autograd.Function):
    """A gradient as it is, which depends on what it was computed from and cannot be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(owner: str, grad: Tensor, *sources: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.owner = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise _refused(ctx.owner)


def _refused(owner: str) -> GradError:
    do = next((do for start, do in _DO if owner.startswith(start)), "")
    do = f"A rounding's gradient is a convention; there is none for the second. {do}"
    return GradError(message(f"{owner}: derivative of its gradient", "first derivatives", do))


#: What to do where a second derivative is needed, by how the name of what was called begins.
_OF_PRODUCTS = (
    "Leave the products to PyTorch (spec None for a function or layer, a rule with None in emulate), or the gradients "
    'alone: a spec for "fprop" only, without formats for its operands.'
)
_DO = (
    ("qmatmul", _OF_PRODUCTS),
    ("qconv", _OF_PRODUCTS),
    ("mx.", "Take torch.nn.Linear, with weight.dequantize() for an MXTensor, or PyTorch's attention for it."),
    ("", "Take PyTorch's own function or layer for it; in emulate a rule with None does."),
)


def _named(site: str) -> str:
    """ "path|kind" in words."""
    path, _, kind = site.rpartition("|")
    return f"{kind} in module {path!r}" if path else kind


def _never(ctx: Any, saved: Any) -> bool:
    return False


def differentiable_once(owner: str, natively: Callable[[Any, Any], bool] = _never) -> Callable[[Any], Any]:
    """Decorator of a ``backward(ctx, saved, *grads)``: differentiating its results raises ``GradError``, by whatever
    they were computed from, the incoming gradients or what the forward pass saved.

    It runs without autograd, on the saved tensors, which are unpacked once and first: under a checkpoint that computes
    a part of the forward pass again, as modes in force see it. What it calls itself is no business of modes that stand
    for PyTorch's functions: an emulation must not replace the product that a role without a spec asks PyTorch for.

    ``natively(ctx, saved)``: whether the gradients are PyTorch's own products of the operands as they were given, which
    can be differentiated again.
    """

    def decorate(backward: Any) -> Any:
        @wraps(backward)
        def run(ctx: Any, *grads: Any) -> Any:
            saved = ctx.saved_tensors
            if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
                with torch._C.DisableTorchFunction():
                    if subnormals.are_flushed():
                        return subnormals.kept(backward, ctx, saved, *grads)
                    return backward(ctx, saved, *grads)
            if torch.is_grad_enabled() and natively(ctx, saved):
                with torch._C.DisableTorchFunction():
                    return backward(ctx, saved, *grads)
            with torch.no_grad(), torch._C.DisableTorchFunction():
                results = backward(ctx, saved, *grads)
            if not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return results
            site = getattr(ctx, "site", None)
            where = owner if site is None else f"{owner} ({_named(site)})"
            if any(isinstance(g, Tensor) and is_batch_of_gradients(g) for g in grads):
                raise _refused(where)  # a batch, whose graph would end here without a word
            # All of them: a tensor of a transform does not say that another transform differentiates it.
            sources = [t for t in (*grads, *saved) if isinstance(t, Tensor) and t.is_floating_point()]
            if not any(t.requires_grad for t in sources):
                sources.append(torch.zeros((), requires_grad=True))
            return tuple(_Refusal.apply(where, r, *sources) if isinstance(r, Tensor) else r for r in results)

        return run

    return decorate
