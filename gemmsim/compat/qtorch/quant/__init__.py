"""The package ``qtorch.quant``."""

from __future__ import annotations

from ..functions import block_quantize, fixed_point_quantize, float_quantize
from ..quantizers import Quantizer, quantizer

__all__ = ["Quantizer", "block_quantize", "fixed_point_quantize", "float_quantize", "quantizer"]
