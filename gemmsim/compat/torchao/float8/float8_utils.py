"""``torchao.float8.float8_utils``: scales of float8 tensors, and conversions under them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import ElementError, LayoutError, StorageError, message, shown
from ..quantization.utils import compute_error
from .config import ScalingGranularity

__all__ = [
    "EPS",
    "FP8_TYPES",
    "IS_ROCM",
    "amax_to_scale",
    "compute_error",
    "fp8_tensor_statistics",
    "is_row_major",
    "pad_tensor_for_matmul",
    "tensor_to_amax",
    "tensor_to_scale",
    "to_fp8_saturated",
]

#: Tensors whose largest magnitude is below this have the scale of this.
EPS = 1e-12
#: Whether PyTorch was built for AMD's GPUs.
IS_ROCM = torch.version.hip is not None
FP8_TYPES = {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}


class Float8DtypeError(ElementError):
    """A dtype other than the four float8 types with a fraction: a FormatError (ValueError), an AssertionError."""


def largest_of(float8_dtype: torch.dtype) -> float:
    """The largest number of a float8 dtype; ``Float8DtypeError`` for others."""
    if float8_dtype not in FP8_TYPES:
        allowed = ", ".join(sorted(str(kind) for kind in FP8_TYPES))
        raise Float8DtypeError(message(f"float8_dtype={shown(float8_dtype)}", allowed, "Try torch.float8_e4m3fn."))
    return torch.finfo(float8_dtype).max


@torch.no_grad()
def amax_to_scale(amax: Tensor, float8_dtype: torch.dtype, round_scales_to_power_of_2: bool = False) -> Tensor:
    """What numbers are multiplied with before they become float8: the largest number over ``amax``, float32.

    ``amax`` is at least ``EPS``; the quotient is rounded once. A power of two is 2^floor(log2), log2 rounded to float32
    first, so that of scales of 2^k up to 22 float32 numbers just below 2^k become 2^k, too. NaN stays NaN; of
    infinity the scale is 0.

    Raises:
        ElementError: for another dtype; it is a ValueError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8.float8_utils import amax_to_scale
        >>> amax_to_scale(torch.tensor([3.0, 0.0]), torch.float8_e4m3fn)
        tensor([1.4933e+02, 4.4800e+14])
    """
    scale = (largest_of(float8_dtype) / amax.to(torch.float64).clamp(min=EPS)).to(torch.float32)
    return _power_below(scale) if round_scales_to_power_of_2 else scale


def _power_below(scale: Tensor) -> Tensor:
    """2^floor(log2 scale), log2 rounded to float32; 0 and NaN as they are.

    Both functions are computed in float64 and rounded, which gives every device the same bits.
    """
    exponent = scale.to(torch.float64).log2().to(torch.float32).floor()
    return exponent.to(torch.float64).exp2().to(torch.float32)


@torch.no_grad()
def tensor_to_amax(
    x: Tensor,
    reduce_amax: bool = False,
    device_mesh: Any = None,
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE,
    axiswise_dim: int | None = None,
) -> Tensor:
    """The largest magnitude of a tensor, or of each slice along ``axiswise_dim``, which stays with size 1.

    NaN is the largest; an empty tensor has 0. ``reduce_amax``: over all processes, or those of ``device_mesh``.

    Raises:
        ElementError: for AXISWISE without a dimension.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_utils
        >>> float8_utils.tensor_to_amax(torch.tensor([1.0, -3.0]))
        tensor(3.)
    """
    magnitude = x.abs()
    if scaling_granularity is ScalingGranularity.TENSORWISE:
        amax = magnitude.amax() if magnitude.numel() else magnitude.new_zeros(())
    elif scaling_granularity is ScalingGranularity.AXISWISE and axiswise_dim is not None:
        if not magnitude.shape[axiswise_dim]:
            shape = list(magnitude.shape)
            shape[axiswise_dim] = 1
            return magnitude.new_zeros(shape)
        amax = magnitude.amax(axiswise_dim, keepdim=True)
    else:
        asked = f"scaling_granularity={shown(scaling_granularity)} with axiswise_dim={shown(axiswise_dim)}"
        raise ElementError(message(asked, "TENSORWISE, or AXISWISE with a dimension", "Give axiswise_dim=-1."))
    if reduce_amax and torch.distributed.is_available() and torch.distributed.is_initialized():
        group = None if device_mesh is None else device_mesh.get_group()
        torch.distributed.all_reduce(amax, torch.distributed.ReduceOp.MAX, group=group)
    return amax


@torch.no_grad()
def tensor_to_scale(
    hp_tensor: Tensor,
    float8_dtype: torch.dtype,
    reduce_amax: bool = False,
    device_mesh: Any = None,
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE,
    axiswise_dim: int | None = None,
    round_scales_to_power_of_2: bool = False,
) -> Tensor:
    """``amax_to_scale`` of ``tensor_to_amax``.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_utils
        >>> float8_utils.tensor_to_scale(torch.tensor([1.0, -3.5]), torch.float8_e4m3fn)
        tensor(128.)
    """
    amax = tensor_to_amax(hp_tensor, reduce_amax, device_mesh, scaling_granularity, axiswise_dim)
    return amax_to_scale(amax, float8_dtype, round_scales_to_power_of_2)


def to_fp8_saturated(x: Tensor, float8_dtype: torch.dtype) -> Tensor:
    """``x`` in a float8 dtype, rounded to nearest even; values beyond the largest number become that number. NaN stays.

    Raises:
        ElementError: for another dtype; it is a ValueError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_utils
        >>> float8_utils.to_fp8_saturated(torch.tensor([50.0, 1e5]), torch.float8_e5m2).tolist()
        [48.0, 57344.0]
    """
    largest = largest_of(float8_dtype)
    return x.clamp(-largest, largest).to(float8_dtype)


def fp8_tensor_statistics(tensor: Any, float8_dtype: torch.dtype) -> tuple[int, int]:
    """The numbers of elements of a ``Float8TrainingTensor`` that are zero, and that have the dtype's largest magnitude.

    Raises:
        ElementError: for another dtype; it is a ValueError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_training_tensor, float8_utils
        >>> encode, x = float8_training_tensor.hp_tensor_and_scale_to_float8, torch.tensor([[7.0, 0.5, 0.0, 0.0]])
        >>> float8_utils.fp8_tensor_statistics(encode(x, torch.tensor(64.0), torch.float8_e4m3fn), torch.float8_e4m3fn)
        (2, 1)
    """
    largest = largest_of(float8_dtype)
    elements = tensor._data.float()
    return int((elements == 0).sum()), int((elements.abs() == largest).sum())


def is_row_major(stride: tuple[int, ...]) -> bool:
    """Whether a matrix with these strides is row-major.

    Raises:
        LayoutError: for other than two strides; a ShapeError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_utils
        >>> float8_utils.is_row_major((4, 1)), float8_utils.is_row_major((1, 4))
        (True, False)
    """
    if len(stride) != 2:
        raise LayoutError(message(f"strides {shown(stride)}", "the two of a matrix", "Reshape it: x.reshape(-1, K)."))
    return stride[0] > stride[1] == 1


def pad_tensor_for_matmul(tensor: Tensor, dims: int | Iterable[int]) -> Tensor:
    """A matrix padded with zeros at the end, so that the sizes of ``dims`` are multiples of 16.

    Raises:
        LayoutError: for other than two dimensions; a ShapeError and an AssertionError.
        StorageError: for a value that is not a tensor; a DTypeError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import float8_utils
        >>> float8_utils.pad_tensor_for_matmul(torch.ones(3, 20), 1).shape
        torch.Size([3, 32])
    """
    if not isinstance(tensor, Tensor):
        raise StorageError(message(f"pad_tensor_for_matmul of {shown(tensor)}", "a tensor", "Give a matrix."))
    if tensor.dim() != 2:
        asked = f"pad_tensor_for_matmul: shape {tuple(tensor.shape)}"
        raise LayoutError(message(asked, "a matrix", "Reshape it: x.reshape(-1, K)."))
    chosen = (dims,) if isinstance(dims, int) else tuple(dims)
    rows, columns = (-size % 16 if dim in chosen else 0 for dim, size in enumerate(tensor.shape))
    return torch.nn.functional.pad(tensor, (0, columns, 0, rows))
