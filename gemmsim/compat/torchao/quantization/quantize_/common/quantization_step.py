"""``torchao.quantization.quantize_.common.quantization_step``."""

from __future__ import annotations

from ....nvfp4 import QuantizationStep as QuantizationStep

__all__ = [
    "QuantizationStep",
]
