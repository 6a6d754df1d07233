"""``torchao.prototype.mx_formats.mx_linear``: training layers of 0.6.1 to 0.17 and what they compute."""

from torch import nn as _nn

from ...casts import _to_mxfp8_dim1_kernel_wrapper as _to_mxfp8_dim1_kernel_wrapper
from ...conversions import to_mx as to_mx
from ...kinds import MXLinearConfig as MXLinearConfig
from ...layers import MXFP8Linear as MXFP8Linear
from ...layers import MXInferenceLinear as MXInferenceLinear
from ...layers import MXLinear as MXLinear
from ...layers import _to_mxfp8_then_scaled_mm as _to_mxfp8_then_scaled_mm
from ...layers import mx_mm as mx_mm
from ...layers import replace_with_custom_fn_if_matches_filter as replace_with_custom_fn_if_matches_filter
from ...layers import swap_linear_with_mx_inference_linear as swap_linear_with_mx_inference_linear
from ...layers import swap_linear_with_mx_linear as swap_linear_with_mx_linear
from ...tensor import MXTensor as MXTensor
from ...tensor import NoopFwToMXBw as NoopFwToMXBw


def _is_linear(mod: object, fqn: str) -> bool:
    """Whether a module is a ``torch.nn.Linear``."""
    return isinstance(mod, _nn.Linear)
