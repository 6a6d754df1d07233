"""``torchao.prototype.mx_formats.kernels``: casts of elements, packing, and kernels by name, on every device."""

from ...casts import down_size as down_size
from ...casts import get_bits as get_bits
from ...casts import mslk_quantize_nvfp4 as mslk_quantize_nvfp4
from ...casts import mxfp8_quantize_cuda as mxfp8_quantize_cuda
from ...casts import triton_mx_block_rearrange as triton_mx_block_rearrange
from ...casts import triton_mxfp8_dequant_dim0 as triton_mxfp8_dequant_dim0
from ...casts import triton_quantize_nvfp4 as triton_quantize_nvfp4
from ...casts import triton_to_mxfp8_dim0 as triton_to_mxfp8_dim0
from ...casts import triton_to_mxfp8_dim1 as triton_to_mxfp8_dim1
from ...casts import triton_to_mxfp8_dim1_reference as triton_to_mxfp8_dim1_reference
from ...casts import up_size as up_size
from ...elements import _f32_to_floatx_unpacked as _f32_to_floatx_unpacked
from ...elements import _floatx_unpacked_to_f32 as _floatx_unpacked_to_f32
from ...elements import f4_unpacked_to_f32 as f4_unpacked_to_f32
from ...elements import f6_e2m3_unpacked_to_f32 as f6_e2m3_unpacked_to_f32
from ...elements import f6_e3m2_unpacked_to_f32 as f6_e3m2_unpacked_to_f32
from ...elements import f32_to_f4_unpacked as f32_to_f4_unpacked
from ...elements import f32_to_f6_e2m3_unpacked as f32_to_f6_e2m3_unpacked
from ...elements import f32_to_f6_e3m2_unpacked as f32_to_f6_e3m2_unpacked
from ...elements import pack_uint4 as pack_uint4
from ...elements import unpack_uint4 as unpack_uint4
from ...kinds import ScaleCalculationMode as ScaleCalculationMode

# bits of exponent and fraction, and where sign and fraction lie in codes
EBITS_F32, MBITS_F32 = 8, 23
EBITS_F4_E2M1, MBITS_F4_E2M1, SIGN_MASK_F4, MANTISSA_MASK_F4 = 2, 1, 0b1000, 0b1
EBITS_F6_E2M3, MBITS_F6_E2M3, SIGN_MASK_F6_E2M3, MANTISSA_MASK_F6_E2M3 = 2, 3, 0b100000, 0b111
EBITS_F6_E3M2, MBITS_F6_E3M2, SIGN_MASK_F6_E3M2, MANTISSA_MASK_F6_E3M2 = 3, 2, 0b100000, 0b11
ZERO_BITS_F32, ZERO_POINT_FIVE_BITS_F32 = 0x0, 0x3F000000
#: Whether the functions of these names can be called: everywhere.
_triton_kernels_available = _mxfp8_cuda_kernels_available = True
