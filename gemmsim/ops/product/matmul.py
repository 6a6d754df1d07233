"""Matrix products in any format with any accumulator."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec, SpecError, SpecLike, UnsupportedSpec
from gemmsim.arithmetic.errors import SelectError
from gemmsim.formats.lru import remembered

from ..checks import check_device, check_float, check_integers, check_out_dtype, check_same_inner
from ..dispatch import unobserved
from ..errors import ShapeError, message
from ..fx import traceable
from ..lazy_dynamo import assume_constant_result
from ..seeds import check_row, check_seed
from . import eager, fast_path
from .affine_formats import QAffineFormats
from .affine_plan import AffinePlan
from .autograd import AffineFunction, apply_directly, check_gradient
from .fast_autograd import apply_plainly
from .int8_fp8_operands import as_numbers, is_narrow
from .matmul_extras import MatmulExtras
from .operators import matmul_op
from .shapes import matmul_shape
from .sharding import prepare

__all__ = ["FormatsLike", "affine", "check_operands", "check_row_steps", "formats_of", "qmatmul", "qmm"]

#: What says how a product is computed: formats for every role, or one spec for all of them.
FormatsLike: TypeAlias = QAffineFormats | SpecLike


@traceable
@takes_spec()
def qmatmul(
    a: Tensor,
    b: Tensor,
    spec: FormatsLike | None = None,
    *,
    seed: int | None = None,
    arithmetic: str | None = None,
    c: Tensor | None = None,
    select: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    row: int = 0,
) -> Tensor:
    """``torch.matmul(a, b)`` in the arithmetic of ``spec``, with gradients.

    Shapes are those of ``torch.matmul``: vectors, matrices, and batches of matrices with batch dimensions that
    broadcast. K = 0 gives +0 (then the spec's output cast).

    Args:
        a, b: float32, float64, float16 or bfloat16, any strides; both on one device. torch's float8 dtypes, int8 and
            uint8 are also accepted where the operand's format is theirs (float8 without a format too; int8 and uint8
            without a format for an ``int`` accumulator). The numbers are taken as they are, and the result's dtype is
            that for float32 operands.
        spec: "e4m3 * e5m2 : e5m10 -> bf16" (see ``GemmSpec``), an accumulator, or a cast or format (of a sequential
            accumulator). ``QAffineFormats`` or the name of a recipe ("hopper_fp8") means separate forward and backward
            products, quantisers and scaling; a is then the input and b the weight. None is a native PyTorch product.
        seed: seed of the random bits of stochastic roundings, 0 to 2**64 - 1. None takes one from torch's default CPU
            generator, only if the spec needs it. A seed that the spec itself fixes has precedence.
        arithmetic: "exact" or "fp32"; replaces the spec's.
        c: addend that broadcasts to the result; needs an accumulator whose ``init`` says where it enters.
        select: integers that broadcast to the result, for a palette: the member that computes each element.
        out_dtype: dtype of the result; default ``torch.promote_types(a.dtype, b.dtype)``. If it does not hold what the
            spec computes, that is rounded to it once more (nearest even).
        row: index of the result's first row in a larger product, 0 to 2**32 - 1. Stochastic roundings of the
            accumulator, of a and of the result then use the random bits of that product, so that ``qmatmul(a[i:], b,
            spec, seed=s, row=i)`` is ``qmatmul(a, b, spec, seed=s)[i:]``. Rows of a batch count in order, M for each
            matrix. The random bits of b start at its own first element. Deterministic specs do not depend on it.

    Gradients (straight-through: each rounding counts as identity) of a plain spec are ``grad_a = gemm(grad, qb.mT)``
    and ``grad_b = gemm(qa.mT, grad)``. qa and qb are the operands as multiplied in the forward pass (cast by the spec's
    operand formats), and the gradient is not cast. Both products use the spec's accumulator, output cast and
    arithmetic. For another rule give ``QAffineFormats``. Where an operand was broadcast, the broadcast dimensions are
    part of the contraction: one sum over (batch, row), rows fastest, in the accumulator's order. ``row`` is that of
    grad_a, too. Differentiating twice raises. The backward products of a palette have no ``select``: give their specs.

    NaN operands, 0 * inf and inf - inf give NaN. A sum of exactly zero is -0 only if both addends are -0. Overflow
    follows the accumulator's policy. Under ``torch.autocast`` operands keep their dtype.

    Raises:
        SpecError, FormatError: for a spec that means nothing; SpecError for ``c`` or ``select`` without a place in it.
        SelectError: for a palette without ``select``, or an index that is out of range.
        GradError: for a gradient whose product is a palette's.
        UnsupportedSpec: for a spec that no backend here computes; with ``row`` for an operand a or quantisers whose
            random bits start at their own first element (stochastic block floating point, ``QAffineFormats`` with
            stochastic quantisers).
        DTypeError, DeviceError, ShapeError, SeedError: for arguments that do not fit; the message names them.

    Example:
        >>> a, b = torch.ones(1, 600), torch.ones(600, 1)
        >>> gs.qmatmul(a, b, "e4m3 : bf16")  # stagnates where the spacing is 2
        tensor([[256.]])
        >>> gs.qmatmul(a, b, "e4m3 : chunked(64, bf16)")
        tensor([[600.]])
    """
    if c is None and arithmetic is None and select is None:
        out = fast_path.product(a, b, spec, seed, out_dtype, row)
        if out is not None:
            return out
    if is_narrow(a, b):
        a, b, out_dtype = as_numbers("qmatmul", a, b, formats_of(spec, arithmetic), out_dtype)
    return _qmatmul(a, b, spec, seed, arithmetic, c, select, out_dtype, row)


@traceable
@takes_spec()
def qmm(
    a: Tensor,
    b: Tensor,
    spec: FormatsLike | None = None,
    *,
    seed: int | None = None,
    arithmetic: str | None = None,
    c: Tensor | None = None,
    select: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    row: int = 0,
) -> Tensor:
    """``qmatmul`` of two matrices (M, K) and (K, N), as ``torch.mm``: no vectors, no batches.

    Raises:
        ShapeError: for operands that are not matrices; otherwise as ``qmatmul``.

    Example:
        >>> gs.qmm(torch.ones(1, 8), torch.ones(8, 1), "int8 : int(4)")  # 8 does not fit four bits, and wraps
        tensor([[-8.]])
    """
    if is_narrow(a, b):
        a, b, out_dtype = as_numbers("qmm", a, b, formats_of(spec, arithmetic), out_dtype)
    check_float("qmm", "a", a)
    check_float("qmm", "b", b)
    if a.dim() != 2 or b.dim() != 2:
        raise ShapeError(
            message(
                f"qmm: shapes {tuple(a.shape)} and {tuple(b.shape)}",
                "two matrices, (M, K) and (K, N)",
                "Use gemmsim.qmatmul for vectors and batches.",
            )
        )
    check_same_inner("qmm", a, b)
    return qmatmul(a, b, spec, seed=seed, arithmetic=arithmetic, c=c, select=select, out_dtype=out_dtype, row=row)


def formats_of(spec: FormatsLike | None, arithmetic: str | None) -> QAffineFormats:
    """The formats that ``spec`` and ``arithmetic`` mean; remembered for strings and other hashable specs."""
    if isinstance(spec, str):  # first: of a name that is a constant of compiled code the tracer knows no type
        return _formats_of(spec, arithmetic)
    if type(spec) is QAffineFormats and arithmetic is None:
        return spec
    if isinstance(spec, GemmSpec):
        spec = spec.key
    if isinstance(spec, QAffineFormats):
        return spec if arithmetic is None else spec.with_arithmetic(arithmetic)
    return _formats_of(spec, arithmetic)


@assume_constant_result
def _formats_of(spec: SpecLike | None, arithmetic: str | None) -> QAffineFormats:
    """A constant of compiled code: the tracer does not look inside."""
    return _read_formats(spec, arithmetic)


@remembered
def _read_formats(spec: SpecLike | None, arithmetic: str | None) -> QAffineFormats:
    formats = QAffineFormats.of(spec)
    return formats if arithmetic is None else formats.with_arithmetic(arithmetic)


def affine(
    a: Tensor,
    b: Tensor,
    addend: Tensor | None,
    plan: AffinePlan,
    seed: int | None,
    linear: bool,
    dtype: torch.dtype,
    select: Tensor | None = None,
    row: int = 0,
    counter: Tensor | None = None,
    site: str | None = None,
    amax: Tensor | None = None,
    history: Tensor | None = None,
) -> Tensor:
    """``a @ b + addend`` as ``plan`` says, for operands of rank two or more; ``linear``: b is (N, K), and the rows of a
    are flattened.

    ``counter`` and ``site``: as the operators have them. ``amax``: of which delayed scales of a, b and the gradient are
    made, float32 (3,). ``history``: learns what the gradient has.
    """
    seed = plan.seed if seed is None else seed
    way = fast_path.way_of(plan, a, b, addend, select, counter, amax)
    if way == fast_path.NODE:
        return apply_plainly(a, b, addend, plan, seed, linear, dtype, row, site)
    if linear and a.dim() > 2:
        rows = a.reshape(a.shape[:-1].numel(), a.shape[-1])
        out = affine(rows, b, addend, plan, seed, True, dtype, select, row, counter, site, amax, history)
        return out.reshape(*a.shape[:-1], out.shape[-1])
    result: Tensor
    if way in (fast_path.KERNEL, fast_path.OPERATOR):
        right, spec = b.mT if linear else b, str(plan.fprop.spec)
        extras = MatmulExtras(seed, dtype, select=select, bias=addend, row=row, counter=counter, site=site)
        extras = extras._replace(amax=None if amax is None else amax[:2])
        if way == fast_path.KERNEL:
            return eager.matmul(a, right, eager.spec_of(spec), extras)
        result = matmul_op(a, right, spec, *extras)
        return result
    arguments = (a, b, addend, plan, seed, linear, dtype, select, row, counter, site, amax, history)
    if way == fast_path.FUNCTION:
        result = AffineFunction.apply(*arguments)[0]
    elif way == fast_path.STEPS_BELOW_NODE:
        result = apply_directly(*arguments)[0]  # type: ignore[assignment]
    else:
        result = AffineFunction.forward(*arguments)[0]  # type: ignore[assignment]
    return result


def _qmatmul(
    a: Tensor,
    b: Tensor,
    spec: FormatsLike | None,
    seed: int | None,
    arithmetic: str | None,
    c: Tensor | None,
    select: Tensor | None,
    out_dtype: torch.dtype | None,
    row: int,
) -> Tensor:
    """``qmatmul`` of any tensors: all checks, vectors as matrices, then the autograd function or the operator."""
    if not unobserved(a, b):
        prepare()
    formats = formats_of(spec, arithmetic)
    seed, row = check_seed("qmatmul", seed), check_row("qmatmul", row)
    dtype = check_operands("qmatmul", a, b, c, out_dtype)
    plan = formats.plan
    check_row_steps("qmatmul", row, plan)
    if c is not None:
        plan = _with_addend("qmatmul", formats)
    if select is not None or plan.fprop.palette:
        _check_select("qmatmul", select, a, b, plan)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    shape = matmul_shape("qmatmul", left, right)
    if c is not None:
        c = _as_matrices("qmatmul", "c", c, a.dim() == 1, b.dim() == 1, shape)
    if select is not None:
        select = _as_matrices("qmatmul", "select", select, a.dim() == 1, b.dim() == 1, shape)
    if plan.is_native and c is None:
        common = torch.promote_types(a.dtype, b.dtype)
        return torch.matmul(a.to(common), b.to(common)).to(dtype)
    out = affine(left, right, c, plan, seed, False, dtype, select, row)
    if b.dim() == 1:
        out = out.squeeze(-1)
    return out.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else out


def check_operands(owner: str, a: Tensor, b: Tensor, c: Tensor | None, out_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of the result, after checks of dtypes, devices and ranks.

    Raises:
        DTypeError, DeviceError, ShapeError: for operands that do not fit.
    """
    check_float(owner, "a", a)
    check_float(owner, "b", b)
    if c is not None:
        check_float(owner, "c", c)
    check_device(owner, a, b, c)
    if a.dim() == 0 or b.dim() == 0:
        raise ShapeError(
            message(
                f"{owner}: shapes {tuple(a.shape)} and {tuple(b.shape)}",
                "operands of one or more dimensions",
                "Multiply by a scalar with *.",
            )
        )
    check_same_inner(owner, a, b)
    if out_dtype is not None:
        check_out_dtype(owner, out_dtype)
        return out_dtype
    return torch.promote_types(a.dtype, b.dtype)


