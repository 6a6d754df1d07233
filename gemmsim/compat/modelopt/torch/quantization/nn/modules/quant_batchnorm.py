"""``modelopt.torch.quantization.nn.modules.quant_batchnorm``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = ["QuantBatchNorm1d", "QuantBatchNorm2d", "QuantBatchNorm3d"]


@QuantModuleRegistry.register({nn.BatchNorm1d: "nn.BatchNorm1d"})
class QuantBatchNorm1d(MadeInput, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` of a quantised input."""


@QuantModuleRegistry.register({nn.BatchNorm2d: "nn.BatchNorm2d"})
class QuantBatchNorm2d(MadeInput, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` of a quantised input."""


@QuantModuleRegistry.register({nn.BatchNorm3d: "nn.BatchNorm3d"})
class QuantBatchNorm3d(MadeInput, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` of a quantised input."""
