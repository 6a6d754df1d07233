"""``torchao.prototype.mx_formats.config``: configurations, scale modes and kernel choices, from version 0.10 on."""

from __future__ import annotations

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

__all__ = [
    "DTYPE_TO_SHORT_STR",
    "KernelPreference",
    "MXFP8Dim0CastKernelChoice",
    "MXFP8Dim1CastKernelChoice",
    "MXGemmKernelChoice",
    "MXInferenceLinearConfig",
    "MXLinearConfig",
    "MXLinearRecipeName",
    "SUPPORTED_ELEM_DTYPES",
    "ScaleCalculationMode",
]
