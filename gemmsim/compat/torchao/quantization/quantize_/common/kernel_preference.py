"""``torchao.quantization.quantize_.common.kernel_preference``."""

from ....kinds import KernelPreference as KernelPreference
