"""``torchao.quantization.quantize_.common``."""

from __future__ import annotations

from .kernel_preference import KernelPreference as KernelPreference
from .quantization_step import QuantizationStep as QuantizationStep
from .quantize_tensor_kwargs import QuantizeTensorKwargs as QuantizeTensorKwargs

__all__ = [
    "KernelPreference",
    "QuantizationStep",
    "QuantizeTensorKwargs",
]
