"""The module ``qtorch.quant.quant_function``."""

from ..functions import block_quantize as block_quantize
from ..functions import fixed_point_quantize as fixed_point_quantize
from ..functions import float_quantize as float_quantize
from ..quantizers import quantizer as quantizer
