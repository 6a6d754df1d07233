"""``gemmsim.compat.modelopt.torch.quantization.tensor_quant``."""

from .torch.quantization.tensor_quant import *  # noqa: F403
