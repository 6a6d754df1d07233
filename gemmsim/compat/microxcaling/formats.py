"""microxcaling's ``mx.formats``."""

from .elements import ElemFormat as ElemFormat
from .elements import RoundingMode as RoundingMode
from .elements import _get_format_params as _get_format_params
from .elements import _get_max_norm as _get_max_norm
from .elements import _get_min_norm as _get_min_norm

FP32_EXPONENT_BIAS = 127
FP32_MIN_NORMAL = 2.0**-126
