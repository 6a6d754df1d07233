"""Matrix products of operands in block formats, below PyTorch's dispatcher."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError, UnsupportedSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends.decoded_product import plain_spec
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.encoding import encode_operand, values_of
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.product import Product
from gemmsim.backends.route import run
from gemmsim.backends.scaled_cast import ScaledOperand, scaled_operand
from gemmsim.backends.scaled_specs import in_blocks
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, Cast, FiniteFloatFormat, ScaledCast, Sharing, TensorFormat

from ..errors import message
from ..quantize_eager import quantize
from ..seeds import Site
from .broadcasting import multiplied
from .scaled_casts import as_codes, multiply, rescaled

__all__ = ["Operand", "Seconds", "count_overflows", "decoded", "matmul", "operands_of", "seconds_of"]

Operand: TypeAlias = Tensor | Coded | ScaledOperand
#: Tensors' own scales of both operands, of scaled casts their largest magnitudes; None: to be found.
Seconds: TypeAlias = tuple[float | Tensor | None, float | Tensor | None]


def seconds_of(spec: GemmSpec, amax: Tensor | None) -> Seconds:
    """The largest magnitudes of earlier calls, of operands whose scales are delayed; None for others."""
    if amax is None:
        return None, None
    a, b = (isinstance(fmt, ScaledCast) and fmt.delayed > 0 for fmt in (spec.a, spec.b))
    return amax[0] if a else None, amax[1] if b else None


def operands_of(
    owner: str, a: Tensor, b: Tensor, spec: GemmSpec, seed: int = 0, seconds: Seconds = (None, None)
) -> tuple[Operand, Operand]:
    """``a`` and ``b`` in the block formats that ``spec`` names, blocks along the contraction dimension.

    ``seconds``: scales of the tensors of which they are parts; None: their own.
    """
    left: Operand = encode_operand(owner, a, spec.a, -1, seconds[0]) if isinstance(spec.a, BlockFormat) else a
    right: Operand = encode_operand(owner, b, spec.b, -2, seconds[1]) if isinstance(spec.b, BlockFormat) else b
    if isinstance(spec.a, ScaledCast) or isinstance(spec.b, ScaledCast):
        return _under_scales(left, right, spec, seed, seconds)
    if isinstance(spec.a, TENSOR_FORMATS):
        left = quantize(a, spec.a, seed, Site.OPERAND_A)
    if isinstance(spec.b, TENSOR_FORMATS):
        by_block = not isinstance(spec.b, FiniteFloatFormat) and spec.b.sharing is Sharing.BLOCK
        fmt: TensorFormat = replace(spec.b, dim=-2) if by_block else spec.b  # type: ignore[arg-type]
        right = quantize(b, fmt, seed, Site.OPERAND_B)
    return left, right


def _under_scales(a: Operand, b: Operand, spec: GemmSpec, seed: int, seconds: Seconds) -> tuple[Operand, Operand]:
    """Operands of which one or both are in a scaled cast: values, codes or elements and scales, as the accumulator and
    the scales ask for."""
    in_codes = all(fmt.block_format is not None for fmt in (spec.a, spec.b) if isinstance(fmt, ScaledCast))

    def one(x: Operand, fmt: object, dim: int, site: int, whole: float | Tensor | None) -> Operand:
        if not isinstance(x, Tensor):
            return x
        if not isinstance(fmt, ScaledCast):
            beside = isinstance(fmt, Cast) and takes_scales(spec.accumulator) and not in_codes
            return quantize(x, fmt, seed, site, widen=True) if beside or isinstance(fmt, TENSOR_FORMATS) else x  # type: ignore[arg-type]
        scaled = scaled_operand(x, fmt, dim, seed, site, whole)
        if not takes_scales(spec.accumulator):
            return scaled.values()
        return as_codes(scaled, fmt.block_format) if in_codes and fmt.block_format is not None else scaled

    return (
        one(a, spec.a, -1, Site.OPERAND_A, seconds[0]),
        one(b, spec.b, -2, Site.OPERAND_B, seconds[1]),
    )


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
    gain = _gain(spec)
    if isinstance(a, ScaledOperand) or isinstance(b, ScaledOperand):
        assert not isinstance(a, Coded) and not isinstance(b, Coded)
        total, ran = multiply(a, b, spec, seed)
        rescaled(total, gain, finish, out, spec, seed)
        return out, ran
    if gain != 1.0 and takes_scales(spec.accumulator):
        raw = torch.empty(shape, dtype=torch.float32, device=b.device)
        left = replace(_left(spec, a, b), out=None)
        ran = multiplied(Product(a, b, left, raw, seed, row=row))
        rescaled(raw, gain, finish, out, spec, seed)
        return out, ran
    return out, multiplied(Product(a, b, _left(spec, a, b), out, seed, c, select, finish, row=row))


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int) -> None:
    """Add the overflows of each element of the product to ``counts``, contiguous int64 of its shape."""
    left, right = map(_plain, operands_of("count_overflows", a, b, spec, seed))
    run(Product(left, right, _left(spec, left, right), counts, seed, count=True))


def decoded(owner: str, a: Tensor, b: Tensor, spec: GemmSpec, seed: int) -> tuple[Tensor, Tensor, GemmSpec]:
    """The values that ``a`` and ``b`` have in the block formats that ``spec`` names, exact, and what is left of it."""
    left, right = map(_plain, operands_of(owner, a, b, spec, seed))
    return values_of(left), values_of(right), plain_spec(spec)


def _plain(x: Operand) -> Tensor | Coded:
    if isinstance(x, ScaledOperand):
        asked = "counting in a product under binary32 scales"
        do = "Count with scales of powers of two (/pow2), or with the elements alone."
        raise UnsupportedSpec(message(asked, "products of numbers, or of blocks under powers of two", do))
    return x


def _left(spec: GemmSpec, a: Operand, b: Operand) -> GemmSpec:
    """What is left of ``spec`` for these operands: nothing of a block format where both hold its values."""
    if not (isinstance(a, Coded) or isinstance(b, Coded)):
        return plain_spec(spec)
    return in_blocks(spec)


def _gain(spec: GemmSpec) -> float:
    """What elements of both operands were multiplied with, where their scales do not undo it."""
    gains = [fmt.gain for fmt in (spec.a, spec.b) if isinstance(fmt, ScaledCast)]
    return math.prod(gains) if takes_scales(spec.accumulator) else 1.0
