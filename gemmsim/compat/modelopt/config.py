"""``gemmsim.compat.modelopt.torch.quantization.config``."""

from .torch.quantization.config import *  # noqa: F403
from .torch.quantization.config import __all__ as __all__
