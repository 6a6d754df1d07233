"""``gemmsim.compat.modelopt.torch.quantization.calib``."""

from .torch.quantization.calib import *  # noqa: F403
from .torch.quantization.calib import __all__ as __all__
