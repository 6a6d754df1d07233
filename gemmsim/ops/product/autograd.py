"""The affine product with its gradients: roles fprop, dgrad and wgrad, each with its own spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gemmsim.backends import acceleration

from .. import last_run
from ..errors import GradError, message
from ..scaling import scale_by_power, scale_exponent
from ..seeds import Site, Stream
from ..single_differentiation import differentiable_once
from . import eager, fast_path, gradient_underflow
from .affine_plan import AffinePlan, Product, Step
from .amax_history import note_gradient
from .matmul_extras import MatmulExtras
from .operators import multiply, multiply_with_operands, quantize_op
from .refusals import refuse
from .shapes import broadcast_dims, contract_columns, contract_rows, pad_rank, sum_leading_view

__all__ = [
    "AffineFunction",
    "add_exponents",
    "apply_directly",
    "check_gradient",
    "gradients",
    "gradients_are_pytorchs",
    "quantize_step",
    "sources_in_transforms",
    "work_dtype",
]


def gradients_are_pytorchs(ctx: Any, saved: tuple[Any, ...]) -> bool:
    """Whether a backward pass is a native PyTorch products of the operands as they were given."""
    plan: AffinePlan = ctx.plan
    return plan.has_native_gradients and ctx.as_given


def sources_in_transforms(*pairs: tuple[Tensor, Tensor | None]) -> list[Tensor]:
    """What to save besides: of pairs (operand, what was multiplied in its place) the operands that were cast, where one
    transform of ``torch.func`` runs inside another. The outer one learns from them that a gradient depends on them."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is None:
        return []
    return [operand for operand, multiplied in pairs if multiplied is not None]


class AffineFunction(torch.autograd.Function):
    """``a @ b + addend`` as an ``AffinePlan`` says, for operands of rank two or more.

    With ``linear`` the second operand is a weight (N, K) and the product is ``a @ b.mT``; its gradient is computed in
    that layout. Multiplied operands are saved as multiplied, so the backward pass rounds none of them again.
    Differentiating twice raises: the gradient of a rounding is a convention, and there is none for its second one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        a: Tensor,
        b: Tensor,
        addend: Tensor | None,
        plan: AffinePlan,
        seed: int | None,
        linear: bool,
        dtype: torch.dtype,
        select: Tensor | None,
        row: int,
        counter: Tensor | None,
        site: str | None,
        amax: Tensor | None = None,
        history: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        """The result, the operands as multiplied (None: as given) and their scale exponents (None: not scaled).

        ``amax``: of which delayed scales of a, b and the gradient are made, float32 (3,). ``history``: learns what the
        gradient has (``amax_history``).
        """
        scale_a = scale_b = None
        left, right = a, b
        if plan.scale_input is not None and plan.scale_weight is not None:
            scale_a = scale_exponent(a, plan.scale_input, plan.scale_margin, _scale_dims(a, b))
            scale_b = scale_exponent(b, plan.scale_weight, plan.scale_margin, _scale_dims(b, a))
            left, right = scale_by_power(a, scale_a), scale_by_power(b, scale_b)
        left = quantize_step(plan.input_quant, left, seed, Stream.INPUT, counter)
        right = quantize_step(plan.weight_quant, right, seed, Stream.WEIGHT, counter)
        addend = None if addend is None else quantize_step(plan.addend_quant, addend, seed, Stream.ADDEND, counter)
        scale = add_exponents(scale_a, scale_b)
        inside = addend if plan.addend_in_accumulator else None
        if inside is not None and scale is not None:
            inside = scale_by_power(inside, scale, torch.float64)
        after = None if plan.addend_in_accumulator else addend
        output = plan.output_quant
        extras = MatmulExtras(seed, dtype, inside, select=select, row=row, counter=counter, site=site)
        extras = extras._replace(amax=None if amax is None else amax[:2])
        if scale is None and plan.fprop.spec is not None:  # the product's own last steps
            work, output = work_dtype(plan.fprop, dtype, plan.output_rest is not None), plan.output_rest
            extras = extras._replace(out_dtype=work, bias=after, output=plan.output_cast)
            out, left, right = _fprop(left, right, plan.fprop, linear, extras)
        else:
            work = work_dtype(plan.fprop, dtype, scale is not None or after is not None or output is not None)
            out, left, right = _fprop(left, right, plan.fprop, linear, extras._replace(out_dtype=work))
            if scale is not None:
                out = scale_by_power(out, -scale)
            if after is not None:
                out = out + after.to(out.dtype)
        out = quantize_step(output, out, seed, Stream.OUTPUT, counter).to(dtype)
        return out, None if left is a else left, None if right is b else right, scale_a, scale_b

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save the operands as multiplied, as far as a gradient needs them."""
        a, b, addend, plan, seed, linear, _, _, row, counter, site, amax, ctx.history = inputs
        _, left, right, scale_a, scale_b = output
        ctx.mark_non_differentiable(*(t for t in output[1:] if t is not None))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            (a if left is None else left) if ctx.needs_input_grad[1] else None,
            (b if right is None else right) if ctx.needs_input_grad[0] else None,
            scale_a,
            scale_b,
            counter,
            amax,
            *sources_in_transforms((a, left), (b, right)),
        )
        ctx.plan, ctx.seed, ctx.linear = plan, seed, linear
        ctx.as_given = left is None and right is None
        ctx.row, ctx.site = row, site
        # The engine may run the backward pass in a thread of its own, in which no context is in force. Tracers do not
        # follow context variables; the operators of compiled code look the setting up when they run.
        ctx.traced = torch.compiler.is_compiling()
        ctx.acceleration = None if ctx.traced else acceleration.current()
        ctx.a_shape, ctx.b_shape, ctx.dtypes = a.shape, b.shape, (a.dtype, b.dtype)
        ctx.columns = (False, False) if ctx.traced else gradients_in_columns(a, b, linear)
        ctx.addend = None if addend is None else (addend.shape, addend.dtype)

    @staticmethod
    @differentiable_once("qmatmul, qmm, qlinear", gradients_are_pytorchs)
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
        """Gradients of a, b and the addend."""
        if grad is None:
            return (None,) * 13
        if ctx.history is not None:
            note_gradient(ctx.history, grad)
        return (*gradients(ctx, saved, grad), *((None,) * 10))


