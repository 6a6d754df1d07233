"""``torchao.prototype.moe_training``: the dense MXFP8 layers that training takes from there."""

from .config import MXFP8TrainingOpConfig, MXFP8TrainingRecipe
from .mxfp8_linear import MXFP8Linear

__all__ = ["MXFP8Linear", "MXFP8TrainingOpConfig", "MXFP8TrainingRecipe"]
