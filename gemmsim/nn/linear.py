"""Linear layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gemmsim.ops import qlinear

from .affine_base import AffineModule

__all__ = ["QLazyLinear", "QLinear"]


class _Linear(AffineModule):
    weight: Any
    bias: Any

    def forward(self, input: Tensor) -> Tensor:
        """``gemmsim.qlinear(input, weight, bias, spec)``."""
        return qlinear(input, self.weight, self.bias, self.formats)


class QLinear(_Linear, nn.Linear):
    """``torch.nn.Linear(in_features, out_features, bias, device, dtype)`` computed as ``spec`` says.

    ``spec``: a string, ``GemmSpec``, accumulator, cast or ``QAffineFormats``; None is PyTorch's own. Values and errors
    are those of ``gemmsim.qlinear``. (``formats``, its former keyword, is deprecated.)
    """

    float_class = nn.Linear


class QLazyLinear(_Linear, nn.LazyLinear):
    """``torch.nn.LazyLinear(out_features, bias, device, dtype)`` with ``spec``; its first input makes it a
    ``QLinear``."""

    cls_to_become = QLinear
    float_class = nn.Linear
    from_float = QLinear.from_float  # type: ignore[assignment]  # it is what the class becomes
