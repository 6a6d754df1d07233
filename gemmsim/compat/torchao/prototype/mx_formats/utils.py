"""``torchao.prototype.mx_formats.utils``: scales in tiled order, and casts along the first dimension."""

from ...casts import _to_blocked_single as _to_blocked_single
from ...casts import _to_mxfp8_dim1_kernel_wrapper as _to_mxfp8_dim1_kernel_wrapper
from ...elements import ceil_div as ceil_div
from ...elements import from_blocked as from_blocked
from ...elements import hp_data_dims_to_swizzled_scale_dims_mx as hp_data_dims_to_swizzled_scale_dims_mx
from ...elements import hp_data_dims_to_swizzled_scale_dims_nvfp4 as hp_data_dims_to_swizzled_scale_dims_nvfp4
from ...elements import to_blocked as to_blocked
from ...kinds import KernelPreference as KernelPreference
from ...kinds import MXFP8Dim1CastKernelChoice as MXFP8Dim1CastKernelChoice
from ...kinds import ScaleCalculationMode as ScaleCalculationMode
