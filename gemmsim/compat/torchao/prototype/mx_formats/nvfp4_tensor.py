"""``torchao.prototype.mx_formats.nvfp4_tensor``: NVFP4 tensors and conversions."""

from ...elements import f4_unpacked_to_f32 as f4_unpacked_to_f32
from ...elements import f32_to_f4_unpacked as f32_to_f4_unpacked
from ...elements import from_blocked as from_blocked
from ...elements import hp_data_dims_to_swizzled_scale_dims_nvfp4 as hp_data_dims_to_swizzled_scale_dims_nvfp4
from ...elements import pack_uint4 as pack_uint4
from ...elements import to_blocked as to_blocked
from ...elements import unpack_uint4 as unpack_uint4
from ...kinds import QuantizeTensorKwargs as QuantizeTensorKwargs
from ...nvfp4 import NVFP4MMConfig as NVFP4MMConfig
from ...nvfp4 import NVFP4Tensor as NVFP4Tensor
from ...nvfp4 import QuantizeTensorToNVFP4Kwargs as QuantizeTensorToNVFP4Kwargs
from ...nvfp4 import nvfp4_quantize as nvfp4_quantize
from ...nvfp4 import per_tensor_amax_to_scale as per_tensor_amax_to_scale
from .constants import F4_E2M1_MAX as F4_E2M1_MAX
from .constants import F8E4M3_MAX as F8E4M3_MAX

#: The smallest scale of a block.
E4M3_EPS = 2.0**-6
