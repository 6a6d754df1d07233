"""Softmax and activations, each elementary step rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .module import Specified
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test
from .vector_ops import Vector

__all__ = [
    "GELU",
    "LeakyReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "gelu",
    "leaky_relu",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]

#: ln 2 in bfloat16.
_LN_2 = 0.69140625
# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_sigmoid, _tanh, _silu, _gelu = torch.sigmoid, torch.tanh, functional.silu, functional.gelu
_relu, _relu6, _leaky_relu, _softmax = functional.relu, functional.relu6, functional.leaky_relu, functional.softmax


def _logistic(v: Vector, x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return v.recip(v.add(v.exp(-x), 1.0))


class _Softmax(torch.autograd.Function):
    """e^(x - max) over their sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, specs: MxSpecs) -> Tensor:
        """Rounded: x, the difference, the power, the sum, the quotient."""
        v = Vector(specs)
        x = v.round(x)
        shifted = v.sub(x, x.amax(dim, keepdim=True))
        powers = v.exp2(shifted) if specs["softmax_exp2"] else v.exp(shifted)
        out = v.div(powers, v.sum(powers, [dim]))
        ctx.save_for_backward(out)
        ctx.specs, ctx.dim = get_backwards_mx_specs(specs), dim
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """y (g - sum of g y)."""
        (out,) = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        inner = v.mul(out, v.sub(grad, v.sum(v.mul(grad, out), [ctx.dim])))
        return v.mul(inner, _LN_2) if ctx.specs["softmax_exp2"] else inner, None, None


class _Sigmoid(torch.autograd.Function):
    """1 / (1 + e^-x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs) -> Tensor:
        """The value."""
        v = Vector(specs)
        out = _logistic(v, v.round(x))
        ctx.save_for_backward(out)
        ctx.specs = get_backwards_mx_specs(specs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """y (1 - y) g."""
        (out,) = ctx.saved_tensors
        v = Vector(ctx.specs)
        return v.mul(v.mul(out, v.sub(1.0, out)), v.round(grads[0])), None


class _Tanh(torch.autograd.Function):
    """tanh x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs) -> Tensor:
        """The value."""
        v = Vector(specs)
        out = v.tanh(v.round(x))
        ctx.save_for_backward(out)
        ctx.specs = get_backwards_mx_specs(specs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """(1 - y y) g."""
        (out,) = ctx.saved_tensors
        v = Vector(ctx.specs)
        return v.mul(v.sub(1.0, v.mul(out, out)), v.round(grads[0])), None


class _Silu(torch.autograd.Function):
    """x / (1 + e^-x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs) -> Tensor:
        """The value."""
        v = Vector(specs)
        x = v.round(x)
        part = _logistic(v, x)
        out = v.mul(x, part)
        ctx.save_for_backward(out, part)
        ctx.specs = get_backwards_mx_specs(specs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """(s + y (1 - s)) g."""
        out, part = ctx.saved_tensors
        v = Vector(ctx.specs)
        return v.mul(v.add(part, v.mul(out, v.sub(1.0, part))), v.round(grads[0])), None


class _Gelu(torch.autograd.Function):
    """x times the logistic function of 1.703125 x, or of 1.59375 (x + 0.044677734 x^3); all constants are bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs, first_order: bool) -> Tensor:
        """The value."""
        v = Vector(specs)
        given, x = x, v.round(x)
        if first_order:
            inner = v.mul(x, 1.703125)
        else:
            inner = v.mul(v.add(v.mul(v.mul(v.mul(x, x), x), 0.044677734), x), 1.59375)
        part = _logistic(v, inner)
        ctx.save_for_backward(x if specs["quantize_backprop"] else given, part)
        ctx.specs, ctx.first_order = get_backwards_mx_specs(specs), first_order
        return v.mul(x, part)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """(s + x s (1 - s) d) g, d the derivative of the logistic function's argument."""
        x, part = ctx.saved_tensors
        v = Vector(ctx.specs)
        slope = v.mul(part, v.sub(1.0, part))
        inner = 1.703125 if ctx.first_order else v.add(v.mul(v.mul(x, x), 0.21386719), 1.59375)
        return v.mul(v.add(part, v.mul(x, v.mul(slope, inner))), v.round(grads[0])), None, None


