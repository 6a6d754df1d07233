"""The module ``qtorch.optim.optim_low``."""

from . import OptimLP

__all__ = ["OptimLP"]
