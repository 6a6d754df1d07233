"""``modelopt.torch.quantization.nn.functional``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.tensor_quant import TensorQuantizer

__all__ = ["ClipFunction", "clip", "normalized_hadamard_transform"]


class ClipFunction(torch.autograd.Function):
    """``min(max(x, low), high)``. The gradient passes strictly inside; each end gets the gradient of what it clipped.

    Example:
        >>> from gemmsim.compat.modelopt.torch.quantization.nn.functional import ClipFunction
        >>> ClipFunction.apply(torch.tensor([-2.0, 0.5, 3.0]), torch.tensor(-1.0), torch.tensor(1.0))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, clip_value_min: Tensor, clip_value_max: Tensor) -> Tensor:
        """``input`` clipped; NaN stays."""
        ctx.save_for_backward(input, clip_value_min, clip_value_max)
        return torch.minimum(torch.maximum(input, clip_value_min), clip_value_max)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the input and of both ends."""
        x, low, high = ctx.saved_tensors
        below, above = x <= low, x >= high
        inside = grad_output.masked_fill(below | above, 0)
        ends = (grad_output.masked_fill(~below, 0), grad_output.masked_fill(~above, 0))
        return inside, ends[0].sum().reshape(low.shape), ends[1].sum().reshape(high.shape)


def clip(input: Tensor, clip_value_min: Tensor, clip_value_max: Tensor) -> Tensor:
    """``ClipFunction`` with ends that are tensors of one element.

    Example:
        >>> from gemmsim.compat.modelopt.torch.quantization.nn.functional import clip
        >>> clip(torch.tensor([-2.0, 0.5, 3.0]), torch.tensor(-1.0), torch.tensor(1.0))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    found: Tensor = ClipFunction.apply(input, clip_value_min, clip_value_max)
    return found


def normalized_hadamard_transform(inputs: Tensor) -> Tensor:
    """``inputs`` times the Hadamard matrix over the square root of its size, along the last dimension, a power of two.

    Raises:
        ShapeError (ValueError): for another size.

    Example:
        >>> from gemmsim.compat.modelopt.torch.quantization.nn.functional import normalized_hadamard_transform
        >>> normalized_hadamard_transform(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    rotation = TensorQuantizer({"rotate": True, "enable": False, "num_bits": 8})
    found: Tensor = rotation(inputs)
    return found
