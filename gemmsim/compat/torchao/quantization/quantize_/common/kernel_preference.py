"""``torchao.quantization.quantize_.common.kernel_preference``."""

from __future__ import annotations

from ....kinds import KernelPreference as KernelPreference

__all__ = [
    "KernelPreference",
]