def check_row_steps(owner: str, row: int, plan: AffinePlan) -> None:
    """``UnsupportedSpec`` for rows of a larger product with quantisers that count from their own first element."""
    if plan.draws_in_steps and not (isinstance(row, int) and row == 0):
        asked = f"{owner}: row={row} with quantisers around the product that use random bits"
        do = "Write the casts in the spec of the product ('e4m3/sr8 : bf16/sr8'), whose bits row moves."
        raise UnsupportedSpec(message(asked, "row=0, or deterministic quantisers", do))


def _with_addend(owner: str, formats: QAffineFormats) -> AffinePlan:
    """The plan with c inside the forward product's accumulator, whose ``init`` must say where."""
    plan: AffinePlan | None = formats.plan.with_addend or (formats.plan if formats.bias_in_accumulator else None)
    if plan is None:
        raise SpecError(
            message(
                f"{owner}: c with {str(formats.fprop)!r}, which has no place for it",
                "accumulators with init='c_first' or 'c_last'",
                "Use gemmsim.acc.sequential(..., init='c_first'), or add c to the result.",
            )
        )
    return plan


def _check_select(owner: str, select: Tensor | None, a: Tensor, b: Tensor, plan: AffinePlan) -> None:
    """Errors for a palette without indices, indices without a palette, and gradients that have none."""
    if not plan.fprop.palette:
        asked = f"{owner}: select with {plan.fprop.spec!r}"
        raise SpecError(message(asked, "select for palette(...) only", "Drop select, or give a palette."))
    if select is None:
        raise SelectError(
            message(
                f"{owner}: {plan.fprop.spec!r} without select",
                "one index for each element of the result",
                "Give select=, integers that broadcast to the result.",
            )
        )
    check_integers(owner, "select", select)
    check_device(owner, a, select, None, "a select")
    if torch.is_grad_enabled():
        if a.requires_grad:
            check_gradient("dgrad", plan.dgrad)
        if b.requires_grad:
            check_gradient("wgrad", plan.wgrad)


def _as_matrices(owner: str, name: str, c: Tensor, row: bool, column: bool, shape: tuple[int, ...]) -> Tensor:
    """``c`` in the shape that broadcasts to the product of the operands as matrices."""
    if row and not column and c.dim() >= 1:
        c = c.unsqueeze(-2)
    if column and not row:
        c = c.unsqueeze(-1)
    if row and column and c.dim() > 0:
        c = c.unsqueeze(-1)
    try:
        broadcast = torch.broadcast_shapes(c.shape, shape)
    except RuntimeError:
        broadcast = None
    if broadcast is None or tuple(broadcast) != tuple(shape):
        asked = f"{owner}: {name} has shape {tuple(c.shape)}, the product {tuple(shape)} (vectors as matrices)"
        raise ShapeError(message(asked, f"a {name} that broadcasts to the product", f"Reshape or expand {name}."))
    return c
