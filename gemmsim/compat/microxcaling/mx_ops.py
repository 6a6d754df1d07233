"""microxcaling's ``mx.mx_ops``: rounding of blocks and its steps."""

from .blocks import _quantize_mx as _quantize_mx
from .blocks import quantize_mx_op as quantize_mx_op
from .formats import FP32_EXPONENT_BIAS as FP32_EXPONENT_BIAS
from .formats import FP32_MIN_NORMAL as FP32_MIN_NORMAL
from .formats import ElemFormat as ElemFormat
from .formats import RoundingMode as RoundingMode
from .formats import _get_format_params as _get_format_params
from .specs import mx_assert_test as mx_assert_test
from .tiles import _reshape_to_blocks as _reshape_to_blocks
from .tiles import _shared_exponents as _shared_exponents
from .tiles import _undo_reshape_to_blocks as _undo_reshape_to_blocks
