"""``torchao.float8``: training with linear layers in float8, by configuration or recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._lazy import exports

if TYPE_CHECKING:
    from . import config as config
    from . import distributed_utils as distributed_utils
    from . import float8_linear as float8_linear
    from . import float8_linear_utils as float8_linear_utils
    from . import float8_ops as float8_ops
    from . import float8_scaling_utils as float8_scaling_utils
    from . import float8_tensor as float8_tensor
    from . import float8_training_tensor as float8_training_tensor
    from . import float8_utils as float8_utils
    from . import fsdp_utils as fsdp_utils
    from .config import CastConfig as CastConfig
    from .config import Float8GemmConfig as Float8GemmConfig
    from .config import Float8LinearConfig as Float8LinearConfig
    from .config import Float8LinearRecipeName as Float8LinearRecipeName
    from .config import ScalingGranularity as ScalingGranularity
    from .config import ScalingType as ScalingType
    from .float8_linear import Float8Linear as Float8Linear
    from .float8_linear_utils import _auto_filter_for_recipe as _auto_filter_for_recipe
    from .float8_linear_utils import convert_to_float8_training as convert_to_float8_training
    from .float8_tensor import Float8Tensor as Float8Tensor
    from .float8_training_tensor import Float8TrainingTensor as Float8TrainingTensor
    from .float8_training_tensor import GemmInputRole as GemmInputRole
    from .float8_training_tensor import LinearMMConfig as LinearMMConfig
    from .float8_training_tensor import ScaledMMConfig as ScaledMMConfig
    from .fsdp_utils import precompute_float8_dynamic_scale_for_fsdp as precompute_float8_dynamic_scale_for_fsdp
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
