"""``gemmsim.compat.modelopt.torch.quantization.tensor_quant``."""

from .torch.quantization.tensor_quant import *  # noqa: F403
from .torch.quantization.tensor_quant import __all__ as __all__
