"""Two roundings, of a tensor and of its gradient, as one function: what mptorch's modules keep as Qw, Qb, Qi, Qo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import gemmsim as gs

from .quantizers import QuantFunction

__all__ = ["StraightThrough", "as_function"]


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Any) -> Tensor:
        ctx.backward_quant = backward
        out = forward(x)
        return x.view_as(x) if out is x else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.backward_quant(grad), None, None


@dataclass(frozen=True)
class StraightThrough:
    """``forward`` of a tensor; going back, ``backward`` of the gradient. A value: it copies, and pickles if they do."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = _Pair.apply(x, self.forward, self.backward)
        return result


def unchanged(x: Tensor) -> Tensor:
    """``x``."""
    return x


def as_function(quant: Any) -> Any:
    """A quantiser of formats as a function of one tensor."""
    if quant is None:
        return unchanged
    if callable(quant):
        return quant
    target = gs.quantizer(quant).forward
    assert target is not None  # of a format there is one
    return QuantFunction(target)
