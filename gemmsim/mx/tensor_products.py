"""Matrix products of block-format tensors as PyTorch's operators."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.errors import message

from .autograd import decoded_tensor, encoded_tensor
from .dispatch import implements
from .errors import BlockDimWarning, MXOperatorError
from .tensor import MXTensor
from .tensor_matmul import product

aten = torch.ops.aten


def _operands(owner: str, a: Any, b: Any) -> tuple[MXTensor, MXTensor]:
    """Both operands in block formats; a plain ``a`` is encoded where ``b`` says how."""
    if not isinstance(a, MXTensor) and isinstance(b, MXTensor) and b.act_format is not None:
        a = encoded_tensor(a, b.act_format, -1)
    if not (isinstance(a, MXTensor) and isinstance(b, MXTensor)):
        which = "a" if not isinstance(a, MXTensor) else "b"
        allowed = "two MXTensors, or a plain left operand where the right one has an act_format"
        do = f"Encode {which} with gemmsim.mx.to_mx, or use t.dequantize()."
        raise MXOperatorError(message(f"{owner}: {which} is a plain tensor", allowed, do))
    for name, t, place in (("a", a, -1), ("b", b, -2)):
        if t.block_dim != (place if t.ndim > 1 else -1):
            warnings.warn(
                f"{owner}: the blocks of {name} lie along dim {t.block_dim}, the sum runs along dim {place}; its "
                f"values are multiplied as they are.\n  For blocks along the sum encode the original with "
                f"gemmsim.mx.to_mx(..., dim={place}), or use {name}.requantize({place}).",
                BlockDimWarning,
                stacklevel=2,
            )
    return a, b


@implements(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default)
def mm(a: Any, b: Any) -> Tensor:
    """``product`` with the right operand's accumulator."""
    left, right = _operands("matmul", a, b)
    return product(left, right, right.accumulator)


@implements(aten.addmm.default)
def addmm(bias: Tensor, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``product`` plus ``bias``, added in float32 (float64 where the result is) and rounded to the result's dtype."""
    if alpha != 1 or beta != 1:
        asked = f"addmm: alpha={alpha}, beta={beta}"
        raise MXOperatorError(message(asked, "alpha=1 and beta=1", "Multiply the result, or scale before encoding."))
    return _with_bias(*_operands("addmm", a, b), bias)


@implements(aten.linear.default)
def linear(x: Any, weight: Any, bias: Tensor | None = None) -> Tensor:
    """``product(x, weight.mT)`` plus ``bias``."""
    if isinstance(weight, Tensor):
        weight = weight.t()
    left, right = _operands("linear", x, weight)
    return product(left, right, right.accumulator) if bias is None else _with_bias(left, right, bias)


def _with_bias(a: MXTensor, b: MXTensor, bias: Tensor) -> Tensor:
    if isinstance(bias, MXTensor):
        raise MXOperatorError(message("addmm: the addend is an MXTensor", "a plain addend", "Use bias.dequantize()."))
    common = torch.promote_types(a.dtype, b.dtype)
    if b.accumulator is None:
        left, right = decoded_tensor(a, common), decoded_tensor(b, common)
        # in inference mode PyTorch does not flatten a batched left operand of linear beforehand
        return torch.addmm(bias, left, right) if a.ndim == 2 else torch.nn.functional.linear(left, right.mT, bias)
    work = torch.float64 if common is torch.float64 else torch.float32
    return (product(a, b, b.accumulator, work) + bias.to(work)).to(common)
