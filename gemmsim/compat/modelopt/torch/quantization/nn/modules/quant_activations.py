"""``modelopt.torch.quantization.nn.modules.quant_activations``."""

from __future__ import annotations

from torch import nn

from .quant_input import MadeInput
from .quant_module import QuantModuleRegistry

__all__ = ["QuantLeakyReLU"]


@QuantModuleRegistry.register({nn.LeakyReLU: "nn.LeakyReLU"})
class QuantLeakyReLU(MadeInput, nn.LeakyReLU):
    """``nn.LeakyReLU`` with a quantised input.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantLeakyReLU(0.5)(torch.tensor([-2.0, 4.0]))
        tensor([-1.0079,  4.0000])
    """
