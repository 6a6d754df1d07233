"""``modelopt.torch.quantization.nn.modules.quant_pooling``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "QuantAdaptiveAvgPool1d",
    "QuantAdaptiveAvgPool2d",
    "QuantAdaptiveAvgPool3d",
    "QuantAvgPool1d",
    "QuantAvgPool2d",
    "QuantAvgPool3d",
    "QuantMaxPool1d",
    "QuantMaxPool2d",
    "QuantMaxPool3d",
]


@QuantModuleRegistry.register({nn.AdaptiveAvgPool1d: "nn.AdaptiveAvgPool1d"})
class QuantAdaptiveAvgPool1d(MadeInput, nn.AdaptiveAvgPool1d):
    """``nn.AdaptiveAvgPool1d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAdaptiveAvgPool1d(1)(torch.tensor([[1.0, 3.0]]))
        tensor([[1.9961]])
    """


@QuantModuleRegistry.register({nn.AdaptiveAvgPool2d: "nn.AdaptiveAvgPool2d"})
class QuantAdaptiveAvgPool2d(MadeInput, nn.AdaptiveAvgPool2d):
    """``nn.AdaptiveAvgPool2d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAdaptiveAvgPool2d(1)(torch.tensor([[[1.0, 3.0]]]))
        tensor([[[1.9961]]])
    """


@QuantModuleRegistry.register({nn.AdaptiveAvgPool3d: "nn.AdaptiveAvgPool3d"})
class QuantAdaptiveAvgPool3d(MadeInput, nn.AdaptiveAvgPool3d):
    """``nn.AdaptiveAvgPool3d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAdaptiveAvgPool3d(1)(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[[[1.9961]]]])
    """


@QuantModuleRegistry.register({nn.AvgPool1d: "nn.AvgPool1d"})
class QuantAvgPool1d(MadeInput, nn.AvgPool1d):
    """``nn.AvgPool1d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAvgPool1d(2)(torch.tensor([[1.0, 3.0]]))
        tensor([[1.9961]])
    """


@QuantModuleRegistry.register({nn.AvgPool2d: "nn.AvgPool2d"})
class QuantAvgPool2d(MadeInput, nn.AvgPool2d):
    """``nn.AvgPool2d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAvgPool2d(2)(torch.tensor([[[1.0, 3.0], [3.0, 1.0]]]))
        tensor([[[1.9961]]])
    """


@QuantModuleRegistry.register({nn.AvgPool3d: "nn.AvgPool3d"})
class QuantAvgPool3d(MadeInput, nn.AvgPool3d):
    """``nn.AvgPool3d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantAvgPool3d((1, 1, 2))(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[[[1.9961]]]])
    """


@QuantModuleRegistry.register({nn.MaxPool1d: "nn.MaxPool1d"})
class QuantMaxPool1d(MadeInput, nn.MaxPool1d):
    """``nn.MaxPool1d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantMaxPool1d(2)(torch.tensor([[1.0, 3.0]]))
        tensor([[3.]])
    """


@QuantModuleRegistry.register({nn.MaxPool2d: "nn.MaxPool2d"})
class QuantMaxPool2d(MadeInput, nn.MaxPool2d):
    """``nn.MaxPool2d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantMaxPool2d(2)(torch.tensor([[[1.0, 3.0], [3.0, 1.0]]]))
        tensor([[[3.]]])
    """


@QuantModuleRegistry.register({nn.MaxPool3d: "nn.MaxPool3d"})
class QuantMaxPool3d(MadeInput, nn.MaxPool3d):
    """``nn.MaxPool3d`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantMaxPool3d((1, 1, 2))(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[[[3.]]]])
    """


#: The same by the plain classes' names.
AdaptiveAvgPool1d = QuantAdaptiveAvgPool1d
AdaptiveAvgPool2d = QuantAdaptiveAvgPool2d
AdaptiveAvgPool3d = QuantAdaptiveAvgPool3d
AvgPool1d = QuantAvgPool1d
AvgPool2d = QuantAvgPool2d
AvgPool3d = QuantAvgPool3d
MaxPool1d = QuantMaxPool1d
MaxPool2d = QuantMaxPool2d
MaxPool3d = QuantMaxPool3d
