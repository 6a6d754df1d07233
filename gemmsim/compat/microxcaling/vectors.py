"""Vector steps: one operation of PyTorch's in float32, then one element-wise rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .elementwise import quantize_elemwise_op
from .specs import MxSpecs

__all__ = ["Vector"]

#: log2(e) in bfloat16.
_LOG2_E = 1.4453125
# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_exp, _exp2, _log, _sqrt, _tanh, _sum = torch.exp, torch.exp2, torch.log, torch.sqrt, torch.tanh, torch.sum


class Vector:
    """The steps under ``specs``, rounded with its ``round``. Operands are tensors or numbers."""

    def __init__(self, specs: MxSpecs) -> None:
        self.specs = specs

    def round(self, x: Any) -> Tensor:
        """``x`` rounded."""
        return quantize_elemwise_op(x, self.specs)

    def add(self, a: Any, b: Any) -> Tensor:
        """a + b."""
        return self.round(a + b)

    def sub(self, a: Any, b: Any) -> Tensor:
        """a - b."""
        return self.round(a - b)

    def mul(self, a: Any, b: Any) -> Tensor:
        """a * b."""
        return self.round(a * b)

    def div(self, a: Any, b: Any) -> Tensor:
        """a / b; with ``vec_use_recip`` a * (1 / b), both rounded."""
        if not self.specs["vec_use_recip"]:
            return self.round(a / b)
        divisor = b if isinstance(b, Tensor) else torch.full((), b, dtype=a.dtype)
        return self.mul(a, self.recip(divisor))

    def recip(self, x: Tensor) -> Tensor:
        """1 / x."""
        return self.round(1.0 / x)

    def exp(self, x: Tensor) -> Tensor:
        """e^x; with ``vec_use_exp2`` 2^(1.4453125 x), both rounded."""
        if self.specs["vec_use_exp2"]:
            return self.exp2(self.round(_LOG2_E * x))
        return self.round(_exp(x))

    def exp2(self, x: Tensor) -> Tensor:
        """2^x."""
        return self.round(_exp2(x))

    def log(self, x: Tensor) -> Tensor:
        """Natural logarithm."""
        return self.round(_log(x))

    def sqrt(self, x: Tensor) -> Tensor:
        """Square root."""
        return self.round(_sqrt(x))

    def tanh(self, x: Tensor) -> Tensor:
        """Hyperbolic tangent."""
        return self.round(_tanh(x))

    def sum(self, x: Tensor, dim: Sequence[int], keepdim: bool = True) -> Tensor:
        """PyTorch's sum, rounded once; of no dimensions ``x``."""
        return self.round(_sum(x, list(dim), keepdim=keepdim) if dim else x)

    def mean(self, x: Tensor, dim: Sequence[int], keepdim: bool = True) -> Tensor:
        """The rounded sum over the count, rounded."""
        return self.div(self.sum(x, dim, keepdim), math.prod([x.shape[d] for d in dim]))