class _Cut(torch.autograd.Function):
    """relu and relu6: cut, then rounded; the gradient passes where the result is inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs, top: float) -> Tensor:
        """The value."""
        out = Vector(specs).round(x.clamp(0.0, top))
        ctx.save_for_backward((out > 0) & (out < top) if top < float("inf") else out > 0)
        ctx.specs = get_backwards_mx_specs(specs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """g where the result is inside, else 0."""
        (inside,) = ctx.saved_tensors
        return Vector(ctx.specs).round(torch.where(inside, grads[0], 0.0)), None, None


class _Leaky(torch.autograd.Function):
    """x, or slope x where x is negative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs, slope: float) -> Tensor:
        """The value."""
        v = Vector(specs)
        out = v.round(_leaky_relu(v.round(x), slope))
        ctx.save_for_backward(out > 0)
        ctx.specs, ctx.slope = get_backwards_mx_specs(specs), slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """g, or slope g where the result is not positive."""
        (positive,) = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        return torch.where(positive, grad, v.mul(grad, ctx.slope)), None, None


def _apply(function: Any, input: Tensor, mx_specs: Any, *rest: Any, inplace: bool = False) -> Tensor:
    """What an autograd function gives under these settings, written over ``input`` if ``inplace``."""
    out: Tensor = function.apply(input, apply_mx_specs(mx_specs), *rest)
    return input.copy_(out) if inplace else out


