"""``torchao.prototype.mx_formats.mx_tensor``: the tensor, conversions, and their steps."""

from ...casts import tensor_size_fp4x2_to_hp as tensor_size_fp4x2_to_hp
from ...casts import tensor_size_hp_to_fp4x2 as tensor_size_hp_to_fp4x2
from ...conversions import get_fp_scale as get_fp_scale
from ...conversions import to_dtype as to_dtype
from ...conversions import to_mx as to_mx
from ...elements import f4_unpacked_to_f32 as f4_unpacked_to_f32
from ...elements import f6_e2m3_unpacked_to_f32 as f6_e2m3_unpacked_to_f32
from ...elements import f6_e3m2_unpacked_to_f32 as f6_e3m2_unpacked_to_f32
from ...elements import f32_to_f4_unpacked as f32_to_f4_unpacked
from ...elements import f32_to_f6_e2m3_unpacked as f32_to_f6_e2m3_unpacked
from ...elements import f32_to_f6_e3m2_unpacked as f32_to_f6_e3m2_unpacked
from ...elements import from_blocked as from_blocked
from ...elements import hp_data_dims_to_swizzled_scale_dims_mx as hp_data_dims_to_swizzled_scale_dims_mx
from ...elements import pack_uint4 as pack_uint4
from ...elements import to_blocked as to_blocked
from ...elements import unpack_uint4 as unpack_uint4
from ...kinds import KernelPreference as KernelPreference
from ...kinds import MXGemmKernelChoice as MXGemmKernelChoice
from ...kinds import QuantizeTensorKwargs as QuantizeTensorKwargs
from ...kinds import QuantizeTensorToMXKwargs as QuantizeTensorToMXKwargs
from ...kinds import ScaleCalculationMode as ScaleCalculationMode
from ...rceil import _e8m0_scale_to_reciprocal_fp32 as _e8m0_scale_to_reciprocal_fp32
from ...rceil import _f32_to_e8m0_rceil as _f32_to_e8m0_rceil
from ...rceil import _to_mx_rceil as _to_mx_rceil
from ...tensor import FromMXConstrFunc as FromMXConstrFunc
from ...tensor import MXTensor as MXTensor
from ...tensor import NoopFwToMXBw as NoopFwToMXBw
from ...tensor import ToMXConstrFunc as ToMXConstrFunc
from .constants import BLOCK_SIZE_DEFAULT as BLOCK_SIZE_DEFAULT
from .constants import DTYPE_FP6_E2M3 as DTYPE_FP6_E2M3
from .constants import DTYPE_FP6_E3M2 as DTYPE_FP6_E3M2
from .constants import E8M0_EXPONENT_BIAS as E8M0_EXPONENT_BIAS
from .constants import E8M0_EXPONENT_NAN_VAL as E8M0_EXPONENT_NAN_VAL
from .constants import F4_E2M1_MAX as F4_E2M1_MAX
from .constants import F4_E2M1_MAX_POW2 as F4_E2M1_MAX_POW2
from .constants import F6_E2M3_MAX as F6_E2M3_MAX
from .constants import F6_E2M3_MAX_POW2 as F6_E2M3_MAX_POW2
from .constants import F6_E3M2_MAX as F6_E3M2_MAX
from .constants import F6_E3M2_MAX_POW2 as F6_E3M2_MAX_POW2
from .constants import F8E4M3_MAX as F8E4M3_MAX
from .constants import F8E4M3_MAX_POW2 as F8E4M3_MAX_POW2
from .constants import F8E5M2_MAX as F8E5M2_MAX
from .constants import F8E5M2_MAX_POW2 as F8E5M2_MAX_POW2
from .constants import F32_EXP_BIAS as F32_EXP_BIAS
from .constants import F32_MIN_NORMAL as F32_MIN_NORMAL
from .constants import SUPPORTED_ELEM_DTYPES as SUPPORTED_ELEM_DTYPES

# bits of sign, exponent and fraction
SBITS, EBITS_F32, MBITS_F32 = 1, 8, 23
EBITS_F4_E2M1, MBITS_F4_E2M1 = 2, 1
EBITS_F6_E2M3, MBITS_F6_E2M3 = 2, 3
EBITS_F6_E3M2, MBITS_F6_E3M2 = 3, 2
EBITS_F8_E4M3, MBITS_F8_E4M3 = 4, 3
EBITS_F8_E5M2, MBITS_F8_E5M2 = 5, 2
