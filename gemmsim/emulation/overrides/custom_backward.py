"""Overrides of calls with gradient formulas of their own: Euclidean distances, bilinear forms, outer products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.product.affine_plan import AffinePlan
from gemmsim.ops.product.autograd import AffineFunction
from gemmsim.ops.product.roles import check_plain, product_of_role
from gemmsim.ops.single_differentiation import differentiable_once

from ..autocast import autocast_on_accelerators, full_precision, promoted
from .addmm import in_order
from .layouts import gradient_laid, in_rows
from .library_sites import settled_as_chain
from .matmul import FLOATS, apart, nth
from .table import Site, overrides, packets

__all__: list[str] = []

_VF: Any = torch._C._VariableFunctions
_MODES = {
    "use_mm_for_euclid_dist_if_necessary": 0,
    "use_mm_for_euclid_dist": 1,
    "donot_use_mm_for_euclid_dist": 2,
}


class _EuclideanDistance(torch.autograd.Function):
    """Distances between the rows of x and of y, as the square root of one product.

    The squared norms are two more terms of this product. The gradient is PyTorch's formula, which is 0 where a distance
    is 0. Its products take x and y as the forward pass multiplied them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, y: Tensor, plan: AffinePlan, seed: int | None, counter: Tensor | None, site: str | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        norm_x, norm_y = x.pow(2).sum(-1, True), y.pow(2).sum(-1, True)
        left = torch.cat([x.mul(-2), norm_x, torch.ones_like(norm_x)], -1)
        right = torch.cat([y, torch.ones_like(norm_y), norm_y], -1)
        out, cast_left, cast_right = AffineFunction.forward(
            left, right, None, plan, seed, True, x.dtype, None, 0, counter, site
        )[:3]
        left = (left if cast_left is None else cast_left)[..., :-2] * -0.5
        right = (right if cast_right is None else cast_right)[..., :-2]
        assert out is not None
        return out.clamp_min(0).sqrt(), left.contiguous(), right.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, ctx.plan, ctx.seed, counter, ctx.site = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y, *output, counter)

    @staticmethod
    @differentiable_once("cdist")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        x, y, distance, left, right, counter = saved
        ratio = (grad / distance).masked_fill(distance == 0, 0)
        how = (ctx.seed, x.dtype, counter, ctx.site)
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = x * ratio.sum(-1, True) - product_of_role(ratio, right, ctx.plan, "dgrad", *how)
        if ctx.needs_input_grad[1]:
            found = product_of_role(ratio.mT, left, ctx.plan, "wgrad", *how)
            grad_y = y * ratio.sum(-2, False).unsqueeze(-1) - found
        return grad_x, grad_y, None, None, None, None


def _distances(at: Site, x: Tensor, y: Tensor) -> Tensor:
    at = settled_as_chain(at, x.dtype)
    assert at.plan is not None
    check_plain("cdist", at.plan)
    found: Tensor = _EuclideanDistance.apply(x, apart(x, y), at.plan, at.seed, at.counter, at.name)[0]
    return found


def _cdist(at: Site, x: Any, y: Any, p: float, mode: int) -> Any:
    """``torch.cdist`` where PyTorch computes it by a product: p = 2, and more than 25 points or on request."""
    x, y = full_precision(x, y)
    if not all(isinstance(t, Tensor) and t.dtype in FLOATS and t.dim() > 1 for t in (x, y)):
        return NotImplemented
    if (
        x.dtype != y.dtype
        or x.device != y.device
        or x.shape[-1] != y.shape[-1]
        or p != 2
        or not (x.numel() and y.numel())
    ):
        return NotImplemented
    if mode != 1 and not (mode == 0 and (x.shape[-2] > 25 or y.shape[-2] > 25)):
        return NotImplemented
    try:
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except RuntimeError:
        return NotImplemented
    deep = max(x.dim(), y.dim())
    x, y = (gradient_laid(t, in_rows) if (t.dim() > 2) == (batch.numel() > 1) and deep > 2 else t for t in (x, y))
    out = _distances(at, _batched(x, batch), _batched(y, batch))
    return out.reshape(*batch, x.shape[-2], y.shape[-2])


