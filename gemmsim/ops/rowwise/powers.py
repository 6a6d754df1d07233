"""Powers whose exponent is a tensor, rounded, with gradients of base and exponent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..product.affine_plan import Step
from ..seeds import Bits
from ..single_differentiation import differentiable_once
from .steps import map_step, sum_to

__all__ = ["TensorPower"]


class TensorPower(torch.autograd.Function):
    """``z = x ** n``, each step rounded; gradients of broadcast operands are summed in the backward step.

    dx = B(g B(B(x^(n-1)) n)), 0 where n is 0; dn = B(g B(z B(log x))), 0 where x is 0 and n is not negative.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, n: Tensor, fwd: Step, bwd: Step, at: int, seed: int | None, counter: Tensor | None
    ) -> Tensor:
        return map_step("pow", x, n, fwd, Bits(seed, counter), at)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, n, _, ctx.bwd, ctx.at, ctx.seed, counter = inputs
        ctx.save_for_backward(x, n, output, counter)

    @staticmethod
    @differentiable_once("qpow")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        x, n, z, counter = saved
        bwd, bits, at = ctx.bwd, Bits(ctx.seed, counter), ctx.at
        dx = dn = None
        if ctx.needs_input_grad[0]:
            factor = map_step("mul", map_step("pow", x, n - 1, bwd, bits, at + 1), n, bwd, bits, at + 2)
            dx = map_step("mul", g, factor, bwd, bits, at + 3).masked_fill(n == 0, 0.0)
            dx = sum_to(dx, x.shape, bwd, bits, at + 4).to(x.dtype)
        if ctx.needs_input_grad[1]:
            logarithm = torch.log(x) if bwd is None else map_step("log", x, None, bwd, bits, at + 5)
            factor = map_step("mul", z, logarithm, bwd, bits, at + 6)
            dn = map_step("mul", g, factor, bwd, bits, at + 7).masked_fill((x == 0) & (n >= 0), 0.0)
            dn = sum_to(dn, n.shape, bwd, bits, at + 8).to(n.dtype)
        return dx, dn, None, None, None, None, None
