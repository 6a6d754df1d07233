"""The module ``qtorch.optim.optim_low``."""

from . import OptimLP as OptimLP
