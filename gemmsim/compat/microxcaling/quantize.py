"""microxcaling's ``mx.quantize``."""

from .elementwise import quantize_bfloat as quantize_bfloat
from .elementwise import quantize_elemwise_op as quantize_elemwise_op
from .functions import QuantizeBfloatFunction as QuantizeBfloatFunction
