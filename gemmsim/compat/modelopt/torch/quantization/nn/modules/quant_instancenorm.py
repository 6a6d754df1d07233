"""``modelopt.torch.quantization.nn.modules.quant_instancenorm``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = ["QuantInstanceNorm1d", "QuantInstanceNorm2d", "QuantInstanceNorm3d"]


@QuantModuleRegistry.register({nn.InstanceNorm1d: "nn.InstanceNorm1d"})
class QuantInstanceNorm1d(MadeInput, nn.InstanceNorm1d):
    """``nn.InstanceNorm1d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantInstanceNorm1d(2)(torch.ones(3, 2, 4)).shape
        torch.Size([3, 2, 4])
    """


@QuantModuleRegistry.register({nn.InstanceNorm2d: "nn.InstanceNorm2d"})
class QuantInstanceNorm2d(MadeInput, nn.InstanceNorm2d):
    """``nn.InstanceNorm2d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantInstanceNorm2d(2)(torch.ones(3, 2, 4, 4)).shape
        torch.Size([3, 2, 4, 4])
    """


@QuantModuleRegistry.register({nn.InstanceNorm3d: "nn.InstanceNorm3d"})
class QuantInstanceNorm3d(MadeInput, nn.InstanceNorm3d):
    """``nn.InstanceNorm3d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantInstanceNorm3d(2)(torch.ones(3, 2, 4, 4, 4)).shape
        torch.Size([3, 2, 4, 4, 4])
    """
