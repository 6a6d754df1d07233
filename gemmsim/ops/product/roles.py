"""Products of a backward pass that a formula of its own makes: in the spec of a role, with that role's random bits."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic import UnsupportedSpec

from ..errors import message
from ..seeds import Stream
from .affine_plan import AffinePlan
from .autograd import check_gradient
from .matmul_extras import MatmulExtras
from .operators import multiply

__all__ = ["check_plain", "product_of_role"]


def check_plain(owner: str, plan: AffinePlan) -> None:
    """``UnsupportedSpec`` for plans that do more than multiply: their quantisers and scales know one product only."""
    if not plan.is_plain or plan.grad_quant is not None or plan.scale_grad is not None:
        allowed = "a spec for each role, without quantisers around the products and without scaling"
        raise UnsupportedSpec(message(f"{owner} with these formats", allowed, "Give a spec, or None for this call."))


def product_of_role(
    grad: Tensor,
    other: Tensor,
    plan: AffinePlan,
    role: str,
    seed: int | None,
    dtype: torch.dtype,
    counter: Tensor | None = None,
    site: str | None = None,
) -> Tensor:
    """``grad @ other`` in the spec of ``role``, "dgrad" or "wgrad", whose first operand is the gradient.

    Operands of rank two or more, as multiplied; PyTorch's own product where the role has no spec.

    Raises:
        GradError: for a palette's.
    """
    product, stream = (plan.dgrad, Stream.DGRAD) if role == "dgrad" else (plan.wgrad, Stream.WGRAD)
    check_gradient(role, product)
    if product.spec is None:
        return torch.matmul(grad, other.to(grad.dtype)).to(dtype)
    extras = MatmulExtras(seed, dtype, stream=int(stream), counter=counter, site=site)
    return multiply(grad, other, product.spec, extras)
