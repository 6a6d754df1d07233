"""Layer, root-mean-square and group normalisation with every step rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec

from ..checks import check_device, check_float, check_ints, check_numbers
from ..errors import ShapeError, message
from ..fx import traceable
from ..seeds import Bits, Stream
from ..single_differentiation import differentiable_once
from .formats import QLayerNormFormats, RowFormatsLike, RowPlan, row_formats
from .operators import row_map_op, row_norm_grad_op, row_norm_op, row_sum_op
from .steps import applied, cast_text, finish, quantized

__all__ = ["groupnorm", "layernorm", "qgroupnorm", "qlayernorm", "qrmsnorm", "rmsnorm"]

_Affines: TypeAlias = tuple[Tensor | None, Tensor | None]


class _Norm(torch.autograd.Function):
    """Normalisation of the last dimension as ``QLayerNormFormats`` says; differentiating twice raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centered: bool, plan: RowPlan,
        seed: int | None, counter: Tensor | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        bits = Bits(seed, counter)
        xi = quantized(x, plan.input, bits, Stream.INPUT)
        qw = None if weight is None else quantized(weight, plan.weight, bits, Stream.WEIGHT)
        qb = None if bias is None else quantized(bias, plan.bias, bits, Stream.ADDEND)
        # Without a weight it is one: its product is still rounded.
        ones = torch.ones(x.shape[-1:], dtype=x.dtype, device=x.device) if qw is None else qw
        last = (seed, int(Stream.FPROP), counter)
        y, mean, rstd = row_norm_op(xi, ones, qb, plan.fwd, eps, plan.order, centered, *last)
        same = (xi is x, qw is weight)  # an input is no output
        return finish(y, plan.output), None if same[0] else xi, mean, rstd, None if same[1] else qw

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, bias, _, ctx.centered, ctx.plan, ctx.seed, counter = inputs
        _, xi, mean, rstd, qw = output
        ctx.weight = None if weight is None else weight.dtype
        ctx.bias = None if bias is None else bias.dtype
        ctx.mark_non_differentiable(*(t for t in output[1:] if t is not None))
        ctx.save_for_backward(x if xi is None else xi, mean, rstd, weight if qw is None else qw, counter)

    @staticmethod
    @differentiable_once("qlayernorm, qrmsnorm, qgroupnorm")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor, *unused: Any) -> Any:
        xi, mean, rstd, qw, counter = saved
        plan: RowPlan = ctx.plan
        bits = Bits(ctx.seed, counter)
        arguments = (plan.bwd, plan.order, ctx.centered, ctx.seed, int(Stream.DGRAD), counter)
        dx, terms = row_norm_grad_op(xi, qw, mean, rstd, g, *arguments)
        dx = quantized(dx, plan.grad, bits, Stream.DGRAD_OUT)
        dw = db = None
        if ctx.weight is not None and ctx.needs_input_grad[1]:
            sums = _column_sums(terms, plan, bits, Stream.WGRAD)
            dw = quantized(sums, plan.grad, bits, Stream.WGRAD_OUT).to(ctx.weight)
        if ctx.bias is not None and ctx.needs_input_grad[2]:
            sums = _column_sums(g.to(terms.dtype), plan, bits, Stream.ADDEND_GRAD)
            db = quantized(sums, plan.grad, bits, Stream.ADDEND_OUT).to(ctx.bias)
        return dx, dw, db, None, None, None, None, None


def _column_sums(x: Tensor, plan: RowPlan, bits: Bits, stream: int) -> Tensor:
    """Sums over all but the last dimension, rows in order."""
    columns = x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.new_empty(0, 0)
    result: Tensor = row_sum_op(columns.mT, plan.bwd_acc, plan.order, bits.seed, int(stream), bits.counter)
    return result


