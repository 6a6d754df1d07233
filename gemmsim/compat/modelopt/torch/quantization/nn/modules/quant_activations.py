"""``modelopt.torch.quantization.nn.modules.quant_activations``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = ["QuantLeakyReLU"]


@QuantModuleRegistry.register({nn.LeakyReLU: "nn.LeakyReLU"})
class QuantLeakyReLU(MadeInput, nn.LeakyReLU):
    """``nn.LeakyReLU`` of a quantised input."""