def softmax(input: Tensor, dim: int = -1, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """Softmax along ``dim``, every step rounded to the element-wise format. With ``mx_specs`` None it is PyTorch's.

    With ``softmax_exp2`` it uses powers of 2. NaN and infinities give PyTorch's results: a row of only -inf is NaN.

    Raises:
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for settings that mean nothing; with ``MX_ASSERT=True`` in the environment for None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.softmax(torch.tensor([0.0, 1.0]), mx_specs={"bfloat": 12})
        tensor([0.2812, 0.7500])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _softmax(input, dim)
    result: Tensor = _Softmax.apply(input, dim, apply_mx_specs(mx_specs))
    return result


def sigmoid(input: Tensor, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """1 / (1 + e^-x), every step rounded; ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.sigmoid(torch.tensor([-1.0, 1.0]), mx_specs={"bfloat": 12})
        tensor([0.2812, 0.7500])
    """
    mx_assert_test(mx_specs)
    return _sigmoid(input) if mx_specs is None else _apply(_Sigmoid, input, mx_specs)


def tanh(input: Tensor, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """tanh x of the rounded x, rounded; ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.tanh(torch.tensor([-1.0, 1.0]), mx_specs={"bfloat": 12})
        tensor([-0.7500,  0.7500])
    """
    mx_assert_test(mx_specs)
    return _tanh(input) if mx_specs is None else _apply(_Tanh, input, mx_specs)


def relu(input: Tensor, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """max(x, 0), rounded; NaN stays. ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.relu(torch.tensor([-1.0, 1.3]), mx_specs={"bfloat": 12})
        tensor([0.0000, 1.2500])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _relu(input, inplace)
    return _apply(_Cut, input, mx_specs, float("inf"), inplace=inplace)


def relu6(input: Tensor, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6), rounded; NaN stays. ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.relu6(torch.tensor([-1.0, 1.3, 8.0]), mx_specs={"bfloat": 12})
        tensor([0.0000, 1.2500, 6.0000])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _relu6(input, inplace)
    return _apply(_Cut, input, mx_specs, 6.0, inplace=inplace)


def leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """The rounded x, times ``negative_slope`` where it is negative, rounded; ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.leaky_relu(torch.tensor([-1.0, 1.3]), 0.1, mx_specs={"bfloat": 12})
        tensor([-0.1016,  1.2500])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _leaky_relu(input, negative_slope, inplace)
    return _apply(_Leaky, input, mx_specs, negative_slope, inplace=inplace)


def silu(input: Tensor, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """x / (1 + e^-x), every step rounded; ``mx_specs`` and errors as ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.silu(torch.tensor([-1.0, 1.0]), mx_specs={"bfloat": 12})
        tensor([-0.2812,  0.7500])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _silu(input, inplace)
    return _apply(_Silu, input, mx_specs, inplace=inplace)


def gelu(input: Tensor, mx_specs: Any = None, first_order_gelu: bool = False, name: str | None = None) -> Tensor:
    """x times the logistic function of 1.59375 (x + 0.044677734 x^3), every step rounded; errors as ``softmax``.

    With ``first_order_gelu`` it is x times the logistic function of 1.703125 x, also where ``mx_specs`` is None (which
    otherwise gives PyTorch's exact gelu).

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.gelu(torch.tensor([-1.0, 1.0]), mx_specs={"bfloat": 12})
        tensor([-0.1719,  0.8125])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None and not first_order_gelu:
        return _gelu(input)
    return _apply(_Gelu, input, mx_specs, first_order_gelu)


class Softmax(Specified, torch.nn.Softmax):
    """``torch.nn.Softmax`` through ``softmax``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.Softmax(0, mx_specs={"bfloat": 12})(torch.tensor([0.0, 1.0]))
        tensor([0.2812, 0.7500])
    """

    def __init__(self, dim: int | None = None, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(dim)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """The softmax of ``input``."""
        if self.mx_none:
            return super().forward(input)
        return softmax(input, -1 if self.dim is None else self.dim, self.mx_specs)


class Sigmoid(Specified, torch.nn.Sigmoid):
    """``torch.nn.Sigmoid`` through ``sigmoid``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.Sigmoid(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.0]))
        tensor([0.2812, 0.7500])
    """

    def __init__(self, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__()
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """1 / (1 + e^-x)."""
        return super().forward(input) if self.mx_none else sigmoid(input, self.mx_specs)


class Tanh(Specified, torch.nn.Tanh):
    """``torch.nn.Tanh`` through ``tanh``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.Tanh(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.0]))
        tensor([-0.7500,  0.7500])
    """

    def __init__(self, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__()
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """tanh x."""
        return super().forward(input) if self.mx_none else tanh(input, self.mx_specs)


class ReLU(Specified, torch.nn.ReLU):
    """``torch.nn.ReLU`` through ``relu``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.ReLU(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.3]))
        tensor([0.0000, 1.2500])
    """

    def __init__(self, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(inplace)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """max(x, 0)."""
        return super().forward(input) if self.mx_none else relu(input, self.inplace, self.mx_specs)


class ReLU6(Specified, torch.nn.ReLU6):
    """``torch.nn.ReLU6`` through ``relu6``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.ReLU6(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.3, 8.0]))
        tensor([0.0000, 1.2500, 6.0000])
    """

    def __init__(self, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(inplace)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """min(max(x, 0), 6)."""
        return super().forward(input) if self.mx_none else relu6(input, self.inplace, self.mx_specs)


class LeakyReLU(Specified, torch.nn.LeakyReLU):
    """``torch.nn.LeakyReLU`` through ``leaky_relu``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.LeakyReLU(0.1, mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.3]))
        tensor([-0.1016,  1.2500])
    """

    def __init__(
        self, negative_slope: float = 0.01, inplace: bool = False, mx_specs: Any = None, name: str | None = None
    ) -> None:
        super().__init__(negative_slope, inplace)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """x, or slope x where x is negative."""
        if self.mx_none:
            return super().forward(input)
        return leaky_relu(input, self.negative_slope, self.inplace, self.mx_specs)


class SiLU(Specified, torch.nn.SiLU):
    """``torch.nn.SiLU`` through ``silu``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.SiLU(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.0]))
        tensor([-0.2812,  0.7500])
    """

    def __init__(self, inplace: bool = False, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(inplace)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """x / (1 + e^-x)."""
        return super().forward(input) if self.mx_none else silu(input, self.inplace, self.mx_specs)


class GELU(Specified, torch.nn.GELU):
    """``torch.nn.GELU`` through ``gelu``. Without settings it is PyTorch's with ``approximate="tanh"``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.GELU(mx_specs={"bfloat": 12})(torch.tensor([-1.0, 1.0]))
        tensor([-0.1719,  0.8125])
    """

    def __init__(self, mx_specs: Any = None, first_order_gelu: bool = False, name: str | None = None) -> None:
        super().__init__(approximate="tanh")
        self._specify(mx_specs, name)
        self.first_order_gelu = first_order_gelu

    def forward(self, input: Tensor) -> Tensor:
        """The gelu of ``input``."""
        if self.mx_none and not self.first_order_gelu:
            return super().forward(input)
        return gelu(input, self.mx_specs, self.first_order_gelu)
