"""The module ``qtorch.quant.quant_module``."""

from ..quantizers import Quantizer as Quantizer
