"""Gradients that vanish in backward products without scaling: found now and then, and told once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from gemmsim.backends.device_tables import is_capturing

from ..dispatch import is_batch_of_gradients, unobserved
from ..seeds import Site, Stream
from . import eager
from .affine_plan import AffinePlan, Product, Step
from .format_warnings import FormatsWarning, caller, warn_of_gradients
from .operators import quantize_op

__all__ = ["Lost", "probe"]

#: Plans by their identity, which is quicker to look up, and backward passes of each so far.
_PASSES: dict[int, tuple[AffinePlan, int]] = {}
_TOLD: set[AffinePlan] = set()
_MOST_PLANS = 4096
#: Passes after which one in so many is looked at; before, those whose number is a power of two.
_PERIOD = 1024


class Lost:
    """What one backward pass loses: ``gradient`` before the products, ``product`` after each."""

    def __init__(self, plan: AffinePlan) -> None:
        self.plan = plan

    def gradient(self, before: Tensor, after: Tensor) -> None:
        """The incoming gradient, and what ``grad_quant`` made of it; then the products' own casts of it."""
        plan = self.plan
        for product in (plan.dgrad, plan.wgrad):
            self._tell(before, _rounded(after, product))

    def product(self, product: Product, out: Tensor, exact: Callable[[], Tensor]) -> None:
        """A gradient that was produced; ``exact()`` is the product of the operands in float64."""
        if not _has_scales(product) and _zeros(out) * 2 > out.numel():
            self._tell(exact().reshape(out.shape), out)

    def _tell(self, before: Tensor, after: Tensor) -> None:
        if self.plan in _TOLD:
            return
        alive = before != 0
        some, lost = (int(n) for n in torch.stack([alive.sum(), (alive & (after == 0)).sum()]).tolist())
        if lost * 2 <= some:
            return
        _TOLD.add(self.plan)
        specs = f"dgrad {self.plan.dgrad.spec!r}, wgrad {self.plan.wgrad.spec!r}, grad_quant {self.plan.grad_quant!r}"
        warnings.warn(
            f"{lost} of {some} gradients became zero in a backward pass without scaling ({specs}).\n"
            "  Use gemmsim.recipes (hopper_fp8(), mxfp8(), ...), QAffineFormats(..., use_scaling=True) with a format "
            "for the gradient, wider formats for dgrad and wgrad, or a larger loss scale. Scaled operands reach the "
            "largest value of their format: give the accumulators enough exponent bits (e6m5) for their products.",
            FormatsWarning,
            stacklevel=caller(),
        )


def probe(plan: AffinePlan, grad: Tensor) -> Lost | None:
    """What looks at this backward pass; None where it has scaling, was told of, or is not the turn.

    Looked at are the first pass of a plan, the 2nd, 4th, ... and every 1024th: a few element counts each. Compiled
    code, functions under transforms, modes and profilers, CUDA graphs being captured, and tensors without data are not
    looked at.
    """
    native = plan.dgrad.spec is None and plan.wgrad.spec is None and plan.grad_quant is None
    if native or plan.scale_grad is not None or grad.is_meta or not unobserved():
        return None
    if len(_PASSES) >= _MOST_PLANS:
        _PASSES.clear()
    count = _PASSES.get(id(plan), (plan, 0))[1] + 1
    _PASSES[id(plan)] = plan, count
    if count == 1:
        warn_of_gradients(grad.dtype, plan.fprop.spec, plan.dgrad.spec, plan.wgrad.spec)
    if count & (count - 1) and count % _PERIOD:
        return None
    if plan in _TOLD or is_batch_of_gradients(grad) or is_capturing(grad.device):
        return None
    return Lost(plan)


def _rounded(grad: Tensor, product: Product) -> Tensor:
    """``grad`` as the product casts its first operand."""
    step: Step = None
    if product.spec is not None and product.cast_a:
        cast = eager.spec_of(product.spec).cast_a
        step = None if cast is None or cast.is_stochastic else str(cast)
    return grad if step is None else quantize_op(grad, step, None, int(Site.QUANTIZE), int(Stream.GRAD), True)


def _has_scales(product: Product) -> bool:
    return product.spec is not None and eager.spec_of(product.spec).has_blocks


def _zeros(t: Tensor) -> int:
    return t.numel() - int(torch.count_nonzero(t))
