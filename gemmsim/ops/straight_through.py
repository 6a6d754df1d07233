"""Rounding with a straight-through gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords
from gemmsim.formats import Cast, FixedFormat, FormatError

from .arrays import called_with_arrays, is_array
from .cast_arguments import RoundingLike, Target, TargetLike, cast_of, resolve_target
from .checks import check_device, check_float
from .errors import message
from .forward_mode import applied
from .lazy_dynamo import assume_constant_result
from .product.operators import quantize_op
from .single_differentiation import differentiable_once

__all__ = ["GradHook", "Quantizer", "quantizer"]

GradHook: TypeAlias = Callable[[Tensor], Tensor]


class _StraightThrough(torch.autograd.Function):
    """Forward: a cast. Backward: the gradient through the hooks, masked where the forward pass clamped, cast."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, forward: str | None, grid: str | None, backward: Any) -> tuple[Tensor, Tensor | None]:
        """The rounded tensor and, with ``grid``, where it was clamped."""
        if forward is None:
            return x.view_as(x), None
        if grid is None:
            return quantize_op(x, forward), None
        low, high = _bounds(forward)
        # Clamped means: rounded as if without bounds it lies outside. Clamping that value is the rounded result, so
        # that a stochastic rounding draws its bits once.
        free = quantize_op(x, grid)
        return free.clamp(low, high), (free < low) | (free > high)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the mask and what the gradient is put through."""
        _, _, _, ctx.backward_steps = inputs
        mask = output[1]
        if mask is not None:
            ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(mask)

    @staticmethod
    @differentiable_once("quantizer")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor, *unused: Any) -> tuple[Tensor, None, None, None]:
        """Hooks, mask, cast, in this order."""
        hooks, cast = ctx.backward_steps
        (mask,) = saved
        dtype = grad.dtype
        for hook in hooks:
            grad = hook(grad)
        if mask is not None:
            grad = torch.where(mask, torch.zeros((), dtype=grad.dtype, device=grad.device), grad)
        if cast is not None:
            grad = quantize_op(grad, cast)
        return grad.to(dtype), None, None, None


@dataclass(frozen=True)
class Quantizer:
    """The result of ``quantizer(...)``: a function from tensor to tensor that can be compared and pickled.

    ``forward`` and ``backward``: casts of the tensor and of its gradient, None for none. See ``quantizer``.

    Example:
        >>> gs.ops.Quantizer(forward="e4m3")(torch.tensor([0.3]))
        tensor([0.3125])
    """

    forward: Target | None = None
    backward: Target | None = None
    clamping_grad_zero: bool = False
    backward_hooks: tuple[GradHook, ...] = ()

    def __post_init__(self) -> None:
        names = [None if cast is None else str(cast) for cast in (self.forward, self.backward)]
        grid = None
        if self.clamping_grad_zero:
            grid = str(_unbounded(self.forward))
        # Strings, because compiled code carries them.
        object.__setattr__(self, "_steps", (names[0], grid, (self.backward_hooks, names[1])))

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and is_array(x):
            rounded: Tensor = called_with_arrays(_pass_through, (x, self._steps), {}, "quantizer")  # type: ignore[attr-defined]
            return rounded
        return _pass_through(x, self._steps)  # type: ignore[attr-defined]


@says_keywords("forward_number")
def quantizer(
    forward_number: TargetLike | None = None,
    backward_number: TargetLike | None = None,
    forward_rounding: RoundingLike | None = None,
    backward_rounding: RoundingLike | None = None,
    clamping_grad_zero: bool = False,
    backward_hooks: Sequence[GradHook] = (),
) -> Quantizer:
    """A function that rounds a tensor in the forward pass and its gradient in the backward pass (straight-through).

    Args:
        forward_number, backward_number: cast, format or name; None leaves the tensor, or the gradient, as it is.
        forward_rounding, backward_rounding: replace the rounding of the cast. Default: the cast's own, which is
            "nearest" unless it names another.
        clamping_grad_zero: the gradient is zero where the forward pass clamped; only for a fixed-point format that
            clamps. An element is clamped if rounding it without bounds leaves the format's range.
        backward_hooks: functions of the gradient, applied in order, before masking and rounding.

    NaN, infinities, signed zeros, overflow, dtypes, strides and random bits are those of ``gemmsim.quantize``; a
    stochastic cast takes a new seed at each call. Differentiating the gradient raises.

    Raises:
        FormatError: for unknown names, and for ``clamping_grad_zero`` with another forward format.

    Example:
        >>> x = torch.tensor([0.3, 17.1], requires_grad=True)
        >>> gs.quantizer("e4m3", "e5m2")(x).backward(torch.tensor([0.3, 0.6]))
        >>> x.grad
        tensor([0.3125, 0.6250])
    """
    hooks = tuple(backward_hooks)
    if torch.compiler.is_compiling():
        steps = _steps(forward_number, backward_number, forward_rounding, backward_rounding, bool(clamping_grad_zero))
        return partial(_pass_through, steps=(*steps[:2], (hooks, steps[2])))  # type: ignore[return-value]
    forward = None if forward_number is None else resolve_target(forward_number, forward_rounding)
    backward = None if backward_number is None else resolve_target(backward_number, backward_rounding)
    return Quantizer(forward, backward, bool(clamping_grad_zero), hooks)


def _pass_through(x: Tensor, steps: tuple[str | None, str | None, Any]) -> Tensor:
    check_float("quantizer", "x", x)
    check_device("quantizer", x, names="x")
    result: Tensor = applied("quantizer", _StraightThrough, x, *steps)[0]
    return result


@assume_constant_result
def _steps(
    forward: TargetLike | None,
    backward: TargetLike | None,
    forward_rounding: RoundingLike | None,
    backward_rounding: RoundingLike | None,
    clamping_grad_zero: bool,
) -> tuple[str | None, str | None, str | None]:
    """The names that a ``Quantizer`` carries: compiled code has no other constants."""
    to = None if forward is None else resolve_target(forward, forward_rounding)
    back = None if backward is None else resolve_target(backward, backward_rounding)
    grid = str(_unbounded(to)) if clamping_grad_zero else None
    return None if to is None else str(to), grid, None if back is None else str(back)


def _unbounded(cast: Target | None) -> Cast:
    """``cast`` without its bounds: the grid of all multiples."""
    if isinstance(cast, Cast) and isinstance(cast.format, FixedFormat) and cast.format.clamp and cast.format.signed:
        return Cast(FixedFormat(cast.format.bits, cast.format.frac, clamp=False), cast.rounding)
    raise FormatError(
        message(
            f"quantizer: clamping_grad_zero=True with forward_number={cast}",
            "signed fixed-point formats that clamp, such as 'fixed(8,4)'",
            "Give such a format, or leave clamping_grad_zero out.",
        )
    )


@assume_constant_result
def _bounds(text: str) -> tuple[float, float]:
    fmt = cast_of(text).format
    return fmt.min, fmt.max
