"""microxcaling's autograd functions by name: ``apply`` with its arguments, settings given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .activations import softmax
from .elementwise import quantize_bfloat
from .gemms import bmm, linear, matmul

__all__ = ["BMMFunction", "LinearFunction", "MatMulFunction", "QuantizeBfloatFunction", "SoftmaxFunction"]


class LinearFunction:
    """``apply(input, weight, bias, mx_specs, name)`` is ``linear``."""

    @staticmethod
    def apply(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, mx_specs: Any = None, name: str | None = None
    ) -> Tensor:
        """``linear`` of the same arguments."""
        return linear(input, weight, bias, mx_specs, name)


class MatMulFunction:
    """``apply(in1, in2, bias, mx_specs, name, mode_config)`` is ``matmul``."""

    @staticmethod
    def apply(
        in1: Tensor, in2: Tensor, bias: Tensor | None, mx_specs: Any, name: str | None = None, mode_config: str = "aa"
    ) -> Tensor:
        """``matmul`` of the same arguments."""
        return matmul(in1, in2, bias, mx_specs, name, mode_config)


class BMMFunction:
    """``apply(in1, in2, mx_specs, name)`` is ``bmm``."""

    @staticmethod
    def apply(in1: Tensor, in2: Tensor, mx_specs: Any, name: str | None = None) -> Tensor:
        """``bmm`` of the same arguments."""
        return bmm(in1, in2, mx_specs, name)


class SoftmaxFunction:
    """``apply(input, dim, mx_specs, name)`` is ``softmax``."""

    @staticmethod
    def apply(input: Tensor, dim: int, mx_specs: Any = None, name: str | None = None) -> Tensor:
        """``softmax`` of the same arguments."""
        return softmax(input, dim, mx_specs, name)


class QuantizeBfloatFunction:
    """``apply(x, mx_specs, round)`` is ``quantize_bfloat``."""

    @staticmethod
    def apply(x: Tensor, mx_specs: Any, round: str | None = None) -> Tensor:
        """``quantize_bfloat`` of the same arguments."""
        return quantize_bfloat(x, mx_specs, round)
