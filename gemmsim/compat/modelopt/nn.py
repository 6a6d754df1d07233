"""``gemmsim.compat.modelopt.torch.quantization.nn``."""

from .torch.quantization.nn import *  # noqa: F403
