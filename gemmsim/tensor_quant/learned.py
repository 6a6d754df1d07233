"""Learnable amax: by the gradient of LSQ, or as clipping ends (PACT)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_tensor

from .arguments import as_amax, check_nonfinite, prepared, required
from .grids import IntegerGrid, grid_of, integer_name
from .operators import fake_op

__all__ = ["learned_fake_tensor_quant", "pact"]


def _reduce(grad: Tensor, shape: torch.Size) -> Tensor:
    return grad.sum_to_size(shape)


class _Learned(torch.autograd.Function):
    """``fake_tensor_quant`` with the gradient of its step size."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, amax: Tensor, grid: str, factor: float, propagate: bool) -> Tensor:
        return fake_op(x, amax, grid, None, propagate)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep inputs, amax and result."""
        x, amax, ctx.grid, ctx.factor, _ = inputs
        ctx.save_for_backward(x, amax, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through inside the range; d amax is (y - x) / amax there, and the clipped end's integer outside."""
        x, amax, y = ctx.saved_tensors
        meaning = grid_of(ctx.grid)
        assert isinstance(meaning, IntegerGrid)
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        a, v, g = amax.to(wide), x.to(wide), grad.to(wide)
        low, high = a * (meaning.low / meaning.high), a
        inside = (v >= low) & (v <= high)
        zero = torch.zeros((), dtype=wide, device=x.device)
        slope = torch.where(inside, (y.to(wide) - v) / a, torch.where(v > high, 1.0, meaning.low / meaning.high))
        slope = torch.where((a > 0) & ~v.isnan(), slope, zero)
        grad_amax = _reduce(g * slope, amax.shape) * ctx.factor
        return torch.where(inside, g, zero).to(x.dtype), grad_amax.to(amax.dtype), None, None, None


@takes_arrays
def learned_fake_tensor_quant(
    inputs: Tensor,
    amax: Tensor,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
    *,
    grad_scale: float | None = None,
    nonfinite_amax: str = "raise",
) -> Tensor:
    """``fake_tensor_quant`` that also has a gradient for ``amax``, as in learned step size quantisation (LSQ).

    With the step s = amax / hi, the derivative by s is rint(x / s) - x / s inside [lo s, hi s], hi above and lo
    below. The derivative by amax is that divided by hi. The inputs' gradient passes inside the range.

    Args:
        grad_scale: factor on amax's gradient; None is 1 / sqrt(elements per amax * hi).
        Others: as ``fake_tensor_quant``.

    NaN inputs add nothing to either gradient.
    Source: Esser et al., Learned Step Size Quantization, ICLR 2020, equations 3 and section 2.2.

    Raises:
        AmaxError, AmaxShapeError, BitsError, SignError, DTypeError, DeviceError: as ``fake_tensor_quant``.

    Example:
        >>> x, amax = torch.tensor([0.3, 5.0]), torch.tensor(2.0, requires_grad=True)
        >>> gs.tensor_quant.learned_fake_tensor_quant(x, amax, num_bits=4, grad_scale=1.0).sum().backward()
        >>> amax.grad  # the clipped element gives 1, the other one -0.05 / 7
        tensor(0.9929)
    """
    owner = "learned_fake_tensor_quant"
    name = integer_name(owner, num_bits, unsigned, narrow_range)
    propagate = check_nonfinite(owner, nonfinite_amax)
    required(owner, amax)
    amax = amax if isinstance(amax, Tensor) else as_amax(amax, inputs)
    x, _, _ = prepared(owner, inputs, amax)
    high = 2.0 ** (num_bits - 1 + int(unsigned)) - 1
    if grad_scale is None:
        grad_scale = 1 / math.sqrt(max(x.numel() / max(amax.numel(), 1), 1) * high)
    result: Tensor = _Learned.apply(x, amax, name, float(grad_scale), propagate)
    return result


class _Pact(torch.autograd.Function):
    """Clamping whose ends learn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return torch.maximum(torch.minimum(x, high.to(x.dtype)), low.to(x.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the masks are made from."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient goes to the inputs strictly between the ends, else to the end."""
        x, low, high = ctx.saved_tensors
        zero = torch.zeros((), dtype=grad.dtype, device=grad.device)
        dx = torch.where((x > low) & (x < high), grad, zero)
        below, above = torch.where(x <= low, grad, zero).sum(), torch.where(x >= high, grad, zero).sum()
        return dx, below.to(low.dtype).reshape(low.shape), above.to(high.dtype).reshape(high.shape)


@takes_arrays
def pact(x: Tensor, clip_min: Tensor, clip_max: Tensor) -> Tensor:
    """Clamp ``x`` to two learnable numbers; their gradients are sums over the elements that they clip (ends
    included).

    The inputs' gradient passes strictly between them. NaN stays NaN and has no gradient.
    Source: Choi et al., PACT, 2018; ModelOpt up to 0.33, ``learn_amax``.

    Raises:
        DTypeError: for arguments that are not tensors.

    Example:
        >>> low, high = torch.tensor(-1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
        >>> clamped = gs.tensor_quant.pact(torch.tensor([0.3, 5.0, 7.0]), low, high)
        >>> clamped.detach(), *torch.autograd.grad(clamped.sum(), (low, high))
        (tensor([0.3000, 1.0000, 1.0000]), tensor(0.), tensor(2.))
    """
    for name, t in (("x", x), ("clip_min", clip_min), ("clip_max", clip_max)):
        check_tensor("pact", name, t)
    result: Tensor = _Pact.apply(x, clip_min, clip_max)
    return result
