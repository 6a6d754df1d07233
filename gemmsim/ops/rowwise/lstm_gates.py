"""The gates of recurrent layers: logistic function and hyperbolic tangent, rounded after each operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from ..checks import check_device, check_float
from ..fx import traceable
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..seeds import Bits, check_seed
from ..single_differentiation import differentiable_once
from ..strides import like_operand
from .formats import quant_step
from .steps import applied, map_step

__all__ = ["gate", "qsigmoid", "qtanh"]


class _Gate(torch.autograd.Function):
    """sigmoid or tanh, one rounding; its gradient from the result, each step rounded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, name: str, fwd: Step, bwd: Step, seed: int | None, counter: Tensor | None) -> Tensor:
        return map_step(name, x, None, fwd, Bits(seed, counter), 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.name, _, ctx.bwd, ctx.seed, counter = inputs
        ctx.save_for_backward(output, counter)

    @staticmethod
    @differentiable_once("qsigmoid, qtanh")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        y, counter = saved
        bwd, bits, one = ctx.bwd, Bits(ctx.seed, counter), torch.ones((), dtype=y.dtype, device=y.device)
        if ctx.name == "tanh":
            slope = map_step("sub", one, map_step("mul", y, y, bwd, bits, 1), bwd, bits, 2)
        else:
            slope = map_step("mul", y, map_step("sub", one, y, bwd, bits, 1), bwd, bits, 2)
        return like_operand(map_step("mul", g, slope, bwd, bits, 3), g), None, None, None, None, None


def gate(name: str, x: Tensor, fwd: QuantLike | None, bwd: QuantLike | None, bits: Bits) -> Tensor:
    """``qsigmoid`` or ``qtanh``, whose errors it raises (``DTypeError``, ...), with random bits that a counter may move
    on."""
    owner = f"q{name}"
    steps = quant_step(owner, fwd), quant_step(owner, bwd)
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    result: Tensor = applied(_Gate, x, name, *steps, check_seed(owner, bits.seed), bits.counter)
    return result


@traceable
@says_keywords("fwd_quant")
def qsigmoid(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``y = 1 / (1 + exp(-x))``, the exact value rounded once by ``fwd_quant`` (None: to x's dtype).

    Gradient ``bwd_quant(g * bwd_quant(y * bwd_quant(1 - y)))``. -inf gives 0, +inf gives 1, NaN stays. Otherwise as
    ``qadd``.

    Example:
        >>> gs.qsigmoid(torch.tensor([0.0, 1.0, -10.0]), "e4m3")
        tensor([0.5000, 0.7500, 0.0000])
    """
    return gate("sigmoid", x, fwd_quant, bwd_quant, Bits(seed))


@traceable
@says_keywords("fwd_quant")
def qtanh(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``y = tanh(x)``, the exact value rounded once by ``fwd_quant`` (None: to x's dtype).

    Gradient ``bwd_quant(g * bwd_quant(1 - bwd_quant(y * y)))``. +-inf give +-1, -0 stays, NaN stays. Otherwise as
    ``qadd``.

    Example:
        >>> gs.qtanh(torch.tensor([0.0, 1.0, -10.0]), "e4m3")
        tensor([ 0.0000,  0.7500, -1.0000])
    """
    return gate("tanh", x, fwd_quant, bwd_quant, Bits(seed))
