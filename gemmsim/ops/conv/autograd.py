"""Convolutions with their gradients: roles fprop, dgrad and wgrad, each with its own spec."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.backends import acceleration

from ..product import gradient_underflow
from ..product.affine_plan import AffinePlan, Product
from ..product.autograd import add_exponents, gradients_are_pytorchs, quantize_step, sources_in_transforms, work_dtype
from ..product.matmul_extras import MatmulExtras
from ..product.operators import multiply
from ..scaling import scale_by_power, scale_exponent
from ..seeds import Stream
from ..single_differentiation import differentiable_once
from .arguments import Geometry
from .memory_format import laid, memory_format_of
from .native import native_conv, native_gradients, native_weight
from .operators import conv_op, conv_weight_op, conv_with_operands_op

__all__ = ["ConvFunction"]


class ConvFunction(torch.autograd.Function):
    """A convolution of x (B, C, ...) plus a bias, as an ``AffinePlan`` says; the index map is that of ``Geometry``.

    Multiplied operands are saved as multiplied, before padding, so the backward pass rounds none of them again.
    Differentiating twice raises: the gradient of a rounding is a convention, and there is none for its second one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        plan: AffinePlan,
        seed: int | None,
        where: tuple[Any, ...],
        dtype: torch.dtype,
        counter: Tensor | None,
        site: str | None,
    ) -> tuple[Tensor | None, ...]:
        """The result, the operands as multiplied (None: as given) and their scale exponents (None: not scaled)."""
        scale_x = scale_w = None
        left, right = x, weight
        if plan.scale_input is not None and plan.scale_weight is not None:
            scale_x = _exponent(x, plan.scale_input, plan.scale_margin)
            scale_w = _exponent(weight, plan.scale_weight, plan.scale_margin)
            left, right = scale_by_power(x, scale_x), scale_by_power(weight, scale_w)
        left = quantize_step(plan.input_quant, left, seed, Stream.INPUT, counter)
        right = quantize_step(plan.weight_quant, right, seed, Stream.WEIGHT, counter)
        bias = None if bias is None else quantize_step(plan.addend_quant, bias, seed, Stream.ADDEND, counter)
        scale = add_exponents(scale_x, scale_w)
        native = plan.fprop.spec is None and scale is None  # PyTorch's convolution adds the bias itself
        inside = bias if plan.addend_in_accumulator or native else None
        if inside is not None and scale is not None:
            inside = scale_by_power(inside, scale.reshape(1), torch.float64)
        after = bias if inside is None else None
        more = scale is not None or after is not None or plan.output_quant is not None
        work = work_dtype(plan.fprop, dtype, more)
        out, left, right = _fprop(left, right, inside, plan.fprop, seed, where, work, counter, site)
        if scale is not None:
            out = scale_by_power(out, -scale)
        if after is not None:
            out = out + after.to(out.dtype).reshape(-1, *((1,) * (out.dim() - 2)))
        out = quantize_step(plan.output_quant, out, seed, Stream.OUTPUT, counter).to(dtype)
        return out, None if left is x else left, None if right is weight else right, scale_x, scale_w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save the operands as multiplied, as far as a gradient needs them."""
        x, weight, bias, ctx.plan, ctx.seed, ctx.where, _, counter, ctx.site = inputs
        _, left, right, scale_x, scale_w = output
        ctx.mark_non_differentiable(*(t for t in output[1:] if t is not None))
        ctx.as_given = left is None and right is None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            (x if left is None else left) if ctx.needs_input_grad[1] else None,
            (weight if right is None else right) if ctx.needs_input_grad[0] else None,
            scale_x,
            scale_w,
            counter,
            *sources_in_transforms((x, left), (weight, right)),
        )
        # As in AffineFunction: the engine may run the backward pass in a thread of its own.
        ctx.traced = torch.compiler.is_compiling()
        ctx.acceleration = None if ctx.traced else acceleration.current()
        ctx.last = None if ctx.traced else memory_format_of(x, weight, Geometry(*ctx.where))
        ctx.x_size, ctx.kernel = tuple(x.shape[2:]), tuple(weight.shape[2:])
        ctx.shapes = (tuple(x.shape), tuple(weight.shape))
        ctx.dtypes = (x.dtype, weight.dtype, None if bias is None else bias.dtype)

    @staticmethod
    @differentiable_once("qconv, qconv_transpose", gradients_are_pytorchs)
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
        """Gradients of x, the weight and the bias."""
        if grad is None:
            return (None,) * 9
        if ctx.traced:
            return _gradients(ctx, saved, grad)
        with acceleration.restored(ctx.acceleration):
            grad_x, grad_w, *rest = _gradients(ctx, saved, grad)
        return (*(t if t is None else laid(t, ctx.last) for t in (grad_x, grad_w)), *rest)


def _exponent(t: Tensor, largest: str, margin: int) -> Tensor:
    """One scale for all of a tensor."""
    return scale_exponent(t, largest, margin, tuple(range(t.dim())))


def _fprop(
    x: Tensor, weight: Tensor, c: Tensor | None, product: Product, seed: int | None, where: tuple[Any, ...], dtype: Any,
    counter: Tensor | None, site: str | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The forward product, and both operands as it multiplied them."""
    if product.spec is None:
        return native_conv(x, weight, c, dtype, Geometry(*where)), x, weight
    if not (product.cast_a or product.cast_b):
        return conv_op(x, weight, product.spec, *where, seed, dtype, c, 0, counter, site), x, weight
    out, cast_x, cast_w = conv_with_operands_op(x, weight, product.spec, *where, seed, dtype, c, 0, counter, site)
    return out, cast_x if product.cast_a else x, cast_w if product.cast_b else weight


