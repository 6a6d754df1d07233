"""``torchao.prototype.mx_formats``: configurations for ``quantize_``, of torchao 0.10 to today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....._lazy import exports
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

if TYPE_CHECKING:
    from . import constants as constants
    from . import custom_cast as custom_cast
    from . import fp_format_spec as fp_format_spec
    from . import kernels as kernels
    from . import mx_linear as mx_linear
    from . import mx_tensor as mx_tensor
    from . import nvfp4_tensor as nvfp4_tensor
    from . import utils as utils
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
