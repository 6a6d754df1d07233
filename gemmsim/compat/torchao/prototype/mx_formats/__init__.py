"""``torchao.prototype.mx_formats``: configurations for ``quantize_``, of torchao 0.10 to today."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .config import MXGemmKernelChoice as MXGemmKernelChoice
from .config import MXInferenceLinearConfig as MXInferenceLinearConfig
from .config import MXLinearConfig as MXLinearConfig
from .config import MXLinearRecipeName as MXLinearRecipeName
from .config import ScaleCalculationMode as ScaleCalculationMode
from .inference_workflow import MXDynamicActivationMXWeightConfig as MXDynamicActivationMXWeightConfig
from .inference_workflow import MXFPInferenceConfig as MXFPInferenceConfig
from .inference_workflow import NVFP4DynamicActivationNVFP4WeightConfig as NVFP4DynamicActivationNVFP4WeightConfig
from .inference_workflow import NVFP4InferenceConfig as NVFP4InferenceConfig
from .inference_workflow import NVFP4MMConfig as NVFP4MMConfig
from .inference_workflow import NVFP4ObservedLinear as NVFP4ObservedLinear
from .inference_workflow import NVFP4WeightOnlyConfig as NVFP4WeightOnlyConfig

__all__ = [
    "MXDynamicActivationMXWeightConfig",
    "MXFPInferenceConfig",
    "MXGemmKernelChoice",
    "MXInferenceLinearConfig",
    "MXLinearConfig",
    "MXLinearRecipeName",
    "NVFP4DynamicActivationNVFP4WeightConfig",
    "NVFP4InferenceConfig",
    "NVFP4MMConfig",
    "NVFP4ObservedLinear",
    "NVFP4WeightOnlyConfig",
    "ScaleCalculationMode",
]

#: Modules that are attributes of the package without being imported by name.
_MODULES = ("constants", "custom_cast", "kernels", "mx_linear", "mx_tensor", "nvfp4_tensor", "utils")


def __getattr__(name: str) -> Any:
    """Load a module on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
