"""``torchao.quantization.quantize_.common.quantize_tensor_kwargs``."""

from ....kinds import QuantizeTensorKwargs as QuantizeTensorKwargs
