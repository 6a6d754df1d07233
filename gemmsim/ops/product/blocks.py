"""Matrix products of operands in block formats, below PyTorch's dispatcher."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends.decoded_product import plain_spec
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.encoding import encode_operand, values_of
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.product import Product
from gemmsim.backends.route import run
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, FiniteFloatFormat, Sharing, TensorFormat

from ..errors import message
from ..quantize_eager import quantize
from ..seeds import Site
from .broadcasting import multiplied

__all__ = ["Operand", "Seconds", "count_overflows", "decoded", "matmul", "operands_of"]

Operand: TypeAlias = Tensor | Coded
#: Tensors' own scales of both operands; None: to be found.
Seconds: TypeAlias = tuple[float | Tensor | None, float | Tensor | None]


def operands_of(
    owner: str, a: Tensor, b: Tensor, spec: GemmSpec, seed: int = 0, seconds: Seconds = (None, None)
) -> tuple[Operand, Operand]:
    """``a`` and ``b`` in the block formats that ``spec`` names, blocks along the contraction dimension.

    ``seconds``: scales of the tensors of which they are parts; None: their own.
    """
    left: Operand = encode_operand(owner, a, spec.a, -1, seconds[0]) if isinstance(spec.a, BlockFormat) else a
    right: Operand = encode_operand(owner, b, spec.b, -2, seconds[1]) if isinstance(spec.b, BlockFormat) else b
    if isinstance(spec.a, TENSOR_FORMATS):
        left = quantize(a, spec.a, seed, Site.OPERAND_A)
    if isinstance(spec.b, TENSOR_FORMATS):
        by_block = not isinstance(spec.b, FiniteFloatFormat) and spec.b.sharing is Sharing.BLOCK
        fmt: TensorFormat = replace(spec.b, dim=-2) if by_block else spec.b  # type: ignore[arg-type]
        right = quantize(b, fmt, seed, Site.OPERAND_B)
    return left, right


def matmul(
    a: Operand,
    b: Operand,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    c: Tensor | None = None,
    select: Tensor | None = None,
    finish: Finish | None = None,
    row: int = 0,
) -> tuple[Tensor, object]:
    """The product of encoded (or plain) operands in ``dtype`` and of ``shape``, and what ran.

    Raises:
        SpecError: for an addend or indices, where accumulators that take scales have no place for them.
    """
    if takes_scales(spec.accumulator) and (c is not None or select is not None):
        asked = f"qmatmul: c or select with {str(spec)!r}"
        raise SpecError(message(asked, "neither with scaled(...) or block-scaled instructions", "Add c to the result."))
    out = torch.empty(shape, dtype=dtype, device=b.device)
    return out, multiplied(Product(a, b, _left(spec, a, b), out, seed, c, select, finish, row=row))


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int) -> None:
    """Add the overflows of each element of the product to ``counts``, contiguous int64 of its shape."""
    left, right = operands_of("count_overflows", a, b, spec, seed)
    run(Product(left, right, _left(spec, left, right), counts, seed, count=True))


def decoded(owner: str, a: Tensor, b: Tensor, spec: GemmSpec, seed: int) -> tuple[Tensor, Tensor, GemmSpec]:
    """The values that ``a`` and ``b`` have in the block formats that ``spec`` names, exact, and what is left of it."""
    left, right = operands_of(owner, a, b, spec, seed)
    return values_of(left), values_of(right), plain_spec(spec)


def _left(spec: GemmSpec, a: Operand, b: Operand) -> GemmSpec:
    """What is left of ``spec`` for these operands: nothing of a block format where both hold its values."""
    return spec if isinstance(a, Coded) or isinstance(b, Coded) else plain_spec(spec)
