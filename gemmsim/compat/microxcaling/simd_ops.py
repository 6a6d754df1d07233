"""microxcaling's ``mx.simd_ops``: differentiable element-wise arithmetic and sums, operands and results rounded.

The module has those of ``vector_ops``, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test
from .vector_ops import *  # noqa: F403 - as the module has them in microxcaling
from .vector_ops import Vector
from .vector_ops import __all__ as _VECTOR_OPS

__all__ = [
    "simd_add",
    "simd_div",
    "simd_exp",
    "simd_log",
    "simd_mul",
    "simd_norm",
    "simd_reduce_mean",
    "simd_reduce_sum",
    "simd_split",
    "simd_sqrt",
    "simd_square",
    "simd_sub",
    *_VECTOR_OPS,
]

_norm, _mean, _sum = torch.linalg.norm, torch.mean, torch.sum
_log, _exp, _sqrt, _square = torch.log, torch.exp, torch.sqrt, torch.square


def _unbroadcast(v: Vector, grad: Tensor, shape: torch.Size) -> Tensor:
    """Sum over the dimensions along which an operand was broadcast, rounded before and after."""
    if grad.shape == shape:
        return grad
    return v.round(v.round(grad).sum_to_size(shape))


class _Binary(torch.autograd.Function):
    """One of the four operations, of two tensors or of a tensor and a number."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Any, operation: str, specs: MxSpecs) -> Tensor:
        """The rounded result of the rounded operands; a number stays as it is."""
        v = Vector(specs)
        ctx.specs, ctx.operation = get_backwards_mx_specs(specs), operation
        ctx.number = None if isinstance(b, Tensor) else b
        left, right = v.round(a), v.round(b) if isinstance(b, Tensor) else b
        out: Tensor = getattr(v, operation)(left, right)
        first, second = (left, right) if specs["quantize_backprop"] else (a, b)
        ctx.shapes = a.shape, b.shape if isinstance(b, Tensor) else None
        kept = {"add": (), "sub": (), "mul": (first, second), "div": (out, second)}[operation]
        ctx.save_for_backward(*(t for t in kept if isinstance(t, Tensor)))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """By the operation's rule, every step rounded; sub passes its gradient to the first operand as it came."""
        v = Vector(ctx.specs)
        first_shape, second_shape = ctx.shapes
        if ctx.operation == "sub":
            grad = grads[0]
        else:
            grad = v.round(grads[0])
        if second_shape is None:
            plain = ctx.operation in ("add", "sub")
            return grad if plain else getattr(v, ctx.operation)(grad, ctx.number), None, None, None
        if ctx.operation == "add":
            of_a, of_b = grad, grad
        elif ctx.operation == "sub":
            of_a, of_b = grad, v.round(-grad)
        elif ctx.operation == "mul":
            a, b = ctx.saved_tensors
            of_a, of_b = v.mul(grad, b), v.mul(grad, a)
        else:
            out, b = ctx.saved_tensors
            of_a, of_b = v.div(grad, b), v.mul(grad, v.div(-out, b))
        return _unbroadcast(v, of_a, first_shape), _unbroadcast(v, of_b, second_shape), None, None


