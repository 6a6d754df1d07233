"""``torchao.prototype.moe_training``: the dense MXFP8 layers that training takes from there."""

from __future__ import annotations

from .config import MXFP8TrainingOpConfig as MXFP8TrainingOpConfig
from .config import MXFP8TrainingRecipe as MXFP8TrainingRecipe
from .mxfp8_linear import MXFP8Linear as MXFP8Linear

__all__ = [
    "MXFP8Linear",
    "MXFP8TrainingOpConfig",
    "MXFP8TrainingRecipe",
]
