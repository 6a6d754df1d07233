"""microxcaling's ``mx.elemwise_ops``: element-wise rounding and its steps."""

from .elementwise import _quantize_bfloat as _quantize_bfloat
from .elementwise import _quantize_elemwise as _quantize_elemwise
from .elementwise import _quantize_elemwise_core as _quantize_elemwise_core
from .elementwise import _quantize_fp as _quantize_fp
from .elementwise import quantize_elemwise_op as quantize_elemwise_op
from .formats import RoundingMode as RoundingMode
from .formats import _get_format_params as _get_format_params
from .formats import _get_max_norm as _get_max_norm
from .formats import _get_min_norm as _get_min_norm
from .steps import _round_mantissa as _round_mantissa
from .steps import _safe_lshift as _safe_lshift
from .steps import _safe_rshift as _safe_rshift
