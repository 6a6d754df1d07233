"""Softmax with every step rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .checks import check_device, check_float
from .row_formats import QSoftmaxFormats, order_length
from .row_library import row_softmax_grad_op, row_softmax_op
from .row_steps import cast_text, differentiable_once, finish, normal_dims, quantized, step_of
from .seeds import Stream

__all__ = ["qsoftmax"]

_NATIVE = QSoftmaxFormats()


class _Softmax(torch.autograd.Function):
    """Softmax over the last dimension as ``QSoftmaxFormats`` says; differentiating twice raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, formats: QSoftmaxFormats) -> Tensor:
        seed = formats.seed
        xi = quantized(x, step_of(formats.input_quant), seed, Stream.INPUT)
        out = step_of(formats.output_quant)
        if formats.fwd_off is None:
            y = quantized(torch.softmax(xi, -1), out, seed, Stream.OUTPUT)
        else:
            lse = formats.use_lse
            middle = (formats.fwd_off, formats.fwd_lse) if lse else (formats.fwd_exp, formats.fwd_acc)
            casts = f"{formats.fwd_off};{middle[0]};{middle[1]};{cast_text(out)}"
            order = order_length("qsoftmax", formats.order)
            y = finish(row_softmax_op(xi, casts, order, lse, seed, Stream.FPROP), out)
        if formats.masked_rows == "zero":
            masked = (xi == float("-inf")).all(-1, keepdim=True)
            y = torch.where(masked, torch.zeros((), dtype=y.dtype, device=y.device), y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.formats = inputs
        ctx.save_for_backward(output)

    @staticmethod
    @differentiable_once("qsoftmax")
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        formats: QSoftmaxFormats = ctx.formats
        grad = step_of(formats.grad_quant)
        if formats.bwd_add is None or formats.bwd_mul is None:
            dx = y * (g - (y * g).sum(-1, keepdim=True))
            return quantized(dx, grad, formats.seed, Stream.DGRAD_OUT), None
        casts = f"{formats.bwd_mul};{formats.bwd_add};{formats.bwd_add};{cast_text(grad)}"
        order = order_length("qsoftmax", formats.order)
        return finish(row_softmax_grad_op(y, g, casts, order, formats.seed, Stream.DGRAD), grad), None


def qsoftmax(x: Tensor, dim: int | None = None, formats: QSoftmaxFormats | None = None) -> Tensor:
    """``torch.softmax(x, dim)`` with each step rounded as ``formats`` says.

    Args:
        x: float32, float64, float16 or bfloat16, any strides.
        dim: the dimension that sums to one; None is the last.
        formats: None is PyTorch's own softmax.

    Regular: ``o = off(x - max)``, ``e = exp(o)`` rounded to fwd_exp, s = their sum rounded to fwd_acc after every
    addition in ``formats.order``, ``y = e / s``. By logarithms: l = o_0, then ``l = lse(ln(exp(l) + exp(o_k)))`` for
    k = 1, 2, ..., ``y = exp(off(o - l))``. Functions are correctly rounded; y is rounded to the output cast, else to
    x's dtype (float32 for narrower ones). Gradient: ``w = sum of mul(y g)``, ``dx = add(g - w) y``, rounded to the
    gradient cast; y is the result. A row of -inf alone is NaN (or 0: ``masked_rows``); single -inf give 0; NaN or +inf
    make the row NaN. Under ``torch.autocast`` x keeps its dtype. Differentiating twice raises ``GradError``.

    Raises:
        DTypeError, DeviceError: for other tensors.
        IndexError: for a dim out of range.
    """
    check_float("qsoftmax", "x", x)
    check_device("qsoftmax", x, names="x")
    formats = _NATIVE if formats is None else formats
    dims = normal_dims("qsoftmax", -1 if dim is None else dim, x.dim())
    if formats.is_native and formats.masked_rows == "nan":
        return torch.softmax(x, -1 if dim is None else dim)
    if x.dim() == 0:
        return qsoftmax(x.reshape(1), 0, formats).reshape(())
    last = x.movedim(dims[0], -1)
    result: Tensor = _Softmax.apply(last, formats)
    return result.movedim(-1, dims[0])
