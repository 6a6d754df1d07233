"""The gates of recurrent layers: logistic function and hyperbolic tangent, rounded after each operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_device, check_float
from ..fx import traceable
from ..once import differentiable_once
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..seeds import check_seed
from .formats import quant_step
from .steps import applied, map_step

__all__ = ["qsigmoid", "qtanh"]


class _Gate(torch.autograd.Function):
    """sigmoid or tanh, one rounding; its gradient from the result, each step rounded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, name: str, fwd: Step, bwd: Step, seed: int | None) -> Tensor:
        return map_step(name, x, None, fwd, seed, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.name, _, ctx.bwd, ctx.seed = inputs
        ctx.save_for_backward(output)

    @staticmethod
    @differentiable_once("qsigmoid, qtanh")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        (y,) = saved
        bwd, seed, one = ctx.bwd, ctx.seed, torch.ones((), dtype=y.dtype, device=y.device)
        if ctx.name == "tanh":
            slope = map_step("sub", one, map_step("mul", y, y, bwd, seed, 1), bwd, seed, 2)
        else:
            slope = map_step("mul", y, map_step("sub", one, y, bwd, seed, 1), bwd, seed, 2)
        return map_step("mul", g, slope, bwd, seed, 3), None, None, None, None


def _gate(owner: str, name: str, x: Tensor, fwd: Any, bwd: Any, seed: int | None) -> Tensor:
    steps = quant_step(owner, fwd), quant_step(owner, bwd)
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    result: Tensor = applied(_Gate, x, name, *steps, check_seed(owner, seed))
    return result


@traceable
def qsigmoid(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``y = 1 / (1 + exp(-x))``, the exact value rounded once by ``fwd_quant`` (None: to x's dtype).

    Gradient ``bwd_quant(g * bwd_quant(y * bwd_quant(1 - y)))``. -inf gives 0, +inf gives 1, NaN stays. Otherwise as
    ``qadd``.
    """
    return _gate("qsigmoid", "sigmoid", x, fwd_quant, bwd_quant, seed)


@traceable
def qtanh(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``y = tanh(x)``, the exact value rounded once by ``fwd_quant`` (None: to x's dtype).

    Gradient ``bwd_quant(g * bwd_quant(1 - bwd_quant(y * y)))``. +-inf give +-1, -0 stays, NaN stays. Otherwise as
    ``qadd``.
    """
    return _gate("qtanh", "tanh", x, fwd_quant, bwd_quant, seed)
