"""The fast path of products: straight to the kernels, without PyTorch's dispatcher and without the steps of a plan.

Small products take as long around the kernel as in it. A product takes the fast path where its tensors are ordinary
ones, nothing observes the call (``dispatch.unobserved``), and a forward or backward pass is that product and nothing
else. Other products take the general path, with the same bits. ``backends.route`` chooses who computes either.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import route

from .. import last_run
from ..checks import FLOAT_DTYPES
from ..dispatch import needs_autograd, unobserved
from ..seeds import check_row, check_seed
from . import eager, operand_overflow
from .affine_plan import AffinePlan
from .matmul_extras import MatmulExtras

__all__ = [
    "FUNCTION",
    "KERNEL",
    "NODE",
    "OPERATOR",
    "STEPS",
    "STEPS_BELOW_NODE",
    "product",
    "takes_gradients",
    "way_of",
]

#: How ``a @ b + addend`` is computed as an ``AffinePlan`` says. Names, because members of an enum cost more to look up.
Way: TypeAlias = Literal["kernel", "node", "operator", "steps", "steps below node", "function"]
#: The kernels alone: the plan is one product, no gradient is needed, and nothing observes the call.
KERNEL: Final = "kernel"
#: The same below one node of autograd, which saves the operands as they are.
NODE: Final = "node"
#: The operator alone, which others observe.
OPERATOR: Final = "operator"
#: The steps of ``AffineFunction``: alone, below its node, or called by PyTorch for transforms and tracers.
STEPS: Final = "steps"
STEPS_BELOW_NODE: Final = "steps below node"
FUNCTION: Final = "function"


def product(
    a: Tensor, b: Tensor, spec: object, seed: int | None, out_dtype: torch.dtype | None, row: int
) -> Tensor | None:
    """``qmatmul`` of matrices, or of batches of them, without a gradient; None where it must go another way.

    Raises:
        SpecError, DTypeError, ShapeError, SeedError: as ``qmatmul``.
    """
    if torch.is_grad_enabled() and (getattr(a, "requires_grad", True) or getattr(b, "requires_grad", True)):
        return None
    if a is None or b is None or not unobserved(a, b) or a.dim() < 2 or b.dim() < 2:
        return None
    if a.dtype not in FLOAT_DTYPES or b.dtype not in FLOAT_DTYPES:
        return None
    meaning = eager.plain_spec_of(spec) if type(spec) is str else spec
    if type(meaning) is not GemmSpec:
        return None
    if seed is not None or type(row) is not int or row:
        row, seed = check_row("qmatmul", row), check_seed("qmatmul", seed)
    *batch, m, k = a.shape
    *batch_b, terms, n = b.shape
    shape = (*batch, m, n)
    simple = out_dtype is None and a.dtype is b.dtype and not (meaning.is_stochastic or meaning.has_blocks)
    if not simple or batch != batch_b or terms != k or 0 in shape:
        return eager.matmul(a, b, meaning, MatmulExtras(seed, out_dtype, row=row))
    out = torch.empty(shape, dtype=a.dtype, device=a.device)
    ran = route.gemm(a, b, meaning, out, 0)
    if (meaning.a or meaning.b) and operand_overflow.may_overflow(meaning):
        operand_overflow.look(a, b, meaning, out)
    last_run.record("matmul", ran.backend, meaning.key, ran)
    return out


def way_of(
    plan: AffinePlan,
    a: Tensor,
    b: Tensor,
    addend: Tensor | None,
    select: Tensor | None = None,
    counter: Tensor | None = None,
    amax: Tensor | None = None,
) -> Way:
    """The way of ``a @ b + addend``; the other tensors are those of ``MatmulExtras``."""
    direct, grad = unobserved(a, b, addend, select, amax), needs_autograd(a, b, addend)
    if direct and grad:
        alone = select is None and counter is None and amax is None
        return NODE if plan.is_bare and alone else STEPS_BELOW_NODE
    if plan.is_plain and not grad:
        return KERNEL if direct else OPERATOR
    return STEPS if direct else FUNCTION


def takes_gradients(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> bool:
    """Whether each gradient of ``autograd.AffineFunction`` is one product of the tensors that it saved."""
    left, right, _, _, counter, amax = saved[:6]
    batch = grad.shape[:-2]
    if not ctx.plan.has_plain_gradients or counter is not None or amax is not None:
        return False
    return batch == ctx.a_shape[:-2] and batch == ctx.b_shape[:-2] and unobserved(grad, left, right)
