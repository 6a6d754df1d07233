"""``torch.ops.gemmsim.mx_mm``: the product of operands in block formats as an operator, for ``torch.compile``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.backend import backend_name
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.encoding import as_second
from gemmsim.formats import BlockFormat
from gemmsim.ops import last_run
from gemmsim.ops.checks import check_out_dtype
from gemmsim.ops.errors import ShapeError, message
from gemmsim.ops.product import blocks as block_product
from gemmsim.ops.product.eager import call_seed, spec_of
from gemmsim.ops.registration import define

__all__ = ["MMOperand", "mm_op"]


class MMOperand(NamedTuple):
    """An operand as arguments of the operator, which takes tensors and words alone; inside it is a ``Coded`` again.

    Codes with their scales, blocks along the contraction dimension; without scales a tensor of values. ``size``:
    elements along that dimension.
    """

    codes: Tensor
    scales: Tensor | None
    tensor_scale: Tensor | None
    packing: str
    size: int


def mm_op(a: MMOperand, b: MMOperand, spec: str, seed: int | None, out_dtype: torch.dtype) -> Tensor:
    """The operator on two operands."""
    result: Tensor = _mm_op(*a[:4], *b[:4], a.size, spec, seed, out_dtype)
    return result


def _mm(
    a: Tensor,
    a_scales: Tensor | None,
    a_tensor_scale: Tensor | None,
    a_packing: str,
    b: Tensor,
    b_scales: Tensor | None,
    b_tensor_scale: Tensor | None,
    b_packing: str,
    k: int,
    spec: str,
    seed: int | None,
    out_dtype: torch.dtype,
) -> Tensor:
    meaning = spec_of(spec)
    left = _operand(a, a_scales, a_tensor_scale, a_packing, meaning, -1, k)
    right = _operand(b, b_scales, b_tensor_scale, b_packing, meaning, -2, k)
    bits = call_seed(meaning, seed)
    out, plan = block_product.matmul(left, right, meaning, bits, out_dtype, _shape(a, b))
    last_run.record("mx_mm", backend_name(b), meaning.key, plan)
    return out


def _operand(
    codes: Tensor, scales: Tensor | None, second: Tensor | None, packing: str, spec: GemmSpec, dim: int, k: int
) -> block_product.Operand:
    if scales is None:
        return codes
    fmt = spec.a if dim == -1 else spec.b
    assert isinstance(fmt, BlockFormat)
    return Coded(codes, scales, fmt, dim, k, packing, as_second(second))


def _shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        asked = f"mx.matmul: batch dimensions {tuple(a.shape[:-2])} and {tuple(b.shape[:-2])}"
        raise ShapeError(message(asked, "ones that broadcast", "Unsqueeze or expand one of them.")) from None
    return (*batch, a.shape[-2], b.shape[-1])


def _mm_fake(
    a: Tensor, a_scales: Tensor | None, a_tensor_scale: Tensor | None, a_packing: str, b: Tensor, *rest: Any
) -> Tensor:
    *_, spec, _, out_dtype = rest
    spec_of(spec)
    check_out_dtype("mx.matmul", out_dtype)
    return a.new_empty(_shape(a, b), dtype=out_dtype)


_mm_op = define(
    "mx_mm(Tensor a, Tensor? a_scales, Tensor? a_tensor_scale, str a_packing, Tensor b, Tensor? b_scales,"
    " Tensor? b_tensor_scale, str b_packing, SymInt k, str spec, SymInt? seed, ScalarType out_dtype) -> Tensor",
    _mm,
    _mm_fake,
)
