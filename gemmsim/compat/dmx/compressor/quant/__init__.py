"""The package ``dmx.compressor.quant``."""

from .quant_function import block_quantize, fixed_point_quantize, float_quantize

__all__ = ["block_quantize", "fixed_point_quantize", "float_quantize"]
