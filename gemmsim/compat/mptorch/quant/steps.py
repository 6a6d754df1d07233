"""Forward and backward passes of softmax and layer norm by number kind, under mptorch's private names.

mptorch's take the widths of each step one by one; these take the formats, as ``qsoftmax`` and ``qlayernorm`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..number import Binary8, FloatingPoint, FormatError, Number, SuperNormalFloat
from .formats import QLayerNormFormats, QSoftmaxFormats
from .functional import qlayernorm, qsoftmax

__all__ = [
    "binary8_layernorm_backward",
    "binary8_layernorm_forward",
    "binary8_softmax_backward",
    "binary8_softmax_forward",
    "binary8_softmax_lse_forward",
    "float_layernorm_backward",
    "float_layernorm_forward",
    "float_softmax_backward",
    "float_softmax_forward",
    "float_softmax_lse_forward",
    "superfp_layernorm_backward",
    "superfp_layernorm_forward",
    "superfp_softmax_backward",
    "superfp_softmax_forward",
    "superfp_softmax_lse_forward",
]


def _check(
    owner: str, kind: type[Number], formats: QSoftmaxFormats | QLayerNormFormats, lse: bool | None = None
) -> None:
    """``FormatError`` unless every step given is of the kind, and the forward pass by logarithms as the name says."""
    steps = formats.given_steps
    others = sorted({type(step).__name__ for step in steps if not isinstance(step, kind)})
    if others or not steps:
        asked = f"{owner} with formats of {', '.join(others) or 'no steps'}"
        raise FormatError(f"{asked}; allowed: {kind.__name__}.\n  Use qsoftmax or qlayernorm, which take any.")
    if lse is not None and getattr(formats, "use_lse", lse) != lse:
        wanted = "fwd_off and fwd_lse" if lse else "fwd_off, fwd_exp and fwd_acc"
        raise FormatError(f"{owner} with {formats!r}; allowed: {wanted}.\n  Use qsoftmax, which takes both.")


def _softmax_forward(owner: str, kind: type[Number], lse: bool) -> Callable[..., Tensor]:
    def forward(x: Tensor, dim: int, formats: QSoftmaxFormats) -> Tensor:
        _check(owner, kind, formats, lse)
        with torch.no_grad():
            return qsoftmax(x, dim, formats)

    forward.__doc__ = f"""``qsoftmax(x, dim, formats)`` without a gradient, of {kind.__name__} steps.

    Raises:
        FormatError: for steps of another kind, and for formats {"not " if lse else ""}by logarithms.
    """
    return _named(forward, owner)


def _softmax_backward(owner: str, kind: type[Number]) -> Callable[..., Tensor]:
    def backward(x: Tensor, grad: Tensor, dim: int, formats: QSoftmaxFormats) -> Tensor:
        _check(owner, kind, formats)
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(qsoftmax(leaf, dim, formats), leaf, grad)[0]

    backward.__doc__ = f"""The gradient of ``qsoftmax(x, dim, formats)`` for ``grad``, of {kind.__name__} steps.

    Raises:
        FormatError: for steps of another kind.
    """
    return _named(backward, owner)


def _layernorm_forward(owner: str, kind: type[Number]) -> Callable[..., Tensor]:
    def forward(
        x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float,
        formats: QLayerNormFormats,
    ) -> Tensor:  # fmt: skip
        _check(owner, kind, formats)
        with torch.no_grad():
            return qlayernorm(x, normalized_shape, weight, bias, eps, formats)

    forward.__doc__ = f"""``qlayernorm`` of these arguments without a gradient, of {kind.__name__} steps.

    Raises:
        FormatError: for steps of another kind.
    """
    return _named(forward, owner)


def _layernorm_backward(owner: str, kind: type[Number]) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(
        x: Tensor, grad: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None, bias: Tensor | None,
        eps: float, formats: QLayerNormFormats,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        _check(owner, kind, formats)
        leaves = [None if t is None else t.detach().requires_grad_() for t in (x, weight, bias)]
        given = [t for t in leaves if t is not None]
        with torch.enable_grad():
            y = qlayernorm(leaves[0], normalized_shape, leaves[1], leaves[2], eps, formats)  # type: ignore[arg-type]
            found = iter(torch.autograd.grad(y, given, grad))
        return tuple(None if t is None else next(found) for t in leaves)

    backward.__doc__ = f"""Gradients of ``qlayernorm`` for ``grad``, of x, weight, bias (or None), in {kind.__name__}.

    Raises:
        FormatError: for steps of another kind.
    """
    return _named(backward, owner)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


float_softmax_forward = _softmax_forward("float_softmax_forward", FloatingPoint, False)
float_softmax_lse_forward = _softmax_forward("float_softmax_lse_forward", FloatingPoint, True)
float_softmax_backward = _softmax_backward("float_softmax_backward", FloatingPoint)
float_layernorm_forward = _layernorm_forward("float_layernorm_forward", FloatingPoint)
float_layernorm_backward = _layernorm_backward("float_layernorm_backward", FloatingPoint)
superfp_softmax_forward = _softmax_forward("superfp_softmax_forward", SuperNormalFloat, False)
superfp_softmax_lse_forward = _softmax_forward("superfp_softmax_lse_forward", SuperNormalFloat, True)
superfp_softmax_backward = _softmax_backward("superfp_softmax_backward", SuperNormalFloat)
superfp_layernorm_forward = _layernorm_forward("superfp_layernorm_forward", SuperNormalFloat)
superfp_layernorm_backward = _layernorm_backward("superfp_layernorm_backward", SuperNormalFloat)
binary8_softmax_forward = _softmax_forward("binary8_softmax_forward", Binary8, False)
binary8_softmax_lse_forward = _softmax_forward("binary8_softmax_lse_forward", Binary8, True)
binary8_softmax_backward = _softmax_backward("binary8_softmax_backward", Binary8)
binary8_layernorm_forward = _layernorm_forward("binary8_layernorm_forward", Binary8)
binary8_layernorm_backward = _layernorm_backward("binary8_layernorm_backward", Binary8)
