"""``torchao.quantization.quantize_.common``."""

from .kernel_preference import KernelPreference
from .quantization_step import QuantizationStep
from .quantize_tensor_kwargs import QuantizeTensorKwargs

__all__ = ["KernelPreference", "QuantizationStep", "QuantizeTensorKwargs"]
