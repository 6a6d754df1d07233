"""``torchao.quantization.quantize_.common.quantization_step``."""

from ....nvfp4 import QuantizationStep as QuantizationStep
