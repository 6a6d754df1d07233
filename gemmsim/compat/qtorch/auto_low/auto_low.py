"""The module ``qtorch.auto_low.auto_low``."""

from . import lower, sequential_lower

__all__ = ["lower", "sequential_lower"]
