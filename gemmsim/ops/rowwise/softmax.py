"""Softmax with every step rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec

from ..checks import check_device, check_float, check_ints
from ..fx import traceable
from ..seeds import Bits, Stream
from ..single_differentiation import differentiable_once
from .formats import QSoftmaxFormats, RowFormatsLike, RowPlan, row_formats
from .operators import row_softmax_grad_op, row_softmax_op
from .steps import applied, finish, normal_dims, quantized

__all__ = ["qsoftmax", "softmax"]


class _Softmax(torch.autograd.Function):
    """Softmax over the last dimension as ``QSoftmaxFormats`` says; differentiating twice raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, plan: RowPlan, seed: int | None, counter: Tensor | None) -> Tensor:
        bits = Bits(seed, counter)
        xi = quantized(x, plan.input, bits, Stream.INPUT)
        if plan.fwd is None:
            y = quantized(torch.softmax(xi, -1), plan.output, bits, Stream.OUTPUT)
        else:
            y = row_softmax_op(xi, plan.fwd, plan.order, plan.lse, seed, int(Stream.FPROP), counter)
            y = finish(y, plan.output)
        if plan.zero_masked:
            masked = (xi == float("-inf")).all(-1, keepdim=True)
            y = torch.where(masked, torch.zeros((), dtype=y.dtype, device=y.device), y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.plan, ctx.seed, counter = inputs
        ctx.save_for_backward(output, counter)

    @staticmethod
    @differentiable_once("qsoftmax")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        y, counter = saved
        plan: RowPlan = ctx.plan
        if plan.bwd is None:
            dx = y * (g - (y * g).sum(-1, keepdim=True))
            return quantized(dx, plan.grad, Bits(ctx.seed, counter), Stream.DGRAD_OUT), None, None, None
        dx = row_softmax_grad_op(y, g, plan.bwd, plan.order, ctx.seed, int(Stream.DGRAD), counter)
        return finish(dx, plan.grad), None, None, None


@traceable
@takes_spec("formats")
def qsoftmax(x: Tensor, dim: int | None = None, spec: RowFormatsLike | None = None) -> Tensor:
    """``torch.softmax(x, dim)`` with each step rounded to the formats of ``spec``.

    Args:
        x: float32, float64, float16 or bfloat16, any strides.
        dim: the dimension that sums to one; None is the last.
        spec: ``QSoftmaxFormats``; None is PyTorch's own softmax; a cast or its name is every format ``fwd_*`` and
            ``bwd_*`` (y itself is rounded by ``output_quant``). (``formats``, its former keyword, is deprecated.)

    Regular: ``o = off(x - max)``, ``e = exp(o)`` rounded to fwd_exp, s = their sum rounded to fwd_acc after every
    addition in ``spec.order``, ``y = e / s``. With logarithms (``fwd_lse``): l = o_0, then ``l = lse(ln(exp(l) +
    exp(o_k)))`` for k = 1, 2, ..., ``y = exp(off(o - l))``. Functions are correctly rounded; y is rounded to the output
    cast, or without one to x's dtype (float32 for narrower ones). Gradient: ``w = sum of mul(y g)``, ``dx = add(g - w)
    y``, rounded to the gradient cast; y is the result. A row of only -inf is NaN (or 0: ``masked_rows``); a single -inf
    gives 0; NaN or +inf makes the row NaN. Under ``torch.autocast`` x keeps its dtype. Differentiating twice raises
    ``GradError``.

    Raises:
        DTypeError, DeviceError: for other tensors, and a dim that is not an integer.
        IndexError: for a dim out of range.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 3.0])
        >>> gs.qsoftmax(x, -1, "e4m3")  # 0.0938 = e4m3(exp(-2)) / 1.5
        tensor([0.0938, 0.2500, 0.6667])
        >>> gs.qsoftmax(x, -1, gs.QSoftmaxFormats("e4m3", "e4m3", "e4m3", output_quant="e4m3"))
        tensor([0.0938, 0.2500, 0.6875])
    """
    return softmax(x, dim, spec)


def softmax(x: Tensor, dim: int | None, formats: RowFormatsLike | None, bits: Bits | None = None) -> Tensor:
    """``qsoftmax``, its errors too (``DTypeError``, ...); ``bits`` in place of those of the formats."""
    check_float("qsoftmax", "x", x)
    check_device("qsoftmax", x, names="x")
    formats = row_formats(QSoftmaxFormats, formats)
    check_ints("qsoftmax", dim=-1 if dim is None else dim)
    dims = normal_dims("qsoftmax", -1 if dim is None else dim, x.dim())
    if formats.plan.is_native:
        return torch.softmax(x, -1 if dim is None else dim)
    if x.dim() == 0:
        return softmax(x.reshape(1), 0, formats, bits).reshape(())
    last = x.movedim(dims[0], -1)
    result: Tensor = applied(_Softmax, last, formats.plan, *(bits or Bits(formats.plan.seed)))
    return result.movedim(-1, dims[0])
