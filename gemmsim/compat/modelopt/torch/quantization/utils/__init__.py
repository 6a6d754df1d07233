"""``modelopt.torch.quantization.utils``."""

from .core_utils import *  # noqa: F403
from .core_utils import __all__ as _CORE

__all__ = [*_CORE]