def gradients_in_columns(a: Tensor, b: Tensor, linear: bool) -> tuple[bool, bool]:
    """Whether PyTorch lays the gradients of two matrices column after column: it does so for operands that lie so, of
    which the weight of a linear layer is the transposed one."""
    if a.dim() != 2 or b.dim() != 2:
        return False, False
    return _in_columns(a), not _in_columns(b.mT) if linear else _in_columns(b)


def _in_columns(t: Tensor) -> bool:
    return t.stride(0) == 1 and t.stride(1) == t.shape[0]


def _as_columns(t: Tensor) -> Tensor:
    return t.mT.contiguous().mT if t.dim() == 2 else t


Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]


def gradients(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> Gradients:
    """Gradients of a, b and the addend, as the forward pass was asked for, laid as PyTorch lays them."""
    found = _found(ctx, saved, grad)
    if ctx.columns == (False, False):
        return found
    a, b = (t if t is None or not turned else _as_columns(t) for t, turned in zip(found, ctx.columns, strict=False))
    return a, b, found[2]


def _found(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> Gradients:
    if ctx.traced:
        return _gradients(ctx, saved, grad, None)
    # Of a sharded gradient the processes would count parts, each at a time of its own.
    lost = gradient_underflow.probe(ctx.plan, grad) if type(grad) is Tensor else None
    if ctx.acceleration is None and acceleration.asked() is None:
        if lost is None and fast_path.takes_gradients(ctx, saved, grad):
            return _plain_gradients(ctx, saved, grad)
        return _gradients(ctx, saved, grad, lost)
    with acceleration.restored(ctx.acceleration):
        return _gradients(ctx, saved, grad, lost)


def _plain_gradients(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> Gradients:
    """``_gradients`` that ``fast_path.takes_gradients``: straight to the kernels."""
    left, right, *_ = saved
    plan, wants, linear = ctx.plan, ctx.needs_input_grad, ctx.linear
    ctx.counter = ctx.amax = grad_a = grad_b = grad_addend = None
    if wants[0]:
        other, extras = right if linear else right.mT, _extras(ctx, ctx.dtypes[0], Stream.DGRAD, ctx.row)
        grad_a = eager.matmul(grad, other, eager.spec_of(plan.dgrad.spec), extras)
    if wants[1]:
        a, b, text = (grad.mT, left, plan.wgrad.spec) if linear else (left.mT, grad, plan.wgrad.swapped)
        grad_b = eager.matmul(a, b, eager.spec_of(text), _extras(ctx, ctx.dtypes[1], Stream.WGRAD))
    if wants[2]:
        grad_addend = _addend_grad(ctx, grad, None)
    return grad_a, grad_b, grad_addend


def _gradients(ctx: Any, saved: tuple[Any, ...], grad: Tensor, lost: gradient_underflow.Lost | None) -> Gradients:
    """The gradients by way of the operators."""
    plan: AffinePlan = ctx.plan
    left, right, scale_a, scale_b, ctx.counter, ctx.amax = saved[:6]
    reduced_a = broadcast_dims(grad.shape[:-2], ctx.a_shape[:-2])
    reduced_b = broadcast_dims(grad.shape[:-2], ctx.b_shape[:-2])
    scale_g = None
    if plan.scale_grad is not None:
        dims = (*sorted({*reduced_a, *reduced_b}), -2, -1)
        scale_g = scale_exponent(grad, plan.scale_grad, plan.scale_margin, dims)
        grad = scale_by_power(grad, scale_g)
    given, grad = grad, quantize_step(plan.grad_quant, grad, ctx.seed, Stream.GRAD, ctx.counter)
    if lost is not None:
        lost.gradient(given, grad)
    grad_a = grad_b = grad_addend = None
    if ctx.needs_input_grad[0]:
        grad_a = _dgrad(ctx, grad, right, reduced_a, add_exponents(scale_g, scale_b), lost)
    if ctx.needs_input_grad[1]:
        grad_b = _wgrad(ctx, grad, left, reduced_b, add_exponents(scale_g, scale_a), lost)
    if ctx.needs_input_grad[2]:
        grad_addend = _addend_grad(ctx, grad, scale_g)
    return grad_a, grad_b, grad_addend


#: ``AffineFunction.apply`` without what it does for functorch, which costs more than a small product. Only for ordinary
#: tensors outside transforms and tracers.
apply_directly: Callable[..., tuple[Tensor | None, ...]] = super(torch.autograd.Function, AffineFunction).apply


def add_exponents(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    """Exponent of a product of scaled operands; None: not scaled."""
    if x is None or y is None:
        return x if y is None else y
    return x + y


def _scale_dims(t: Tensor, other: Tensor) -> tuple[int, ...]:
    """Dimensions of ``t`` that share one scale: its matrix, and those along which ``other`` is repeated.

    The gradient of ``other`` is summed over the latter, so that sum must not mix scales.
    """
    missing = t.dim() - other.dim()
    return (*(i for i in range(t.dim() - 2) if i < missing or other.shape[i - missing] == 1), -2, -1)


def quantize_step(step: Step, t: Tensor, seed: int | None, stream: int, counter: Tensor | None = None) -> Tensor:
    """One quantisation step: nothing, a cast (in a dtype that holds its format), or the user's function."""
    if step is None:
        return t
    if isinstance(step, str):
        return quantize_op(t, step, seed, int(Site.QUANTIZE), int(stream), True, counter)
    return step(t)


def work_dtype(product: Product, dtype: torch.dtype, more: bool) -> torch.dtype:
    """Dtype of a product's result: that of the tensor returned, or where more steps follow float32 or wider."""
    if not more:
        return dtype
    return torch.float64 if product.wide or dtype == torch.float64 else torch.float32


def _native(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """PyTorch's own product, in the dtype its operands promote to."""
    if not torch.compiler.is_compiling():
        last_run.record("matmul", "torch", "", "torch.matmul: the formats name no spec for this product")
    common = torch.promote_types(a.dtype, b.dtype)
    return torch.matmul(a.to(common), b.to(common)).to(dtype)


def _fprop(a: Tensor, b: Tensor, product: Product, linear: bool, extras: MatmulExtras) -> tuple[Tensor, Tensor, Tensor]:
    """The forward product, and both operands as it multiplied them, in the layout they came in."""
    right = b.mT if linear else b
    if product.spec is None:
        assert extras.out_dtype is not None
        return _native(a, right, extras.out_dtype), a, b
    if not (product.cast_a or product.cast_b):
        return multiply(a, right, product.spec, extras), a, b
    out, cast_a, cast_b = multiply_with_operands(a, right, product.spec, extras)
    if product.cast_b:
        b = cast_b.mT if linear else cast_b
    return out, cast_a if product.cast_a else a, b


def _extras(
    ctx: Any, dtype: torch.dtype, stream: Stream, row: int = 0, of: tuple[int, int] | None = None
) -> MatmulExtras:
    """Those of a product of the backward pass. ``of``: which of a, b and the gradient it multiplies."""
    amax = None if ctx.amax is None or of is None else torch.stack([ctx.amax[index] for index in of])
    return MatmulExtras(ctx.seed, dtype, stream=int(stream), row=row, counter=ctx.counter, site=ctx.site, amax=amax)


def check_gradient(role: str, product: Product) -> None:
    """The error of a product that is refused; ``GradError`` where it is a palette's, whose indices are for others."""
    if product.refusal:
        refuse(product.refusal)
    if product.palette:
        raise GradError(
            message(
                f"gradient by a palette ({role}): select applies to the forward product only",
                "backward products without a palette",
                "Use gemmsim.QAffineFormats(fprop=the palette's spec, dgrad=..., wgrad=...).",
            )
        )


def _finish(ctx: Any, grad: Tensor, exponent: Tensor | None, shape: Any, dtype: torch.dtype, stream: int) -> Tensor:
    """A gradient in its operand's shape, unscaled, quantised, in its operand's dtype."""
    grad = grad if grad.shape == shape else grad.reshape(shape)
    if exponent is not None:
        exponent = exponent.reshape(exponent.shape[exponent.dim() - len(shape) :])
        grad = scale_by_power(grad, -exponent)
    return quantize_step(ctx.plan.grad_quant, grad, ctx.seed, stream, ctx.counter).to(dtype)


def _dgrad(
    ctx: Any, grad: Tensor, b: Tensor, reduced: list[int], exponent: Tensor | None, lost: gradient_underflow.Lost | None
) -> Tensor:
    """``grad @ b.mT``; the batch dimensions along which a was repeated are part of the contraction."""
    product: Product = ctx.plan.dgrad
    check_gradient("dgrad", product)
    right = b if ctx.linear else b.mT
    right = contract_rows(pad_rank(right, grad.dim()), reduced) if reduced else right
    left = contract_columns(grad, reduced)
    dtype = work_dtype(product, ctx.dtypes[0], exponent is not None or ctx.plan.grad_quant is not None)
    if product.spec is None:
        out = _native(left, right, dtype)
    else:
        out = multiply(left, right, product.spec, _extras(ctx, dtype, Stream.DGRAD, ctx.row, (2, 1)))
    found = _finish(ctx, out, exponent, ctx.a_shape, ctx.dtypes[0], Stream.DGRAD_OUT)
    if lost is not None:
        lost.product(product, found, lambda: torch.matmul(left.double(), right.double()))
    return found


def _wgrad(
    ctx: Any, grad: Tensor, a: Tensor, reduced: list[int], exponent: Tensor | None, lost: gradient_underflow.Lost | None
) -> Tensor:
    """``a.mT @ grad`` (linear: ``grad.mT @ a``); the batch dimensions along which b was repeated are contracted."""
    product: Product = ctx.plan.wgrad
    check_gradient("wgrad", product)
    rows = contract_rows(grad, reduced)
    of = (2, 0) if ctx.linear else (0, 2)
    if ctx.linear:
        left, right, spec = rows.mT, contract_rows(a, reduced), product.spec
    else:
        padded = pad_rank(a.mT, grad.dim()) if reduced else a.mT
        left, right, spec = contract_columns(padded, reduced), rows, product.swapped
    dtype = work_dtype(product, ctx.dtypes[1], exponent is not None or ctx.plan.grad_quant is not None)
    if spec is None:
        out = _native(left, right, dtype)
    else:
        out = multiply(left, right, spec, _extras(ctx, dtype, Stream.WGRAD, of=of))
    found = _finish(ctx, out, exponent, ctx.b_shape, ctx.dtypes[1], Stream.WGRAD_OUT)
    if lost is not None:
        lost.product(product, found, lambda: torch.matmul(left.double(), right.double()))
    return found


def _addend_grad(ctx: Any, grad: Tensor, exponent: Tensor | None) -> Tensor:
    """Sum of ``grad`` over the dimensions along which the addend was repeated, in ascending index, last dim fastest."""
    shape, dtype = ctx.addend
    plan: AffinePlan = ctx.plan
    if exponent is not None and exponent.numel() != 1:
        grad, exponent = scale_by_power(grad, -exponent), None
    exponent = None if exponent is None else exponent.reshape((1,) * len(shape))
    if grad.shape == shape:
        return _finish(ctx, grad, exponent, shape, dtype, Stream.ADDEND_OUT)
    terms = sum_leading_view(grad, shape)
    work = work_dtype(plan.wgrad, dtype, exponent is not None or plan.grad_quant is not None)
    if plan.addend_sum is None:
        total = terms.sum(0, dtype=work)
    else:
        ones = torch.ones((1, terms.shape[0]), dtype=torch.float32, device=terms.device)
        total = multiply(ones, terms, plan.addend_sum, _extras(ctx, work, Stream.ADDEND_GRAD))
    return _finish(ctx, total, exponent, shape, dtype, Stream.ADDEND_OUT)
