"""``modelopt.torch.quantization.nn.modules.quant_batchnorm``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = ["QuantBatchNorm1d", "QuantBatchNorm2d", "QuantBatchNorm3d"]


@QuantModuleRegistry.register({nn.BatchNorm1d: "nn.BatchNorm1d"})
class QuantBatchNorm1d(MadeInput, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantBatchNorm1d(2)(torch.ones(3, 2)).shape
        torch.Size([3, 2])
    """


@QuantModuleRegistry.register({nn.BatchNorm2d: "nn.BatchNorm2d"})
class QuantBatchNorm2d(MadeInput, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantBatchNorm2d(2)(torch.ones(3, 2, 4, 4)).shape
        torch.Size([3, 2, 4, 4])
    """


@QuantModuleRegistry.register({nn.BatchNorm3d: "nn.BatchNorm3d"})
class QuantBatchNorm3d(MadeInput, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantBatchNorm3d(2)(torch.ones(3, 2, 4, 4, 4)).shape
        torch.Size([3, 2, 4, 4, 4])
    """
