"""``torchao.prototype.mx_formats.config``: configurations, scale modes and kernel choices, from version 0.10 on."""

import torch as _torch

from ...kinds import ElemDType as _ElemDType
from ...kinds import KernelPreference as KernelPreference
from ...kinds import MXFP8Dim0CastKernelChoice as MXFP8Dim0CastKernelChoice
from ...kinds import MXFP8Dim1CastKernelChoice as MXFP8Dim1CastKernelChoice
from ...kinds import MXGemmKernelChoice as MXGemmKernelChoice
from ...kinds import MXInferenceLinearConfig as MXInferenceLinearConfig
from ...kinds import MXLinearConfig as MXLinearConfig
from ...kinds import MXLinearRecipeName as MXLinearRecipeName
from ...kinds import ScaleCalculationMode as ScaleCalculationMode
from .constants import DTYPE_TO_SHORT_STR as DTYPE_TO_SHORT_STR
from .constants import SUPPORTED_ELEM_DTYPES as SUPPORTED_ELEM_DTYPES


def _validate_elem_dtype(elem_dtype: _ElemDType) -> None:
    """``AssertionError`` for an element type that torchao has not."""
    if elem_dtype not in SUPPORTED_ELEM_DTYPES:
        raise AssertionError(f"elem_dtype must be one of {SUPPORTED_ELEM_DTYPES}, got {elem_dtype}")


def _validate_kernel_preference(kernel_preference: KernelPreference, block_size: int, elem_dtype: _ElemDType) -> None:
    """``AssertionError`` for what torchao's kernels do not compute: AUTO is e4m3 or fp4 in blocks of 32."""
    fits = kernel_preference == KernelPreference.EMULATED
    if kernel_preference == KernelPreference.AUTO:
        fits = block_size == 32 and elem_dtype in (_torch.float8_e4m3fn, _torch.float4_e2m1fn_x2)
    if not fits:
        raise AssertionError(
            f"{kernel_preference} with block_size={block_size}, elem_dtype={elem_dtype}; allowed: EMULATED, and AUTO "
            "with blocks of 32 of float8_e4m3fn or float4_e2m1fn_x2"
        )
