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

#: A format of each kind, for the examples.
_SOME = {FloatingPoint: "FloatingPoint(5, 4)", SuperNormalFloat: "SuperNormalFloat(5, 4, 1)", Binary8: "Binary8(4)"}


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

    steps, value = ("number, fwd_lse=number", "0.5028") if lse else ("number, number, number", "0.5000")
    forward.__doc__ = f"""``qsoftmax(x, dim, formats)`` with {kind.__name__} steps. It has no gradient.

    Raises:
        FormatError: for steps of another kind, and for formats {"not " if lse else ""}by logarithms.

    Example:
        >>> from gemmsim.compat.mptorch import {kind.__name__}, quant
        >>> number = {_SOME[kind]}
        >>> quant.{owner}(torch.zeros(2), 0, quant.QSoftmaxFormats({steps}))
        tensor([{value}, {value}])
    """
    return _named(forward, owner)


def _softmax_backward(owner: str, kind: type[Number]) -> Callable[..., Tensor]:
    def backward(x: Tensor, grad: Tensor, dim: int, formats: QSoftmaxFormats) -> Tensor:
        _check(owner, kind, formats)
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(qsoftmax(leaf, dim, formats), leaf, grad)[0]

    backward.__doc__ = f"""The gradient of ``qsoftmax(x, dim, formats)`` for ``grad``, with {kind.__name__} steps.

    Raises:
        FormatError: for steps of another kind.

    Example:
        >>> from gemmsim.compat.mptorch import {kind.__name__}, quant
        >>> formats = quant.QSoftmaxFormats(*[{_SOME[kind]}] * 3, None, *[{_SOME[kind]}] * 2)
        >>> quant.{owner}(torch.zeros(2), torch.tensor([1.0, 0.0]), 0, formats)
        tensor([ 0.2500, -0.2500])
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

    forward.__doc__ = f"""``qlayernorm`` of these arguments with {kind.__name__} steps. It has no gradient.

    Raises:
        FormatError: for steps of another kind.

    Example:
        >>> from gemmsim.compat.mptorch import {kind.__name__}, quant
        >>> formats = quant.QLayerNormFormats(*[{_SOME[kind]}] * 4)
        >>> quant.{owner}(torch.tensor([2.0, 4.0]), 2, None, None, 1e-5, formats)
        tensor([-1.,  1.])
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

    backward.__doc__ = f"""The gradients of x, weight and bias (or None) in ``qlayernorm`` with {kind.__name__} steps.

    Raises:
        FormatError: for steps of another kind.

    Example:
        >>> from gemmsim.compat.mptorch import {kind.__name__}, quant
        >>> formats, grad = quant.QLayerNormFormats(*[{_SOME[kind]}] * 7), torch.tensor([1.0, 0.0])
        >>> quant.{owner}(torch.tensor([2.0, 4.0]), grad, 2, torch.ones(2), torch.zeros(2), 1e-5, formats)
        (tensor([0., 0.]), tensor([-1.,  0.]), tensor([1., 0.]))
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
