"""``torchao.prototype.moe_training.config``: the configuration of dense MXFP8 layers."""

from ...kinds import KernelPreference as KernelPreference
from ...kinds import MXFP8TrainingOpConfig as MXFP8TrainingOpConfig
from ...kinds import MXFP8TrainingRecipe as MXFP8TrainingRecipe
from ...kinds import ScaleCalculationMode as ScaleCalculationMode
