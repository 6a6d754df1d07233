"""QPyTorch's quantizers: rounding forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import gemmsim as gs

from .functions import round_to, target_of
from .number import FixedPoint, Number

__all__ = ["Quantizer", "quantizer"]

Hook = Callable[[Tensor], Tensor]


class _Departing(torch.autograd.Function):
    """Roundings with QPyTorch's defects, and the gradient zero where the first one clamped."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, forward: Number | None, backward: Number | None, hooks: Any, masks: bool
    ) -> Tensor:
        """``x`` rounded."""
        ctx.steps = backward, hooks
        y = x.clone() if forward is None else round_to(x, forward, "nearest", True)
        clamped = None
        if masks:
            assert isinstance(forward, FixedPoint)
            free = round_to(x, FixedPoint(forward.wl, forward.fl, clamp=False), "nearest", True)
            clamped = free != y
        ctx.save_for_backward(clamped)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Hooks, mask, rounding."""
        number, hooks = ctx.steps
        for hook in hooks:
            grad = hook(grad)
        if ctx.saved_tensors[0] is not None:
            grad = grad.masked_fill(ctx.saved_tensors[0], 0.0)
        return grad if number is None else round_to(grad, number, "nearest", True), None, None, None, None


def quantizer(
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
    clamping_grad_zero: bool = False,
    backward_hooks: Sequence[Hook] = (),
    *,
    bug_compatible: bool = False,
) -> Callable[[Tensor], Tensor]:
    """A function that rounds a tensor to ``forward_number`` and its gradient to ``backward_number``; None: no rounding.

    Args:
        clamping_grad_zero: the gradient is zero where the forward pass clamped; requires a FixedPoint that clamps.
        backward_hooks: functions of the gradient, called before it is rounded; only used with ``clamping_grad_zero``.
        bug_compatible: as QPyTorch, with its defects, for rounding to nearest.

    Raises:
        AssertionError: for other roundings, and for ``clamping_grad_zero`` with a FixedPoint that does not clamp.
        ValueError: for ``clamping_grad_zero`` with other numbers, and stochastic roundings with ``bug_compatible``.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> round_ = qtorch.quantizer(qtorch.FloatingPoint(4, 3), forward_rounding="nearest")
        >>> round_(torch.tensor([0.7, 1000.0]))
        tensor([  0.6875, 480.0000])
    """
    if clamping_grad_zero:
        if not isinstance(forward_number, FixedPoint):
            raise ValueError(
                f"quantizer: clamping_grad_zero with forward_number={forward_number}; allowed: a FixedPoint.\n"
                "  Leave clamping_grad_zero out."
            )
        if not forward_number.clamp:
            raise AssertionError(
                f"quantizer: clamping_grad_zero with {forward_number}; allowed: clamp=True.\n  Set clamp=True."
            )
    hooks = tuple(backward_hooks) if clamping_grad_zero else ()
    forward = None if forward_number is None else target_of(forward_number, forward_rounding)
    backward = None if backward_number is None else target_of(backward_number, backward_rounding)
    if not bug_compatible:
        return gs.quantizer(forward, backward, clamping_grad_zero=clamping_grad_zero, backward_hooks=hooks)
    if any(step is not None and step.is_stochastic for step in (forward, backward)):
        raise ValueError(
            "quantizer: bug_compatible=True with stochastic rounding; allowed: 'nearest': QPyTorch's draws cannot be "
            "repeated.\n  Give forward_rounding='nearest' and backward_rounding='nearest'."
        )

    def rounded(x: Tensor) -> Tensor:
        found: Tensor = _Departing.apply(x, forward_number, backward_number, hooks, clamping_grad_zero)
        return found

    return rounded


class Quantizer(gs.nn.Emulated, nn.Module):
    """``quantizer(...)`` as a module.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.Quantizer(qtorch.FixedPoint(8, 4), forward_rounding="nearest")(torch.tensor([0.3, 100.0]))
        tensor([0.3125, 7.9375])
    """

    def __init__(
        self,
        forward_number: Number | None = None,
        backward_number: Number | None = None,
        forward_rounding: str = "stochastic",
        backward_rounding: str = "stochastic",
        *,
        bug_compatible: bool = False,
    ) -> None:
        super().__init__()
        numbers = forward_number, backward_number, forward_rounding, backward_rounding
        self.quantize = quantizer(*numbers, bug_compatible=bug_compatible)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` rounded."""
        return self.quantize(x)
