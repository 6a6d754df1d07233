"""The module ``qtorch.quant.quant_function``."""

from ..functions import block_quantize, fixed_point_quantize, float_quantize
from ..quantizers import quantizer

__all__ = ["block_quantize", "fixed_point_quantize", "float_quantize", "quantizer"]
