"""``torchao.float8.float8_tensor``, as versions before 0.13 name the module of cast tensors."""

from .float8_training_tensor import Float8TrainingTensor as Float8Tensor
from .float8_training_tensor import GemmInputRole as GemmInputRole
from .float8_training_tensor import LinearMMConfig as LinearMMConfig
from .float8_training_tensor import ScaledMMConfig as ScaledMMConfig
from .float8_training_tensor import choose_scaled_mm_config as choose_scaled_mm_config
from .float8_training_tensor import hp_tensor_and_scale_to_float8 as hp_tensor_and_scale_to_float8

__all__ = [
    "Float8Tensor",
    "GemmInputRole",
    "LinearMMConfig",
    "ScaledMMConfig",
    "choose_scaled_mm_config",
    "hp_tensor_and_scale_to_float8",
]
