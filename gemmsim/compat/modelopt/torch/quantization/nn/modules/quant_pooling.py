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
    """``nn.AdaptiveAvgPool1d`` of a quantised input."""


@QuantModuleRegistry.register({nn.AdaptiveAvgPool2d: "nn.AdaptiveAvgPool2d"})
class QuantAdaptiveAvgPool2d(MadeInput, nn.AdaptiveAvgPool2d):
    """``nn.AdaptiveAvgPool2d`` of a quantised input."""


@QuantModuleRegistry.register({nn.AdaptiveAvgPool3d: "nn.AdaptiveAvgPool3d"})
class QuantAdaptiveAvgPool3d(MadeInput, nn.AdaptiveAvgPool3d):
    """``nn.AdaptiveAvgPool3d`` of a quantised input."""


@QuantModuleRegistry.register({nn.AvgPool1d: "nn.AvgPool1d"})
class QuantAvgPool1d(MadeInput, nn.AvgPool1d):
    """``nn.AvgPool1d`` of a quantised input."""


@QuantModuleRegistry.register({nn.AvgPool2d: "nn.AvgPool2d"})
class QuantAvgPool2d(MadeInput, nn.AvgPool2d):
    """``nn.AvgPool2d`` of a quantised input."""


@QuantModuleRegistry.register({nn.AvgPool3d: "nn.AvgPool3d"})
class QuantAvgPool3d(MadeInput, nn.AvgPool3d):
    """``nn.AvgPool3d`` of a quantised input."""


@QuantModuleRegistry.register({nn.MaxPool1d: "nn.MaxPool1d"})
class QuantMaxPool1d(MadeInput, nn.MaxPool1d):
    """``nn.MaxPool1d`` of a quantised input."""


@QuantModuleRegistry.register({nn.MaxPool2d: "nn.MaxPool2d"})
class QuantMaxPool2d(MadeInput, nn.MaxPool2d):
    """``nn.MaxPool2d`` of a quantised input."""


@QuantModuleRegistry.register({nn.MaxPool3d: "nn.MaxPool3d"})
class QuantMaxPool3d(MadeInput, nn.MaxPool3d):
    """``nn.MaxPool3d`` of a quantised input."""


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
