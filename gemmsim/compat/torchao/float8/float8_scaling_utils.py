"""``torchao.float8.float8_scaling_utils``: casts to float8 with scales of the current values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .config import ScalingGranularity
from .float8_training_tensor import (
    Float8TrainingTensor,
    GemmInputRole,
    LinearMMConfig,
    hp_tensor_and_scale_to_float8,
)
from .float8_utils import tensor_to_scale

__all__ = ["get_maybe_axiswise_dim", "hp_tensor_to_float8_dynamic"]


def hp_tensor_to_float8_dynamic(
    hp_tensor: Tensor,
    float8_dtype: torch.dtype,
    linear_mm_config: LinearMMConfig | None,
    reduce_amax: bool = False,
    gemm_input_role: GemmInputRole = GemmInputRole.INPUT,
    device_mesh: Any = None,
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE,
    axiswise_dim: int | None = None,
    round_scales_to_power_of_2: bool = False,
) -> Float8TrainingTensor:
    """``hp_tensor`` cast with the scale of ``tensor_to_scale``. It has no gradient.

    Raises:
        ElementError: for another dtype, and AXISWISE without a dimension.

    Example:
        >>> from gemmsim.compat.torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
        >>> x = hp_tensor_to_float8_dynamic(torch.tensor([7.0, 0.5]), torch.float8_e4m3fn, None)
        >>> x._scale, x._data.float()
        (tensor(64.), tensor([448.,  32.]))
    """
    how = (scaling_granularity, axiswise_dim, round_scales_to_power_of_2)
    scale = tensor_to_scale(hp_tensor, float8_dtype, reduce_amax, device_mesh, *how)
    return hp_tensor_and_scale_to_float8(
        hp_tensor, scale, float8_dtype, linear_mm_config, gemm_input_role, axiswise_dim
    )


def get_maybe_axiswise_dim(axiswise_dim: int, scaling_granularity: ScalingGranularity) -> int | None:
    """``axiswise_dim`` for scales along a dimension, else None.

    Example:
        >>> from gemmsim.compat.torchao.float8 import ScalingGranularity, float8_scaling_utils
        >>> float8_scaling_utils.get_maybe_axiswise_dim(-1, ScalingGranularity.AXISWISE)
        -1
    """
    return axiswise_dim if scaling_granularity is ScalingGranularity.AXISWISE else None
