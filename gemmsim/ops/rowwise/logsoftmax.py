"""Logarithm of softmax with every step rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from ..checks import check_device, check_float, check_ints
from ..fx import traceable
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..seeds import Bits, check_seed
from ..single_differentiation import differentiable_once
from .formats import order_length, quant_step
from .steps import applied, map_step, normal_dims, sum_step

__all__ = ["logsoftmax", "qlogsoftmax"]


class _LogSoftmax(torch.autograd.Function):
    """Over the last dimension; its gradient from the result, each step rounded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, fwd: Step, bwd: Step, order: int, seed: int | None, counter: Tensor | None) -> Tensor:
        bits = Bits(seed, counter)
        if fwd is None or not x.numel():
            return torch.log_softmax(x, -1)
        shifted = map_step("sub", x, x.amax(-1, keepdim=True), fwd, bits, 0)
        powers = map_step("exp", shifted, None, fwd, bits, 1)
        total = map_step("log", sum_step(powers, [x.dim() - 1], fwd, order, bits, 2), None, fwd, bits, 3)
        return map_step("sub", shifted, total, fwd, bits, 4)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, ctx.bwd, ctx.order, ctx.seed, counter = inputs
        ctx.save_for_backward(output, counter)

    @staticmethod
    @differentiable_once("qlogsoftmax")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        y, counter = saved
        bwd, bits = ctx.bwd, Bits(ctx.seed, counter)
        if bwd is None or not y.numel():
            return g - y.exp() * g.sum(-1, keepdim=True), None, None, None, None, None
        total = sum_step(g, [g.dim() - 1], bwd, ctx.order, bits, 100)
        share = map_step("mul", map_step("exp", y, None, bwd, bits, 101), total, bwd, bits, 102)
        return map_step("sub", g, share, bwd, bits, 103), None, None, None, None, None


@traceable
@says_keywords("fwd_quant")
def qlogsoftmax(
    x: Tensor, dim: int | None = None, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *,
    order: str = "sequential", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``torch.log_softmax(x, dim)`` with each step rounded by ``fwd_quant``, its gradient's by ``bwd_quant``.

    ``c = fwd(x - max)``, ``s`` the sum of ``fwd(exp(c))``, each addition rounded, in ``order``,
    ``y = fwd(c - fwd(log(s)))``; exp and log are correctly rounded. Gradient: ``t`` is the sum of g, likewise rounded,
    ``dx = bwd(g - bwd(bwd(exp(y)) * t))``. None is PyTorch's own in that direction.

    Args:
        x: float32, float64, float16 or bfloat16, any strides.
        dim: the dimension whose exponentials sum to one; None is the last.
        order: "sequential", or "tree(n)" as in ``qsum``.

    A single -inf gives -inf. A row of only -inf, and a row with a NaN or +inf, becomes NaN. The result has x's shape
    and dtype; each step is rounded to that dtype, too. Quantisers and ``seed`` as in ``qadd``.
    Differentiating twice raises.

    Raises:
        FormatError, SpecError, SeedError: for quantisers, orders and seeds that mean nothing.
        DTypeError, DeviceError: for other tensors, and a dim that is not an integer.
        IndexError: for a dim out of range.

    Example:
        >>> gs.qlogsoftmax(torch.tensor([1.0, 2.0, 3.0]), fwd_quant="e4m3")
        tensor([-2.5000, -1.3750, -0.4062])
    """
    return logsoftmax(x, dim, (fwd_quant, bwd_quant), order, Bits(seed))


def logsoftmax(
    x: Tensor, dim: int | None, quants: tuple[QuantLike | None, QuantLike | None], order: str, bits: Bits
) -> Tensor:
    """``qlogsoftmax``, its errors too (``DTypeError``, ...), with random bits that a counter may move on."""
    check_float("qlogsoftmax", "x", x)
    check_device("qlogsoftmax", x, names="x")
    steps = quant_step("qlogsoftmax", quants[0]), quant_step("qlogsoftmax", quants[1])
    length, seed = order_length("qlogsoftmax", order), check_seed("qlogsoftmax", bits.seed)
    at = -1 if dim is None else dim
    check_ints("qlogsoftmax", dim=at)
    dims = normal_dims("qlogsoftmax", at, x.dim())
    if quants[0] is None and quants[1] is None:
        return torch.log_softmax(x, at)
    if x.dim() == 0:
        return logsoftmax(x.reshape(1), 0, quants, order, bits).reshape(())
    result: Tensor = applied(_LogSoftmax, x.movedim(dims[0], -1), *steps, length, seed, bits.counter)
    return result.movedim(-1, dims[0])
