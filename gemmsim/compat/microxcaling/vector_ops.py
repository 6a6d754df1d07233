"""microxcaling's ``mx.vector_ops``: one operation of PyTorch's, then one element-wise rounding; no gradients.

``mx_specs`` None rounds nothing; ``round`` None is ``mx_specs["round"]``. Operands are tensors, or one of two a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .elementwise import quantize_elemwise_op as quantize_elemwise_op
from .specs import MxSpecs

__all__ = [
    "quantize_elemwise_op",
    "vec_add",
    "vec_div",
    "vec_exp",
    "vec_exp2",
    "vec_mul",
    "vec_quantize",
    "vec_recip",
    "vec_reduce_mean",
    "vec_reduce_sum",
    "vec_sqrt",
    "vec_sub",
    "vec_tanh",
]

LN_2_EXACT = 0.69314718056
#: log2(e) in bfloat16.
LOG2_E_BF16 = 1.4453125
# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_exp, _exp2, _log, _sqrt, _tanh, _sum = torch.exp, torch.exp2, torch.log, torch.sqrt, torch.tanh, torch.sum


def vec_quantize(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """``input`` rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_quantize(torch.tensor([1.3]), mx.MxSpecs(bfloat=12))
        tensor([1.2500])
    """
    return quantize_elemwise_op(input, mx_specs, round)


def vec_add(a: Any, b: Any, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """a + b, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_add(torch.tensor([8.0]), torch.tensor([1.0]), mx.MxSpecs(bfloat=11))
        tensor([10.])
    """
    return vec_quantize(a + b, mx_specs, round)


def vec_sub(a: Any, b: Any, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """a - b, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_sub(torch.tensor([8.0]), torch.tensor([0.3]), mx.MxSpecs(bfloat=12))
        tensor([7.5000])
    """
    return vec_quantize(a - b, mx_specs, round)


def vec_mul(a: Any, b: Any, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """a * b, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_mul(torch.tensor([1.25]), torch.tensor([1.25]), mx.MxSpecs(bfloat=12))
        tensor([1.6250])
    """
    return vec_quantize(a * b, mx_specs, round)


def vec_div(a: Any, b: Any, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """a / b, rounded; with ``vec_use_recip`` a * (1 / b), both rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_div(torch.tensor([1.0]), torch.tensor([3.0]), mx.MxSpecs(bfloat=12))
        tensor([0.3438])
    """
    divisor = b if isinstance(b, Tensor) else torch.full((), b, dtype=a.dtype, device=a.device)
    if not mx_specs or not mx_specs["vec_use_recip"]:  # by a number it is a product on GPUs
        return vec_quantize(a / (divisor if a.dtype == torch.float32 else b), mx_specs, round)
    return vec_mul(a, vec_recip(divisor, mx_specs, round), mx_specs, round)


def vec_exp(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """e^x, rounded; with ``vec_use_exp2`` 2^(1.4453125 x), both rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_exp(torch.tensor([1.0]), mx.MxSpecs(bfloat=12))
        tensor([2.7500])
    """
    if mx_specs and mx_specs["vec_use_exp2"]:
        return vec_exp2(vec_mul(input, LOG2_E_BF16, mx_specs, round), mx_specs, round)
    return vec_quantize(_exp(input), mx_specs, round)


def vec_exp2(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """2^x, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_exp2(torch.tensor([0.5]), mx.MxSpecs(bfloat=12))
        tensor([1.3750])
    """
    return vec_quantize(_exp2(input), mx_specs, round)


def vec_recip(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """1 / x, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_recip(torch.tensor([3.0]), mx.MxSpecs(bfloat=12))
        tensor([0.3438])
    """
    return vec_quantize(1.0 / input, mx_specs, round)


def vec_sqrt(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """The square root, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_sqrt(torch.tensor([2.0]), mx.MxSpecs(bfloat=12))
        tensor([1.3750])
    """
    return vec_quantize(_sqrt(input), mx_specs, round)


def vec_tanh(input: Tensor, mx_specs: Any = None, round: str | None = None) -> Tensor:
    """The hyperbolic tangent, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_tanh(torch.tensor([1.0]), mx.MxSpecs(bfloat=12))
        tensor([0.7500])
    """
    return vec_quantize(_tanh(input), mx_specs, round)


def vec_reduce_sum(
    input: Tensor, dim: int | Sequence[int], keepdim: bool = False, mx_specs: Any = None, round: str | None = None
) -> Tensor:
    """PyTorch's sum, rounded once.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_reduce_sum(torch.tensor([8.0, 8.0, 1.0]), 0, mx_specs=mx.MxSpecs(bfloat=12))
        tensor(18.)
    """
    dims = dim if isinstance(dim, int) else list(dim)
    return vec_quantize(_sum(input, dims, keepdim=keepdim), mx_specs, round)


def vec_reduce_mean(
    input: Tensor, dim: int | Sequence[int], keepdim: bool = False, mx_specs: Any = None, round: str | None = None
) -> Tensor:
    """The rounded sum divided by the count, rounded.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.vector_ops.vec_reduce_mean(torch.tensor([1.0, 2.0, 2.0]), 0, mx_specs=mx.MxSpecs(bfloat=12))
        tensor(1.6250)
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    total = vec_reduce_sum(input, dims, keepdim, mx_specs, round)
    return vec_div(total, math.prod(input.shape[d] for d in dims), mx_specs, round)


class Vector:
    """These steps under ``specs``, rounded with its ``round``, by their names without ``vec_``."""

    def __init__(self, specs: MxSpecs) -> None:
        self.specs = specs

    def round(self, x: Any) -> Tensor:
        """``x`` rounded."""
        return vec_quantize(x, self.specs)

    def add(self, a: Any, b: Any) -> Tensor:
        """a + b."""
        return vec_add(a, b, self.specs)

    def sub(self, a: Any, b: Any) -> Tensor:
        """a - b."""
        return vec_sub(a, b, self.specs)

    def mul(self, a: Any, b: Any) -> Tensor:
        """a * b."""
        return vec_mul(a, b, self.specs)

    def div(self, a: Any, b: Any) -> Tensor:
        """a / b."""
        return vec_div(a, b, self.specs)

    def recip(self, x: Tensor) -> Tensor:
        """1 / x."""
        return vec_recip(x, self.specs)

    def exp(self, x: Tensor) -> Tensor:
        """e^x."""
        return vec_exp(x, self.specs)

    def exp2(self, x: Tensor) -> Tensor:
        """2^x."""
        return vec_exp2(x, self.specs)

    def log(self, x: Tensor) -> Tensor:
        """Natural logarithm."""
        return vec_quantize(_log(x), self.specs)

    def sqrt(self, x: Tensor) -> Tensor:
        """Square root."""
        return vec_sqrt(x, self.specs)

    def tanh(self, x: Tensor) -> Tensor:
        """Hyperbolic tangent."""
        return vec_tanh(x, self.specs)

    def sum(self, x: Tensor, dim: Sequence[int], keepdim: bool = True) -> Tensor:
        """PyTorch's sum, rounded once; of no dimensions ``x``."""
        return vec_reduce_sum(x, dim, keepdim, self.specs) if dim else self.round(x)

    def mean(self, x: Tensor, dim: Sequence[int], keepdim: bool = True) -> Tensor:
        """The rounded sum over the count, rounded."""
        return self.div(self.sum(x, dim, keepdim), math.prod([x.shape[d] for d in dim]))
