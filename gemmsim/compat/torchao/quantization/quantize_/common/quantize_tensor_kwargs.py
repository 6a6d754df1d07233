"""``torchao.quantization.quantize_.common.quantize_tensor_kwargs``."""

from __future__ import annotations

from ....kinds import QuantizeTensorKwargs as QuantizeTensorKwargs

__all__ = [
    "QuantizeTensorKwargs",
]
