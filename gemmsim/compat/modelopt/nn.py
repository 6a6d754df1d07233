"""``gemmsim.compat.modelopt.torch.quantization.nn``."""

from .torch.quantization.nn import *  # noqa: F403
from .torch.quantization.nn import __all__ as __all__