def _batched(t: Tensor, batch: torch.Size) -> Tensor:
    """``t`` with one batch dimension, or with none for one matrix.

    Broadcast elements are repeated, and their gradients are summed.
    """
    count = batch.numel()
    if count == 1:
        return t.reshape(t.shape[-2:])
    return t.expand(*batch, *t.shape[-2:]).reshape(count, *t.shape[-2:])


@overrides("cdist", torch.cdist, names=("x1", "x2", "p", "compute_mode"))
def _cdist_named(at: Site, x1: Any, x2: Any, p: float = 2.0, compute_mode: str = next(iter(_MODES))) -> Any:
    if compute_mode not in _MODES:
        return NotImplemented
    return _cdist(at, x1, x2, p, _MODES[compute_mode])


@overrides("cdist", _VF.cdist, *packets("cdist", "default"), names=("x1", "x2", "p", "compute_mode"))
def _cdist_numbered(at: Site, x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    return _cdist(at, x1, x2, p, compute_mode or 0)


class _Trilinear(torch.autograd.Function):
    """``out[n, o] = sum over i, j of x[n, i] * weight[o, i, j] * y[n, j]``, by PyTorch's products.

    These are x by weight[o], then by y for each row. The gradients are PyTorch's, too: the products of each o, added up
    in the dtype of the operands.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, y: Tensor, plan: AffinePlan, seeds: tuple[Any, Any], counter: Any, site: Any
    ) -> tuple[Tensor, ...]:
        """The result, then x, weight and y as multiplied."""
        outs, i, j = weight.shape
        columns = weight.permute(1, 0, 2).reshape(i, outs * j)
        half, left, right = AffineFunction.forward(
            x, columns, None, plan, seeds[0], False, x.dtype, None, 0, counter, site
        )[:3]
        assert half is not None
        rows = half.reshape(len(x), outs, j)
        out, _, last = AffineFunction.forward(
            rows, y.unsqueeze(-1), None, plan, seeds[1], False, x.dtype, None, 0, counter, site
        )[:3]
        assert out is not None
        weight_cast = weight.clone() if right is None else right.reshape(i, outs, j).permute(1, 0, 2).contiguous()
        return (
            out.squeeze(-1) + 0.0,  # PyTorch adds it to zeros, which gives no -0
            x.clone() if left is None else left,
            weight_cast,
            y.clone() if last is None else last.squeeze(-1),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.plan, ctx.seeds, counter, ctx.site = inputs[3:]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output[1:], counter)

    @staticmethod
    @differentiable_once("bilinear")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        x, weight, y, counter = saved
        dtype, more = grad.dtype, (counter, ctx.site)
        grad_x = grad_w = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.zeros_like(x)
            for o in range(len(weight)):
                terms = grad[:, o, None, None] * weight[o]
                part = product_of_role(terms, y.unsqueeze(-1), ctx.plan, "dgrad", ctx.seeds[0], dtype, *more)
                grad_x = grad_x + part.squeeze(-1)
        if ctx.needs_input_grad[1]:
            terms = grad.T.unsqueeze(1) * x.T
            grad_w = product_of_role(terms, y, ctx.plan, "wgrad", ctx.seeds[0], dtype, *more) + 0.0
        if ctx.needs_input_grad[2]:
            grad_y = torch.zeros_like(y)
            for o in range(len(weight)):
                part = product_of_role(x, weight[o], ctx.plan, "dgrad", ctx.seeds[1], dtype, *more)
                grad_y = grad_y + part * grad[:, o, None]
        return grad_x, grad_w, grad_y, None, None, None, None


@overrides("bilinear", torch.bilinear, *packets("bilinear"), names=("input1", "input2", "weight", "bias"))
def _bilinear(at: Site, x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    x, y, weight, bias = promoted(x, y, weight, bias)
    tensors = (x, y, weight) if bias is None else (x, y, weight, bias)
    if not all(isinstance(t, Tensor) and t.dtype in FLOATS and t.device == x.device for t in tensors):
        return NotImplemented
    if any(t.dtype != x.dtype for t in (y, weight)) or weight.dim() != 3 or min(x.dim(), y.dim()) < 1:
        return NotImplemented
    if x.shape[:-1] != y.shape[:-1] or (x.shape[-1], y.shape[-1]) != tuple(weight.shape[1:]):
        return NotImplemented
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        return NotImplemented
    if not weight.numel():
        return NotImplemented
    at = settled_as_chain(at, x.dtype)
    assert at.plan is not None
    check_plain("bilinear", at.plan)
    seeds = (at.seed, nth(at, 1).seed)
    rows = x.shape[:-1].numel()
    x, y = gradient_laid(x, in_rows), gradient_laid(y, in_rows)
    left, right = x.reshape(rows, x.shape[-1]), y.reshape(rows, y.shape[-1])
    out = _Trilinear.apply(left, weight, apart(left, right), at.plan, seeds, at.counter, at.name)[0]
    out = out.reshape(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


class _Outer(torch.autograd.Function):
    """``torch.addr``, which PyTorch computes. Its gradients are products of a matrix with a vector."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        c: Tensor, x: Tensor, y: Tensor, beta: float, alpha: float, plan: AffinePlan, seed: int | None, counter: Any,
        site: Any,
    ) -> Tensor:  # fmt: skip
        return torch.addr(c, x, y, beta=beta, alpha=alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, x, y, ctx.beta, ctx.alpha, ctx.plan, ctx.seed, counter, ctx.site = inputs
        ctx.save_for_backward(x, y, counter)

    @staticmethod
    @differentiable_once("addr")
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, counter = saved
        how = (ctx.seed, grad.dtype, counter, ctx.site)
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = grad if ctx.beta == 1 else grad * ctx.beta
        for i, (rows, other, role) in enumerate(((grad, y, "dgrad"), (grad.mT, x, "wgrad")), 1):
            if ctx.needs_input_grad[i]:
                product = product_of_role(rows, other.unsqueeze(-1), ctx.plan, role, *how).squeeze(-1)
                found[i] = product if ctx.alpha == 1 else product * ctx.alpha
        return (*found, *((None,) * 6))


_ADDR = ("input|self", "vec1", "vec2")


@overrides("mv", torch.addr, Tensor.addr, *packets("addr", "default"), names=_ADDR)
def _addr(at: Site, *given: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    tensors, beta, alpha = in_order(given, beta, alpha)
    if len(tensors) != 3:
        return NotImplemented
    c, x, y = autocast_on_accelerators(*tensors)
    if any(t.dtype not in FLOATS or t.dtype != x.dtype or t.device != x.device for t in (c, x, y)):
        return NotImplemented
    if x.dim() != 1 or y.dim() != 1 or c.dim() > 2 or any(n not in (1, m) for n, m in zip(
        reversed(c.shape), (len(y), len(x)), strict=False
    )):  # fmt: skip
        return NotImplemented
    at = settled_as_chain(at, x.dtype)
    assert at.plan is not None
    check_plain("addr", at.plan)
    how = (beta, alpha, at.plan, at.seed, at.counter, at.name)
    return _Outer.apply(c.expand(len(x), len(y)), x, apart(x, y), *how)


@overrides("mv", Tensor.addr_, *packets("addr_", "default"), names=_ADDR, inplace=True)
def _addr_(at: Site, *given: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    tensors, _, _ = in_order(given, beta, alpha)
    if len(tensors) != 3 or tuple(tensors[0].shape) != (len(tensors[1]), len(tensors[2])):
        return NotImplemented
    return _addr(at, *given, beta=beta, alpha=alpha)
