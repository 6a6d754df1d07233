"""Operands of convolutions in block formats: blocks along the terms of the matrices of windows and weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.backends.encoding import second_scale_of
from gemmsim.backends.scaled_cast import largest_magnitude
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, FiniteFloatFormat, ScaledCast, Sharing

from ..errors import message
from ..product import blocks as block_product
from ..product.blocks import Seconds
from ..product.shapes import matmul_shape
from ..quantize_eager import quantize
from ..seeds import Site

__all__ = ["blocks_matmul", "share"]


def share(x: Tensor, weight: Tensor, spec: GemmSpec, bits: int) -> tuple[Tensor, Tensor, GemmSpec, Seconds]:
    """Both operands with what a whole tensor shares done, the spec of what is left, and the tensors' scales.

    A window holds a part of a tensor, and several windows the same number: what belongs to the tensor is found before.

    Raises:
        UnsupportedSpec: for scales that several rows share, and transforms under a scale of the tensor.
    """
    if not spec.has_blocks:
        return x, weight, spec, (None, None)
    found: list[float | Tensor | None] = [None, None]
    operands = [x, weight]
    for i, (fmt, site) in enumerate(((spec.a, Site.OPERAND_A), (spec.b, Site.OPERAND_B))):
        if isinstance(fmt, BlockFormat):
            found[i] = second_scale_of(operands[i], fmt)
        elif isinstance(fmt, ScaledCast):
            _check_one_row(fmt, spec)
            if fmt.sharing is Sharing.TENSOR:
                found[i] = largest_magnitude(operands[i])
        elif isinstance(fmt, TENSOR_FORMATS) and (isinstance(fmt, FiniteFloatFormat) or fmt.sharing is Sharing.TENSOR):
            operands[i] = quantize(operands[i], fmt, bits, site)
            spec = replace(spec, a=None) if i == 0 else replace(spec, b=None)
    return operands[0], operands[1], spec, (found[0], found[1])


def _check_one_row(fmt: ScaledCast, spec: GemmSpec) -> None:
    """``UnsupportedSpec`` for what windows, which are no rows of one matrix, have no meaning for."""
    if fmt.rows > 1 or fmt.stored is not None or fmt.delayed or (fmt.hadamard and fmt.sharing is Sharing.TENSOR):
        asked = f"convolution with operand {fmt} in {str(spec)!r}"
        allowed = (
            "scales for the tensor, a row or parts of one, without stored(...) and delayed(...), and without a "
            "transform of a tensor"
        )
        do = "Take another scaled cast for convolutions, or leave these layers in bf16 by a rule."
        raise UnsupportedSpec(message(asked, allowed, do))


def blocks_matmul(
    a: Tensor, b: Tensor, spec: GemmSpec, seed: int, dtype: torch.dtype, c: Tensor | None, seconds: Seconds
) -> tuple[Tensor, object]:
    """The product of windows (rows, K) and a weight (K, N) in the block formats of ``spec``, and what ran."""
    shape = matmul_shape("conv", a, b)
    left, right = block_product.operands_of("conv", a, b, spec, seed, seconds)
    return block_product.matmul(left, right, spec, seed, dtype, shape, c)