def _rest(ctx: Any) -> tuple[Tensor | None, str | None]:
    """What the operators of a backward pass are told beyond operands, map, spec and seed."""
    return ctx.counter, ctx.site


def _gradients(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of all arguments of ``ConvFunction``."""
    plan: AffinePlan = ctx.plan
    x, weight, scale_x, scale_w, ctx.counter = saved[:5]
    scale_g = None
    if plan.scale_grad is not None:
        scale_g = _exponent(grad, plan.scale_grad, plan.scale_margin)
        grad = scale_by_power(grad, scale_g)
    lost = None if ctx.traced else gradient_underflow.probe(plan, grad)
    given, grad = grad, quantize_step(plan.grad_quant, grad, ctx.seed, Stream.GRAD, ctx.counter)
    if lost is not None:
        lost.gradient(given, grad)
    exponents = (add_exponents(scale_g, scale_w), add_exponents(scale_g, scale_x), scale_g)
    if plan.dgrad.spec is None and plan.wgrad.spec is None and plan.addend_sum is None:
        found = _native_gradients(ctx, grad, x, weight, exponents)
        if found is not None:
            return (*found, *((None,) * 6))
    grad_x = grad_w = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_x = _dgrad(ctx, grad, weight, exponents[0], lost)
    if ctx.needs_input_grad[1]:
        grad_w = _wgrad(ctx, grad, x, exponents[1], lost)
    if ctx.needs_input_grad[2]:
        grad_bias = _bias_grad(ctx, grad, scale_g)
    return grad_x, grad_w, grad_bias, *((None,) * 6)


def _native_gradients(
    ctx: Any, grad: Tensor, x: Tensor | None, weight: Tensor | None, exponents: tuple[Tensor | None, ...]
) -> list[Tensor | None] | None:
    """All three as PyTorch's autograd has them, finished; None where PyTorch has no such convolution."""
    needed = ctx.needs_input_grad[:3]
    blank = grad.new_zeros(())  # of what was not saved only the shape matters
    left, right = (blank.expand(s) if t is None else t for t, s in zip((x, weight), ctx.shapes, strict=True))
    found = native_gradients(grad, left, right, needed, Geometry(*ctx.where))
    if found is None:
        return None
    streams = (Stream.DGRAD_OUT, Stream.WGRAD_OUT, Stream.ADDEND_OUT)
    steps = zip(found, exponents, ctx.dtypes, streams, needed, strict=True)
    return [
        _finish(ctx, t, e, dtype, stream) if want and t is not None else None for t, e, dtype, stream, want in steps
    ]


def _finish(ctx: Any, grad: Tensor, exponent: Tensor | None, dtype: torch.dtype, stream: int) -> Tensor:
    """A gradient unscaled, quantised, in its operand's dtype."""
    if exponent is not None:
        grad = scale_by_power(grad, -exponent.reshape((1,) * grad.dim()))
    return quantize_step(ctx.plan.grad_quant, grad, ctx.seed, stream, ctx.counter).to(dtype)


def _dgrad(
    ctx: Any, grad: Tensor, weight: Tensor, exponent: Tensor | None, lost: gradient_underflow.Lost | None
) -> Tensor:
    """The convolution the other way round: of a transposed one an ordinary one, of an ordinary one a transposed one."""
    product: Product = ctx.plan.dgrad
    dtype = work_dtype(product, ctx.dtypes[0], exponent is not None or ctx.plan.grad_quant is not None)
    where = Geometry(*ctx.where)
    back = where._replace(output_size=ctx.x_size, transposed=not where.transposed)
    if product.spec is None:
        out = native_conv(grad, weight, None, dtype, back)
    else:
        out = conv_op(grad, weight, product.spec, *back, ctx.seed, dtype, None, int(Stream.DGRAD), *_rest(ctx))
    found = _finish(ctx, out, exponent, ctx.dtypes[0], Stream.DGRAD_OUT)
    if lost is not None:
        lost.product(product, found, lambda: native_conv(grad.double(), weight.double(), None, torch.float64, back))
    return found


def _wgrad(ctx: Any, grad: Tensor, x: Tensor, exponent: Tensor | None, lost: gradient_underflow.Lost | None) -> Tensor:
    """Sums over all images and positions. The windows are the input's, of a transposed convolution the gradient's."""
    product: Product = ctx.plan.wgrad
    dtype = work_dtype(product, ctx.dtypes[1], exponent is not None or ctx.plan.grad_quant is not None)
    _, *same, transposed, _ = ctx.where
    large, small, spec = (grad, x, product.spec) if transposed else (x, grad, product.swapped)
    if spec is None:
        out = native_weight(large, small, dtype, ctx.kernel, *same)
    else:
        out = conv_weight_op(large, small, spec, ctx.kernel, *same, ctx.seed, dtype, int(Stream.WGRAD), *_rest(ctx))
    found = _finish(ctx, out, exponent, ctx.dtypes[1], Stream.WGRAD_OUT)
    if lost is not None:
        where = (torch.float64, ctx.kernel, *same)
        lost.product(product, found, lambda: native_weight(large.double(), small.double(), *where))
    return found


def _bias_grad(ctx: Any, grad: Tensor, exponent: Tensor | None) -> Tensor:
    """Sum of the gradient over images and positions, in that order."""
    dtype, plan = ctx.dtypes[2], ctx.plan
    terms = grad.transpose(0, 1).reshape(grad.shape[1], grad.shape[0] * grad.shape[2:].numel()).mT
    work = work_dtype(plan.wgrad, dtype, exponent is not None or plan.grad_quant is not None)
    if plan.addend_sum is None:
        total = terms.sum(0, dtype=work)
    else:
        ones = torch.ones((1, terms.shape[0]), dtype=torch.float32, device=terms.device)
        stream = int(Stream.ADDEND_GRAD)
        extras = MatmulExtras(ctx.seed, work, stream=stream, counter=ctx.counter, site=ctx.site)
        total = multiply(ones, terms, plan.addend_sum, extras)
        total = total.reshape(-1)
    return _finish(ctx, total, exponent, dtype, Stream.ADDEND_OUT)