def _check(owner: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
    check_float(owner, "x", x)
    check_numbers(owner, eps=eps)
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None:
            check_float(owner, name, t)
    check_device(owner, x, weight, bias, "x weight bias")


def _normal_shape(owner: str, x: Tensor, shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for size in sizes:
        check_ints(owner, normalized_shape=size)
    if not sizes or tuple(x.shape[-len(sizes) :]) != sizes or len(sizes) > x.dim():
        asked = f"{owner}: normalized_shape={list(sizes)} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "the sizes of its last dimensions", "Correct normalized_shape."))
    return sizes


def _check_affine(owner: str, sizes: tuple[int, ...], **tensors: Tensor | None) -> None:
    for name, t in tensors.items():
        if t is not None and tuple(t.shape) != sizes:
            asked = f"{owner}: {name} has shape {tuple(t.shape)}"
            raise ShapeError(message(asked, f"shape {sizes}", f"Reshape {name}, or give None."))


def _normalize(
    x: Tensor, sizes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float, centered: bool,
    plan: RowPlan, bits: Bits | None,
) -> Tensor:  # fmt: skip
    rows = x.reshape(*x.shape[: x.dim() - len(sizes)], -1) if x.numel() else x.flatten(x.dim() - len(sizes))
    flat = [None if t is None else t.reshape(-1) for t in (weight, bias)]
    result: Tensor = applied(_Norm, rows, *flat, float(eps), centered, plan, *(bits or Bits(plan.seed)))[0]
    return result.reshape(x.shape)


@traceable
@takes_spec("formats")
def qlayernorm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, spec: RowFormatsLike | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.layer_norm`` with each step rounded to the formats of ``spec``.

    Args:
        x: float32, float64, float16 or bfloat16, any strides.
        normalized_shape: the last dimensions, normalised together in row-major order (C elements).
        weight, bias: of that shape; None for ones and zeros.
        spec: ``QLayerNormFormats``; None is PyTorch's own layer norm; a cast or its name is every format ``fwd_*`` and
            ``bwd_*`` (y itself is rounded by ``output_quant``). (``formats``, its former keyword, is deprecated.)

    Forward, for each row: ``m = div(sum of x / C)``; ``v = div(sum of mul(s s) / C)`` with ``s = acc(x - m)``; ``std =
    sqrt(acc(v + eps))``; ``y = mul(w div(s / std)) + b``. The last sum is rounded to the output cast, or without one to
    x's dtype (float32 for narrower ones). Sums are rounded to fwd_acc after every addition, in ``spec.order``.
    Backward, with ``r = div(1 / std)``: ``xh = mul(acc(x - m) r)``, ``n = mul(w g)``, S1 = div(sum of n / C), S2 =
    div(sum of mul(xh n) / C); ``dx = mul(acc(acc(n - S1) - mul(xh S2)) r)``, ``dw = sum of mul(xh g)`` and ``db = sum
    of g`` over the rows in order; then grad_quant. A direction without formats rounds its steps to float32 (float64 for
    float64). NaN and infinities follow IEEE 754 through the steps. Differentiating twice raises GradError.

    Raises:
        DTypeError, DeviceError, ShapeError: for tensors that do not fit.

    Example:
        >>> x = torch.tensor([[1.0, 2.0, 6.0]])
        >>> gs.qlayernorm(x, 3, spec="e4m3"), torch.nn.functional.layer_norm(x, (3,))
        (tensor([[-1.0000, -0.5000,  1.5000]]), tensor([[-0.9258, -0.4629,  1.3887]]))
    """
    return layernorm(x, normalized_shape, (weight, bias), eps, spec)


def layernorm(
    x: Tensor, shape: int | Sequence[int], affine: _Affines, eps: float, formats: RowFormatsLike | None,
    bits: Bits | None = None,
) -> Tensor:  # fmt: skip
    """``qlayernorm``, its errors too (``DTypeError``, ...); ``bits`` in place of those of the formats."""
    weight, bias = affine
    _check("qlayernorm", x, weight, bias, eps)
    sizes = _normal_shape("qlayernorm", x, shape)
    _check_affine("qlayernorm", sizes, weight=weight, bias=bias)
    formats = row_formats(QLayerNormFormats, formats)
    if formats.plan.is_native:
        return torch.nn.functional.layer_norm(x, sizes, weight, bias, eps)
    return _normalize(x, sizes, weight, bias, eps, True, formats.plan, bits)


@traceable
@takes_spec("formats")
def qrmsnorm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None,
    spec: RowFormatsLike | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.rms_norm`` in the formats of ``spec``: ``qlayernorm`` without mean, S1 and bias.

    ``eps`` None is the dtype's ``torch.finfo(...).eps``, as in PyTorch.

    Raises:
        DTypeError, DeviceError, ShapeError: for tensors that do not fit.

    Example:
        >>> gs.qrmsnorm(torch.tensor([[1.0, 2.0, 6.0]]), 3, spec="e4m3")
        tensor([[0.2812, 0.5625, 1.7500]])
    """
    return rmsnorm(x, normalized_shape, weight, eps, spec)


def rmsnorm(
    x: Tensor, shape: int | Sequence[int], weight: Tensor | None, eps: float | None, formats: RowFormatsLike | None,
    bits: Bits | None = None,
) -> Tensor:  # fmt: skip
    """``qrmsnorm``, its errors too (``DTypeError``, ...); ``bits`` in place of those of the formats."""
    _check("qrmsnorm", x, weight, None, 0.0 if eps is None else eps)
    sizes = _normal_shape("qrmsnorm", x, shape)
    _check_affine("qrmsnorm", sizes, weight=weight)
    formats = row_formats(QLayerNormFormats, formats)
    if formats.plan.is_native:
        return torch.nn.functional.rms_norm(x, sizes, weight, eps)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _normalize(x, sizes, weight, None, eps, False, formats.plan, bits)


class _Affine(torch.autograd.Function):
    """mul(w x) + b for each channel (dimension 1), with gradients; differentiating twice raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, plan: RowPlan, seed: int | None, counter: Tensor | None
    ) -> Tensor:
        bits, shape, y = Bits(seed, counter), [1, -1] + [1] * (x.dim() - 2), x
        if weight is not None:
            qw = quantized(weight, plan.weight, bits, Stream.WEIGHT)
            y = row_map_op(y, qw.reshape(shape), "mul", plan.mul, seed, int(Stream.WGRAD), counter)
        if bias is None:
            return quantized(y, plan.output, bits, Stream.OUTPUT)
        qb = quantized(bias, plan.bias, bits, Stream.ADDEND)
        y = row_map_op(y, qb.reshape(shape), "add", cast_text(plan.output), seed, int(Stream.OUTPUT), counter)
        return finish(y, plan.output)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, bias, ctx.plan, ctx.seed, counter = inputs
        ctx.bias = None if bias is None else bias.dtype
        ctx.save_for_backward(x, weight, counter)

    @staticmethod
    @differentiable_once("qgroupnorm")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        x, weight, counter = saved
        plan: RowPlan = ctx.plan
        bits = Bits(ctx.seed, counter)
        dx, dw, db = g, None, None
        if weight is not None:
            qw = quantized(weight, plan.weight, bits, Stream.WEIGHT).reshape([1, -1] + [1] * (x.dim() - 2))
            dx = row_map_op(g, qw, "mul", plan.bwd_mul, bits.seed, int(Stream.DGRAD), counter)
            terms = row_map_op(x, g, "mul", plan.bwd_mul, bits.seed, int(Stream.WGRAD), counter).movedim(1, -1)
            sums = _column_sums(terms, plan, bits, Stream.WGRAD)
            dw = quantized(sums, plan.grad, bits, Stream.WGRAD_OUT).to(weight.dtype)
        if ctx.bias is not None:
            sums = _column_sums(g.movedim(1, -1), plan, bits, Stream.ADDEND_GRAD)
            db = quantized(sums, plan.grad, bits, Stream.ADDEND_OUT).to(ctx.bias)
        return dx, dw, db, None, None, None


@traceable
@takes_spec("formats")
def qgroupnorm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    spec: RowFormatsLike | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.group_norm``: ``qlayernorm`` of each group, then ``mul(w y) + b`` by channel.

    ``x``: (N, C, ...); ``weight`` and ``bias``: (C,). Input and gradient quantisers act on the normalisation of the
    group, the output cast on the result. Gradients of weight and bias are sums over (N, ...) in order, in bwd_acc.

    Raises:
        ShapeError: unless C is a multiple of ``num_groups``; for one value per group with N = 1, and for groups without
            values, unless ``spec`` is PyTorch's own; otherwise as ``qlayernorm``.

    Example:
        >>> gs.qgroupnorm(torch.tensor([[1.0, 2.0, 6.0, 7.0]]), 2, spec="e4m3")
        tensor([[-1.,  1., -1.,  1.]])
    """
    return groupnorm(x, num_groups, (weight, bias), eps, spec)


def groupnorm(
    x: Tensor, num_groups: int, affine: _Affines, eps: float, formats: RowFormatsLike | None, bits: Bits | None = None
) -> Tensor:
    """``qgroupnorm``, its errors too (``ShapeError``, ...); ``bits`` in place of those of the formats."""
    weight, bias = affine
    _check("qgroupnorm", x, weight, bias, eps)
    check_ints("qgroupnorm", num_groups=num_groups)
    if x.dim() < 2 or num_groups < 1 or x.shape[1] % num_groups:
        asked = f"qgroupnorm: num_groups={num_groups} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "(N, C, ...) with C a multiple of num_groups", "Change num_groups."))
    if x.numel() == num_groups:
        asked = f"qgroupnorm: num_groups={num_groups} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "groups of more than one value in all", "Take fewer groups, or more values."))
    _check_affine("qgroupnorm", (x.shape[1],), weight=weight, bias=bias)
    formats = row_formats(QLayerNormFormats, formats)
    if formats.plan.is_native:
        return torch.nn.functional.group_norm(x, num_groups, weight, bias, eps)
    if not x.shape[2:].numel():  # PyTorch computes these up to 2.14 and refuses them from 2.15 on
        asked = f"qgroupnorm: num_groups={num_groups} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "groups of one value or more", "Leave out what has no elements."))
    bare = weight is None and bias is None
    plan = formats.plan if bare else formats.inner_plan  # the output quantiser comes after the affine part
    groups = x.unflatten(1, (num_groups, x.shape[1] // num_groups)).flatten(2)
    y = _normalize(groups, (groups.shape[-1],), None, None, eps, True, plan, bits).reshape(x.shape)
    if bare:
        return y
    result: Tensor = applied(_Affine, y, weight, bias, formats.plan, *(bits or Bits(plan.seed)))
    return result.to(x.dtype)
