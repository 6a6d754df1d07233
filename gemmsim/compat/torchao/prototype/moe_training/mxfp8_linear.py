"""``torchao.prototype.moe_training.mxfp8_linear``: dense MXFP8 layers and their product."""

from ...layers import MXFP8Linear as MXFP8Linear
from ...layers import _to_mxfp8_then_scaled_mm as _to_mxfp8_then_scaled_mm
from ...layers import mx_mm as mx_mm