class _Unary(torch.autograd.Function):
    """square, sqrt, exp or log."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operation: str, specs: MxSpecs) -> Tensor:
        """The rounded result of the rounded operand."""
        v = Vector(specs)
        ctx.specs, ctx.operation = get_backwards_mx_specs(specs), operation
        rounded = v.round(x)
        out: Tensor = v.mul(rounded, rounded) if operation == "square" else getattr(v, operation)(rounded)
        operand = rounded if specs["quantize_backprop"] else x
        ctx.save_for_backward(operand if operation in ("square", "log") else out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """g 2x, g 0.5 / y, g y, g / x."""
        (kept,) = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        if ctx.operation == "square":
            return v.mul(grad, v.mul(kept, 2.0)), None, None
        if ctx.operation == "sqrt":
            return v.div(v.mul(grad, 0.5), kept), None, None
        return (v.mul(grad, kept) if ctx.operation == "exp" else v.div(grad, kept)), None, None


class _Split(torch.autograd.Function):
    """Two copies, whose gradients are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs) -> tuple[Tensor, Tensor]:
        """The copies."""
        ctx.specs = get_backwards_mx_specs(specs)
        ctx.set_materialize_grads(False)
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Their rounded sum; where one is missing the other as it is."""
        first, second = grads
        if first is None or second is None:
            return second if first is None else first, None
        v = Vector(ctx.specs)
        return v.add(v.round(first), v.round(second)), None


class _ReduceSum(torch.autograd.Function):
    """Sum over dimensions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dims: list[int], keepdim: bool, specs: MxSpecs) -> Tensor:
        """PyTorch's sum of the rounded operand, rounded."""
        v = Vector(specs)
        ctx.specs, ctx.shape, ctx.dims, ctx.keepdim = get_backwards_mx_specs(specs), x.shape, dims, keepdim
        return v.sum(v.round(x), dims, keepdim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The rounded gradient, broadcast."""
        grad = Vector(ctx.specs).round(grads[0])
        if not ctx.keepdim:
            for dim in sorted(dim % len(ctx.shape) for dim in ctx.dims):
                grad = grad.unsqueeze(dim)
        return grad.expand(ctx.shape), None, None, None


def _binary(a: Tensor, b: Any, operation: str, mx_specs: Any) -> Tensor:
    result: Tensor = _Binary.apply(a, b, operation, apply_mx_specs(mx_specs))
    return result


def _unary(x: Tensor, operation: str, mx_specs: Any) -> Tensor:
    result: Tensor = _Unary.apply(x, operation, apply_mx_specs(mx_specs))
    return result


def _dims(dim: int | Sequence[int]) -> list[int]:
    return [dim] if isinstance(dim, int) else list(dim)


def simd_add(in1: Tensor, in2: Tensor | float, mx_specs: Any = None) -> Tensor:
    """The rounded sum of two rounded operands, which broadcast. ``in2`` may be a number.

    Gradients are rounded, and summed over dimensions that were broadcast. With ``mx_specs`` None the sum is PyTorch's.

    Raises:
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for settings that mean nothing; with ``MX_ASSERT=True`` in the environment for None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_add(torch.tensor([8.0]), torch.tensor([1.3]), mx_specs={"bfloat": 12})
        tensor([9.])
    """
    mx_assert_test(mx_specs)
    return in1 + in2 if mx_specs is None else _binary(in1, in2, "add", mx_specs)


def simd_sub(in1: Tensor, in2: Tensor | float, mx_specs: Any = None) -> Tensor:
    """x1 - x2; otherwise as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_sub(torch.tensor([8.0]), torch.tensor([0.3]), mx_specs={"bfloat": 12})
        tensor([7.5000])
    """
    mx_assert_test(mx_specs)
    return in1 - in2 if mx_specs is None else _binary(in1, in2, "sub", mx_specs)


def simd_mul(in1: Tensor, in2: Tensor | float, mx_specs: Any = None) -> Tensor:
    """x1 x2; otherwise as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_mul(torch.tensor([1.3]), torch.tensor([1.3]), mx_specs={"bfloat": 12})
        tensor([1.6250])
    """
    mx_assert_test(mx_specs)
    return in1 * in2 if mx_specs is None else _binary(in1, in2, "mul", mx_specs)


def simd_div(in1: Tensor, in2: Tensor | float, mx_specs: Any = None) -> Tensor:
    """x1 / x2; otherwise as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_div(torch.tensor([1.0]), 3.0, mx_specs={"bfloat": 12})
        tensor([0.3438])
    """
    mx_assert_test(mx_specs)
    return in1 / in2 if mx_specs is None else _binary(in1, in2, "div", mx_specs)


def simd_split(in1: Tensor, mx_specs: Any = None) -> tuple[Tensor, Tensor]:
    """Two copies of x; in the backward pass their gradients are rounded, added and rounded. Errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_split(torch.tensor([1.3]), mx_specs={"bfloat": 12})
        (tensor([1.3000]), tensor([1.3000]))
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return in1, in1
    first, second = _Split.apply(in1, apply_mx_specs(mx_specs))
    return first, second


def simd_square(in1: Tensor, mx_specs: Any = None) -> Tensor:
    """x x of the rounded x, rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_square(torch.tensor([1.3]), mx_specs={"bfloat": 12})
        tensor([1.6250])
    """
    mx_assert_test(mx_specs)
    return _square(in1) if mx_specs is None else _unary(in1, "square", mx_specs)


def simd_sqrt(in1: Tensor, mx_specs: Any = None) -> Tensor:
    """The square root of the rounded x, rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_sqrt(torch.tensor([2.0]), mx_specs={"bfloat": 12})
        tensor([1.3750])
    """
    mx_assert_test(mx_specs)
    return _sqrt(in1) if mx_specs is None else _unary(in1, "sqrt", mx_specs)


def simd_exp(in1: Tensor, mx_specs: Any = None) -> Tensor:
    """e^x of the rounded x, rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_exp(torch.tensor([1.0]), mx_specs={"bfloat": 12})
        tensor([2.7500])
    """
    mx_assert_test(mx_specs)
    return _exp(in1) if mx_specs is None else _unary(in1, "exp", mx_specs)


def simd_log(in1: Tensor, mx_specs: Any = None) -> Tensor:
    """ln x of the rounded x, rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_log(torch.tensor([2.0]), mx_specs={"bfloat": 12})
        tensor([0.6875])
    """
    mx_assert_test(mx_specs)
    return _log(in1) if mx_specs is None else _unary(in1, "log", mx_specs)


def simd_reduce_sum(in1: Tensor, dim: int | Sequence[int], keepdim: bool = False, mx_specs: Any = None) -> Tensor:
    """PyTorch's sum of the rounded x, rounded once; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_reduce_sum(torch.tensor([8.0, 8.0, 1.0]), dim=0, mx_specs={"bfloat": 12})
        tensor(18.)
    """
    mx_assert_test(mx_specs)
    dims = _dims(dim)
    if mx_specs is None:
        return _sum(in1, dims, keepdim=keepdim)
    result: Tensor = _ReduceSum.apply(in1, dims, keepdim, apply_mx_specs(mx_specs))
    return result


def simd_reduce_mean(in1: Tensor, dim: int | Sequence[int], keepdim: bool = False, mx_specs: Any = None) -> Tensor:
    """``simd_reduce_sum`` times 1 / count, rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_reduce_mean(torch.tensor([1.0, 2.0, 2.0]), dim=0, mx_specs={"bfloat": 12})
        tensor(1.6250)
    """
    mx_assert_test(mx_specs)
    dims = _dims(dim)
    if mx_specs is None:
        return _mean(in1, dims, keepdim=keepdim)
    count = math.prod([in1.shape[d] for d in dims])
    return simd_mul(simd_reduce_sum(in1, dims, keepdim, mx_specs), 1 / count, mx_specs)


def simd_norm(in1: Tensor, keepdim: bool = False, mx_specs: Any = None) -> Tensor:
    """The root of the sum of squares over all dimensions, every step rounded; errors as ``simd_add``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.simd_norm(torch.tensor([1.0, 2.0]), mx_specs={"bfloat": 12})
        tensor(2.2500)
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _norm(in1, keepdim=keepdim)
    squares = simd_square(in1, mx_specs)
    return simd_sqrt(simd_reduce_sum(squares, list(range(in1.dim())), keepdim, mx_specs), mx_specs)
