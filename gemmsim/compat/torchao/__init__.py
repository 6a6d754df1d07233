"""torchao's names, defaults, layouts and errors: MX and NVFP4 (``torchao.prototype.mx_formats``), ``torchao.float8``.

Conversions give torchao's bits: of its main branch, and with ``compat=`` of 0.18.0 and 0.6.1. torchao is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

if TYPE_CHECKING:
    from . import float8 as float8
    from . import prototype as prototype
    from . import quantization as quantization
    from .conversions import get_fp_scale as get_fp_scale
    from .conversions import to_dtype as to_dtype
    from .conversions import to_mx as to_mx
    from .elements import _f32_to_floatx_unpacked as _f32_to_floatx_unpacked
    from .elements import _floatx_unpacked_to_f32 as _floatx_unpacked_to_f32
    from .elements import ceil_div as ceil_div
    from .elements import f4_unpacked_to_f32 as f4_unpacked_to_f32
    from .elements import f6_e2m3_unpacked_to_f32 as f6_e2m3_unpacked_to_f32
    from .elements import f6_e3m2_unpacked_to_f32 as f6_e3m2_unpacked_to_f32
    from .elements import f32_to_f4_unpacked as f32_to_f4_unpacked
    from .elements import f32_to_f6_e2m3_unpacked as f32_to_f6_e2m3_unpacked
    from .elements import f32_to_f6_e3m2_unpacked as f32_to_f6_e3m2_unpacked
    from .elements import from_blocked as from_blocked
    from .elements import hp_data_dims_to_swizzled_scale_dims_mx as hp_data_dims_to_swizzled_scale_dims_mx
    from .elements import hp_data_dims_to_swizzled_scale_dims_nvfp4 as hp_data_dims_to_swizzled_scale_dims_nvfp4
    from .elements import pack_uint4 as pack_uint4
    from .elements import to_blocked as to_blocked
    from .elements import unpack_uint4 as unpack_uint4
    from .kinds import DTYPE_FP6_E2M3 as DTYPE_FP6_E2M3
    from .kinds import DTYPE_FP6_E3M2 as DTYPE_FP6_E3M2
    from .kinds import SUPPORTED_ELEM_DTYPES as SUPPORTED_ELEM_DTYPES
    from .kinds import KernelPreference as KernelPreference
    from .kinds import MXDynamicActivationMXWeightConfig as MXDynamicActivationMXWeightConfig
    from .kinds import MXFP8Dim0CastKernelChoice as MXFP8Dim0CastKernelChoice
    from .kinds import MXFP8Dim1CastKernelChoice as MXFP8Dim1CastKernelChoice
    from .kinds import MXFP8TrainingOpConfig as MXFP8TrainingOpConfig
    from .kinds import MXInferenceLinearConfig as MXInferenceLinearConfig
    from .kinds import MXLinearConfig as MXLinearConfig
    from .kinds import QuantizeTensorToMXKwargs as QuantizeTensorToMXKwargs
    from .kinds import ScaleCalculationMode as ScaleCalculationMode
    from .layers import MXFP8Linear as MXFP8Linear
    from .layers import MXInferenceLinear as MXInferenceLinear
    from .layers import MXLinear as MXLinear
    from .layers import mx_mm as mx_mm
    from .layers import quantize_ as quantize_
    from .layers import swap_linear_with_mx_inference_linear as swap_linear_with_mx_inference_linear
    from .layers import swap_linear_with_mx_linear as swap_linear_with_mx_linear
    from .nvfp4 import NVFP4DynamicActivationNVFP4WeightConfig as NVFP4DynamicActivationNVFP4WeightConfig
    from .nvfp4 import NVFP4ObservedLinear as NVFP4ObservedLinear
    from .nvfp4 import NVFP4Tensor as NVFP4Tensor
    from .nvfp4 import NVFP4WeightOnlyConfig as NVFP4WeightOnlyConfig
    from .nvfp4 import QuantizationStep as QuantizationStep
    from .nvfp4 import QuantizeTensorToNVFP4Kwargs as QuantizeTensorToNVFP4Kwargs
    from .nvfp4 import nvfp4_quantize as nvfp4_quantize
    from .nvfp4 import per_tensor_amax_to_scale as per_tensor_amax_to_scale
    from .tensor import FromMXConstrFunc as FromMXConstrFunc
    from .tensor import MXTensor as MXTensor
    from .tensor import NoopFwToMXBw as NoopFwToMXBw
    from .tensor import ToMXConstrFunc as ToMXConstrFunc
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
