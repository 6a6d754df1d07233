"""``torchao.quantization``: ``quantize_`` for the configurations of ``prototype.mx_formats``."""

from __future__ import annotations

from . import quantize_ as _package  # noqa: F401 - first, since the function takes the package's name
from .quant_api import quantize_ as quantize_
from .quantize_.common import KernelPreference as KernelPreference
from .utils import compute_error as compute_error

__all__ = ["KernelPreference", "compute_error", "quantize_"]
